"""Inputs at the end equal inputs at the start, or an event says so: checked at each success and at the end."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tests.simulation.violations import Invariant, Verdicts
from worker.core.model import keys
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.run.sensor_match import SensorContent, period_named
from worker.core.run.state import Run, State
from worker.store.repos.events import event_of
from worker.store.repos.run_rows import run_from_row
from worker.store.repos.sensors import sensor_of
from worker.store.table import Delete, Key, Put, Row, TableName, Write

SIGNAL: Final = "ready"
# What has to be told of a sensor that changed under the job, by its name.
_TOLD: Final = {
    SIGNAL: frozenset({EventType.LATE_DATA_ARRIVAL}),
    "count": frozenset({EventType.LATE_DATA_ARRIVAL}),
    "out": frozenset({EventType.POST_RUN_DRIFT, EventType.POST_RUN_PASSED, EventType.POST_RUN_FAILED}),
}


@dataclass(frozen=True, slots=True)
class _Said:
    row: Key
    content_hash: str
    at_s: float


@dataclass(slots=True)
class InputLedger:
    """Remembers the last content of every sensor that names its period, and what was told of each attempt.

    `lag`: how long before its commit a success may have read the sensors. What changes later is told afterwards.
    """

    verdicts: Verdicts
    lag: timedelta
    _said: dict[tuple[str, str, str], _Said] = field(default_factory=dict[tuple[str, str, str], _Said])
    _periods: dict[Key, str] = field(default_factory=dict[Key, str])  # the period each sensor's row is for now
    _runs: dict[RunKey, Run] = field(default_factory=dict[RunKey, Run])
    _started_at_s: dict[RunKey, float] = field(default_factory=dict[RunKey, float])
    _told: dict[RunKey, set[str]] = field(default_factory=dict[RunKey, set[str]])  # since the last start

    def committed(self, writes: Sequence[Write]) -> None:
        for write in writes:
            match write:
                case Put(table=TableName.EVENTS, row=row):
                    self._note_event(write.key, row)
                case Put(table=TableName.CONTROL, row=row):
                    self._note_sensor(write.key, row)
                case Delete(table=TableName.CONTROL, key=key) if key.sk.startswith(keys.TRIGGER) and (
                    named := keys.run_row_of(key.pk, key.sk)
                ):
                    self._runs.pop(named[1], None)
                case _:
                    continue
        for write in writes:
            if isinstance(write, Put) and write.key.sk.startswith(keys.TRIGGER):
                self._note_run(write.row)

    def check(self, excused: Collection[RunKey]) -> None:
        """At the end of a history no change of a signal is left that nobody was told of."""
        for key, run in self._runs.items():
            if run.state is State.COMPLETED and key not in excused:
                self._require_told(key, [name for name, _ in self._changed(run) if name == SIGNAL])

    def _note_sensor(self, key: Key, row: Row) -> None:
        sensor = sensor_of(row)
        period = None if sensor is None else period_named(SensorContent(sensor.key, sensor.data))
        if sensor is not None and period is not None:
            name = sensor.key.partition("#")[0]
            self._periods[key] = str(period)
            known = self._said.get((key.pk, name, str(period)))
            if known is None or known.content_hash != sensor.content_hash:
                now = asyncio.get_running_loop().time()
                self._said[key.pk, name, str(period)] = _Said(key, sensor.content_hash, now)

    def _note_event(self, key: Key, row: Row) -> None:
        stored = event_of(row)
        if stored is None:
            return
        named = keys.run_row_of(key.pk, f"{keys.TRIGGER}{stored.event.schedule}#{stored.event.period}")
        if named is not None:
            self._told.setdefault(named[1], set()).add(stored.event.type)

    def _note_run(self, row: Row) -> None:
        run = run_from_row(row)
        if not isinstance(run, Run):
            return
        before, self._runs[run.key] = self._runs.get(run.key), run
        if run.state is State.TRIGGERING and (before is None or before.state is not State.TRIGGERING):
            self._told[run.key], self._started_at_s[run.key] = set(), asyncio.get_running_loop().time()
        elif run.state is State.COMPLETED and before is not None and before.state is not State.COMPLETED:
            self._require_told(run.key, [name for name, said in self._changed(run) if self._was_read(run, said)])

    def _was_read(self, run: Run, said: _Said) -> bool:
        """Say whether a success must have seen it. Of a row that is for another period by now, a record tells."""
        read_by = asyncio.get_running_loop().time() - self.lag.total_seconds()
        return said.at_s < read_by and self._periods[said.row] == str(run.key.period)

    def _changed(self, run: Run) -> Iterator[tuple[str, _Said]]:
        """The inputs of the last start that were changed since. It may have found a row that was for another period."""
        for name, content_hash in run.started_on.items():
            said = self._said.get((keys.pipeline_pk(run.key.pipeline), name, str(run.key.period)))
            if said is None or said.content_hash == content_hash:
                continue
            if said.at_s > self._started_at_s.get(run.key, 0.0):
                yield name, said

    def _require_told(self, key: RunKey, changed: list[str]) -> None:
        told = self._told.get(key, set[str]())
        silent = [name for name in changed if not told & _TOLD[name]]
        what = f"run {key} succeeded on {silent} as they were, they changed, and only {sorted(told)} was told"
        self.verdicts.require(not silent, Invariant.INPUTS_STAY_OR_SOMEBODY_KNOWS, what)
