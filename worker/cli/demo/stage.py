"""Write the demo's sensors, and wait in the store for the events that follow."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from consumers.outbox.severities import Severity, severity_of
from worker.cli.terminal.arguments import read_period
from worker.cli.terminal.console import Screen
from worker.cli.terminal.run_streams import STYLES
from worker.cli.terminal.store_session import StoreAccess
from worker.config.store_setting import GROUP
from worker.core.model.events import Event, EventType, in_order
from worker.core.model.ids import STREAM_SCHEDULE, PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.run.state import Run, State
from worker.operations.runs.events import EventReader
from worker.store.repos.leases import Leases
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import TableName, Tables

PATIENCE_S: Final = 30.0  # for each expected event; most take one or two seconds
PLAY_MAX_S: Final = 110.0  # for the whole demo
LOOK_AGAIN_S: Final = 0.1
# An event has the time of its decision, which may be a moment before the reader was created.
_JUST_BEFORE: Final = timedelta(seconds=5)
_SENSOR_FEEDS: Final = (f"feed.{TableName.CONTROL}", f"slices.{TableName.CONTROL}")  # of a file, of a server


class NotInTime(Exception):
    """NotInTime says that an event that the demo expects did not happen."""

    def __init__(self, what: str) -> None:
        limits = f"{PATIENCE_S:g} s are given to each step and {PLAY_MAX_S:g} s to all"
        super().__init__(f"{what} did not happen in time: {limits}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEvent:
    """ExpectedEvent is the event number `times` of its type for a run since the demo began."""

    pipeline: str
    period: str
    type: EventType
    times: int = 1

    def __str__(self) -> str:
        return f"{self.type} of {self.pipeline} {self.period}" + (f" (number {self.times})" if self.times > 1 else "")


class Stage:
    """Stage shows every event as it arrives. It shares only the store with the worker."""

    def __init__(self, screen: Screen, access: StoreAccess, tables: Tables, pipelines: Sequence[str]) -> None:
        self.screen, self.access = screen, access
        self._clock, self._tables = access.clock, tables
        since = self._clock.now() - _JUST_BEFORE
        self._readers = [EventReader(tables, since, pipeline=pipeline) for pipeline in pipelines]
        self._width = max(map(len, pipelines)) + len(" T00")
        self._seen: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
        self._began = self._clock.monotonic()

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic() - self._began

    def seen_after_s(self, expected: ExpectedEvent) -> float:
        """Return the seconds after which the event was seen; `until` must have waited for it."""
        return self._seen[expected.pipeline, expected.period, expected.type][expected.times - 1]

    async def say(self, pipeline: str, sensor: str, period: str, **fields: Json) -> None:
        """Write a sensor, and show the command that does the same."""
        words = " ".join(f"{name}={value}" for name, value in fields.items())
        self.screen.line(f"$ interlock sensor put {pipeline} {sensor} {words} --period {period}", style="bold")
        await Sensors(self._tables).put(PipelineId(pipeline), f"{sensor}#{period}", fields)

    async def sensor(self, pipeline: str, key: str) -> dict[str, Json]:
        found = await Sensors(self._tables).get(PipelineId(pipeline), key)
        return dict(found.data) if found else {}

    async def until(self, *expected: ExpectedEvent) -> None:
        """Wait for each event in turn. Raises `NotInTime`."""
        for each in expected:
            await self._until(lambda each=each: self._has_come(each), str(each))

    async def until_heard(self) -> None:
        """Wait until a worker reads the change feed, and so sees each change at once. Raises `NotInTime`."""
        await self._until(self._is_read, "the worker's beginning")

    async def until_waiting(self, key: RunKey) -> None:
        """Wait until a run exists and waits for its rules. Raises `NotInTime`."""
        await self._until(lambda: self._is_waiting(key), f"the beginning of {key}")

    async def _until(self, is_so: Callable[[], Awaitable[bool]], what: str) -> None:
        deadline = min(self._clock.monotonic() + PATIENCE_S, self._began + PLAY_MAX_S)
        while not await is_so():
            if self._clock.monotonic() > deadline:
                raise NotInTime(what)
            await self._clock.sleep(LOOK_AGAIN_S)

    async def _has_come(self, expected: ExpectedEvent) -> bool:
        await self._look()
        return len(self._seen[expected.pipeline, expected.period, expected.type]) >= expected.times

    async def _is_read(self) -> bool:
        leases = Leases(self._tables, GROUP)
        readers = [lease for feed in _SENSOR_FEEDS for lease in await leases.list(feed)]
        return bool(readers) and all(lease.owner and lease.checkpoint for lease in readers)

    async def _is_waiting(self, key: RunKey) -> bool:
        run = await Runs(self._tables).load(key)
        return isinstance(run, Run) and run.state is State.EVALUATING

    async def _look(self) -> None:
        now = self._clock.now()
        news = [event for reader in self._readers for event in await reader.news(now)]
        for event in in_order(news):
            self._seen[event.pipeline, event.period, event.type].append(self.elapsed_s)
            self._show(event)

    def _show(self, event: Event) -> None:
        severity = severity_of(event.type, event.detail)
        run = f"{event.pipeline}/{event.schedule}/{event.period}"
        message = event.message.removeprefix(run).lstrip(": ")
        style = STYLES[severity] if severity is not Severity.NOTE else "dim"
        about = f"{short_name(event.pipeline, event.period):<{self._width}}"
        self.screen.line(f"  {self.elapsed_s:5.1f}s  {about}  {event.type:<21}  {message}", style=style)


def short_name(pipeline: str, period: str) -> str:
    """Return a short name for a run: the hour is enough, because a demo is about one day."""
    _, of_hour, hour = period.partition("T")
    return f"{pipeline} {of_hour}{hour}"


def run_of(pipeline: str, period: str) -> RunKey:
    """Return the key of a demo run; each demo pipeline has one trigger schedule. Raises `ConfigError`."""
    return RunKey(PipelineId(pipeline), STREAM_SCHEDULE, read_period(period))
