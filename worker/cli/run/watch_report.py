"""Say what became of changed pipeline files: lines for people, or events of the log."""

from collections.abc import Sequence
from typing import Final

from consumers.alerts.run_feed import system_local
from consumers.alerts.run_lines import shown_at
from worker.cli.commands.push import PushStatus
from worker.cli.commands.validate import show_problems
from worker.cli.terminal.console import Screen, counted
from worker.config.load import Problem
from worker.core.model.ids import PipelineId
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

PROBLEMS_SHOWN_MAX: Final = 10  # of one file; `interlock validate` shows all
VERSION_SHOWN: Final = 12  # characters, as `interlock explain` shows

_log = logger()


class ShownWatch:
    """Writes lines like those about runs."""

    def __init__(self, screen: Screen, clock: Clock) -> None:
        self._screen, self._clock = screen, clock

    def reloaded(self, pipeline: PipelineId, status: PushStatus, version: str, file: str) -> None:
        shown = f"{file} (version {version[:VERSION_SHOWN]})"
        what = {
            PushStatus.NEW: f"added from {shown}",
            PushStatus.CHANGED: f"reloaded from {shown}; active runs keep the version they began with",
            PushStatus.UNCHANGED: f"{shown} is deployed already",
        }[status]
        self._say(f"{pipeline}  {what}", "green")

    def rejected(self, file: str, problems: Sequence[Problem]) -> None:
        if not problems:
            self._say(f"interlock  {file} has no errors any more", "green")
            return
        found = counted(len(problems), "error")
        self._say(f"interlock  {file} was not reloaded: {found}; the deployed version stays in force", "bold red")
        show_problems(self._screen, problems[:PROBLEMS_SHOWN_MAX])
        if len(problems) > PROBLEMS_SHOWN_MAX:
            more = len(problems) - PROBLEMS_SHOWN_MAX
            self._screen.line(f"    and {more} more: `interlock validate {file}` shows them all", style="dim")

    def gone(self, pipeline: PipelineId, file: str) -> None:
        remedy = f"`interlock pipelines remove {pipeline}` removes it"
        self._say(f"{pipeline}  {file} does not hold it any more; it stays deployed: {remedy}", "yellow")

    def failed(self, reason: str) -> None:
        self._say(f"interlock  changed files are not in force yet, and are tried again: {reason}", "yellow")

    def _say(self, text: str, style: str) -> None:
        now = self._clock.now()
        self._screen.line(f"{shown_at(now, now, system_local)}  {text}", style=style)


class LoggedWatch:
    """Writes events of the log."""

    def reloaded(self, pipeline: PipelineId, status: PushStatus, version: str, file: str) -> None:
        _log.info("pipeline.reloaded", pipeline=pipeline, status=status.value, version=version, file=file)

    def rejected(self, file: str, problems: Sequence[Problem]) -> None:
        if not problems:
            _log.info("pipeline.file_fixed", file=file)
            return
        shown = [str(problem) for problem in problems[:PROBLEMS_SHOWN_MAX]]
        _log.warning("pipeline.not_reloaded", file=file, errors=len(problems), problems=shown)

    def gone(self, pipeline: PipelineId, file: str) -> None:
        _log.warning("pipeline.file_gone", pipeline=pipeline, file=file)

    def failed(self, reason: str) -> None:
        _log.warning("pipeline.watch_failed", reason=reason)
