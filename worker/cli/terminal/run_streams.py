"""The log and the alerts of `interlock run`, on streams that may be full, slow or gone while the worker goes on."""

import syslog
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, cast

from consumers.alerts.console import WriteLine
from consumers.outbox.severities import Severity
from worker.cli.terminal.console import OutputStream, Screen
from worker.runtime.line_writer import LineWriter, line_writer

STYLES = {Severity.ALERT: "bold red", Severity.WARNING: "yellow", Severity.SUCCESS: "green", Severity.NOTE: ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStreams:
    """Standard output for alerts and standard error for the log, each written in the background."""

    out: LineWriter
    log: LineWriter

    @property
    def screen(self) -> Screen:
        """Give a screen on both: what a person is told at the start must not end the worker either."""
        return Screen(out=OutputStream(cast("TextIO", self.out)), err=OutputStream(cast("TextIO", self.log)))

    @property
    def unread(self) -> list[str]:
        """Name the streams that nobody reads any more."""
        return [stream.name for stream in (self.out, self.log) if stream.is_broken]

    def on_broken(self, act: Callable[[], None]) -> None:
        """Have `act` called, in any thread, once for each stream that nobody reads any more; at once if one is."""
        for stream in (self.out, self.log):
            stream.on_broken = act
        if self.unread:
            act()

    def write_alert(self, screen: Screen) -> WriteLine:
        async def write(severity: Severity, line: str) -> None:
            await self.out.deliver(screen.rendered(line, STYLES[severity]))

        return write

    def say_last(self, text: str) -> None:
        """Say what must not be lost where somebody may read it, if the log is not such a place."""
        if not self.log.is_broken:
            return
        if not self.out.is_broken:
            self.out.write(f"{text}\n")
        else:
            syslog.openlog("interlock", syslog.LOG_PID)
            syslog.syslog(syslog.LOG_ERR, text)


@contextmanager
def run_streams(out: TextIO | None, err: TextIO | None) -> Generator[RunStreams]:
    """Write to both until the end, and what waits then within a short time."""
    streams = RunStreams(out=line_writer(out, "standard output"), log=line_writer(err, "standard error"))
    try:
        yield streams
    finally:
        streams.out.close()
        streams.log.close()
