"""Show people on a terminal what happens to runs, as it happens.

Events say most of it. Why a run waits, or why its target does not start its job yet, is no event; the engine logs it
each time, and the feed shows it once until it changes. Everything that the feed remembers is bounded.
"""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar, cast

from consumers.alerts.console import ConsoleLine
from consumers.alerts.run_lines import (
    LocalTime,
    RunName,
    event_line,
    is_shown,
    line_severity,
    rejected_line,
    shown_at,
    waiting_line,
)
from consumers.outbox.severities import Severity
from worker.config.versions import PipelineVersions
from worker.core.errors import WorkerError
from worker.core.model.events import Event, EventType
from worker.core.model.ids import PipelineId
from worker.core.run.effects import EvaluateNow, NoteStart, StartJob
from worker.core.run.facts import JobRefused, RulesNotHeld
from worker.core.run.state import State
from worker.runtime.clock import Clock
from worker.runtime.logs import Log

RUNS_REMEMBERED_MAX: Final = 10_000
PENDING_MAX: Final = 100  # reasons that wait for their line
# A reason waits this long for its line: the events before it come through the store, and often the next sensor ends it.
SETTLE_S: Final = 0.5

# Queues a line for the terminal and returns at once. Never raises.
ShowLine: TypeAlias = Callable[[Severity, str], None]
# Returns whether a pipeline has several schedules, so that the name of its runs needs one.
HasSchedules: TypeAlias = Callable[[str], Awaitable[bool]]

_WAITING: Final = "waiting: "
_AGE: Final = re.compile(r" \([^()]* (?:ago|ahead)\)")
# That a rejected start is sent again is no news either: the reason that was said still holds.
_ROUTINE: Final = frozenset({EvaluateNow.__name__, NoteStart.__name__, StartJob.__name__})

Value = TypeVar("Value")


def system_local(at: datetime) -> datetime:
    """Return an instant in the time zone of this machine."""
    return at.astimezone()


class _Reason(NamedTuple):
    """Says why a run does not go on: its rules do not hold, or its target rejected the start."""

    text: str
    is_rejection: bool = False


class RunFeed:
    """Makes the lines of events and of waiting runs."""

    def __init__(
        self, show: ShowLine, clock: Clock, has_schedules: HasSchedules, local: LocalTime = system_local
    ) -> None:
        self._show, self._clock, self._has_schedules, self._local = show, clock, has_schedules, local
        self._began: _Recent[datetime] = _Recent(RUNS_REMEMBERED_MAX)
        self._said: _Recent[int] = _Recent(RUNS_REMEMBERED_MAX)
        self._pending: dict[str, _Reason] = {}
        self._unsaid = 0
        self._has_pending = asyncio.Event()

    # --- events -------------------------------------------------------------------------------------------------------

    async def line_of(self, event: Event) -> ConsoleLine | None:
        """Return the line of an event; None if it gets none."""
        if not is_shown(event):
            return None
        run = f"{event.pipeline}/{event.schedule}/{event.period}"
        if event.type == EventType.JOB_TRIGGERED:
            self._began.put(run, event.at)
        began = self._began.get(run) if event.type == EventType.JOB_COMPLETED else None
        name = await self._name(event.pipeline, event.schedule, event.period)
        took = None if began is None else event.at - began
        text = event_line(event, name, took=took, now=self._clock.now(), local=self._local)
        return ConsoleLine(line_severity(event), text)

    async def deliver(self, event: Event) -> None:
        """Show an event without waiting for the terminal, for a worker whose alerts go elsewhere."""
        if event.type == EventType.ALERT_PATH_CHECK:
            return
        if (line := await self.line_of(event)) is not None:
            self._show(line.severity, line.text)

    # --- waiting runs -------------------------------------------------------------------------------------------------

    def listening(self, log: Log) -> Log:
        """Return a log that also notes why runs wait. It only remembers; `run` writes."""

        def heard(event: str, facts: Mapping[str, object]) -> None:
            log(event, facts)
            self._note(event, facts)

        return heard

    def _note(self, event: str, facts: Mapping[str, object]) -> None:
        run = facts.get("run")
        if not isinstance(run, str):
            return
        reason = str(facts.get("reason", ""))
        if event == "fact.handled":
            # A rejection that ends the run has an event.
            if facts.get("fact") == JobRefused.__name__ and facts.get("state") == State.TRIGGERING:
                self._waits(run, _Reason(reason, is_rejection=True))
            elif not _ROUTINE.issuperset(cast("Sequence[str]", facts.get("effects", ()))):
                self._pending.pop(run, None)  # it waits no longer, or for something else
                self._said.forget(run)
        elif event == "fact.ignored" and facts.get("fact") == RulesNotHeld.__name__ and reason.startswith(_WAITING):
            self._waits(run, _Reason(reason.removeprefix(_WAITING)))

    def _waits(self, run: str, reason: _Reason) -> None:
        # The age of a time grows with each evaluation, and that alone is no news.
        if self._said.get(run) == hash(_AGE.sub("", reason.text)):
            self._pending.pop(run, None)
        elif run in self._pending or len(self._pending) < PENDING_MAX:
            self._pending[run] = reason
            self._has_pending.set()
        else:
            self._unsaid += 1

    async def run(self) -> None:
        """Write the lines of waiting runs until cancelled."""
        while True:
            await self._has_pending.wait()
            await self._clock.sleep(SETTLE_S)
            await self.write_waiting()

    async def write_waiting(self) -> None:
        """Write why runs wait, as far as it is news."""
        self._has_pending.clear()
        while self._pending:
            run = next(iter(self._pending))
            pipeline, schedule, period = run.rsplit("/", 2)
            name = await self._name(pipeline, schedule, period)
            reason = self._pending.pop(run, None)
            if reason is None:
                continue  # it started while its name was looked up
            self._said.put(run, hash(_AGE.sub("", reason.text)))
            line = rejected_line if reason.is_rejection else waiting_line
            severity = Severity.WARNING if reason.is_rejection else Severity.NOTE
            self._show(severity, line(name, reason.text, now=self._clock.now(), local=self._local))
        if self._unsaid:
            at, unsaid = shown_at(self._clock.now(), self._clock.now(), self._local), self._unsaid
            self._unsaid = 0
            self._show(Severity.NOTE, f"{at}  interlock  more runs wait ({unsaid} lines left out): `interlock status`")

    async def _name(self, pipeline: str, schedule: str, period: str) -> RunName:
        shows = bool(schedule) and await self._has_schedules(pipeline)
        return RunName(pipeline=pipeline, schedule=schedule if shows else "", period=period)


def schedules_of(configs: PipelineVersions) -> HasSchedules:
    async def has_schedules(pipeline: str) -> bool:
        try:
            version = await configs.current(PipelineId(pipeline))
        except WorkerError:  # the store does not answer, or the configuration is damaged: a full name is never wrong
            return True
        return version is None or len(version.pipeline.schedules) > 1

    return has_schedules


class _Recent(Generic[Value]):
    """Keeps one value for each of the latest runs."""

    def __init__(self, kept_max: int) -> None:
        self._kept: OrderedDict[str, Value] = OrderedDict()
        self._kept_max = kept_max

    def get(self, run: str) -> Value | None:
        return self._kept.get(run)

    def put(self, run: str, value: Value) -> None:
        self._kept[run] = value
        self._kept.move_to_end(run)
        if len(self._kept) > self._kept_max:
            self._kept.popitem(last=False)

    def forget(self, run: str) -> None:
        self._kept.pop(run, None)
