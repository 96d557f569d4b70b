"""Shows a line for every change of a run, for a worker on a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from consumers.alerts.console import ConsoleAlerts, WriteLine
from consumers.alerts.run_feed import RunFeed, ShowLine, schedules_of
from consumers.alerts.run_lines import shown_on_terminal
from consumers.outbox.patterns import EventPattern
from consumers.outbox.routes import Route
from consumers.outbox.severities import told_to_people
from worker.app.alerts import BackgroundTask
from worker.config.versions import PipelineVersions
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.store.table import Tables

TERMINAL: Final = "terminal"


@dataclass(frozen=True, slots=True)
class TerminalLines:
    """Holds how lines reach a terminal: an alert waits until it is written, any other line is queued."""

    write_alert: WriteLine
    show: ShowLine


@dataclass(frozen=True, slots=True)
class TerminalOutput:
    """Holds the feed of lines; None: there is no terminal, and everything is as on a pipe."""

    feed: RunFeed | None
    clock: Clock

    @property
    def pattern(self) -> EventPattern:
        """Return the events that the console gets."""
        return told_to_people() if self.feed is None else shown_on_terminal()

    @property
    def routes(self) -> Sequence[Route]:
        """Return a route of its own, for a worker whose alerts go to a chat."""
        return [] if self.feed is None else [Route(TERMINAL, shown_on_terminal(), self.feed.deliver)]

    @property
    def background_tasks(self) -> Mapping[str, BackgroundTask]:
        return {} if self.feed is None else {"waiting-lines": self.feed.run}

    def console(self, write: WriteLine, digest_every: timedelta | None) -> ConsoleAlerts:
        """Return alerts as lines; people who watch see every success."""
        if self.feed is None:
            return ConsoleAlerts(write, self.clock, digest_every)
        return ConsoleAlerts(write, self.clock, None, self.feed.line_of)

    def listening(self, log: Log) -> Log:
        return log if self.feed is None else self.feed.listening(log)


def terminal_output(show: ShowLine | None, tables: Tables, clock: Clock) -> TerminalOutput:
    feed = None if show is None else RunFeed(show, clock, schedules_of(PipelineVersions(tables)))
    return TerminalOutput(feed, clock)
