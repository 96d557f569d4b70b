"""Runs that need other runs: none starts early, none stays out of date, and many reruns above one cause one."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from tests.simulation.graph import Graph
from tests.simulation.violations import Invariant, Verdicts
from worker.core.model import keys
from worker.core.model.events import EventType
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import OnRerun, Pipeline
from worker.core.run.state import Outcome, Run, State
from worker.store.repos.events import event_of
from worker.store.repos.requests import rerun_request_of
from worker.store.repos.run_rows import run_from_row
from worker.store.table import Delete, Key, Put, Row, TableName, Write

# Why Interlock itself asks for a rerun of a run whose upstreams completed again.
FOLLOWS: Final = frozenset({"upstream", "upstream-replay"})
# What has to be told of a result that stays out of date.
_TOLD: Final = {
    OnRerun.RERUN: frozenset({EventType.RERUN_REJECTED}),
    OnRerun.ALERT: frozenset({EventType.LATE_DATA_ARRIVAL}),
}


@dataclass(slots=True)
class DependencyInspector:
    """Remembers which attempts of each run are complete, and until when they were.

    `lag`: how long before its commit a decision may have read the rows above a run.
    """

    graph: Graph
    verdicts: Verdicts
    lag: timedelta
    runs: dict[RunKey, Run] = field(default_factory=dict[RunKey, Run])
    rehearsed: set[RunKey] = field(default_factory=set[RunKey])
    # attempt -> until when it was the last complete one
    _complete: dict[RunKey, dict[str, float]] = field(
        default_factory=lambda: defaultdict[RunKey, dict[str, float]](dict)
    )
    _active_since: dict[RunKey, float] = field(default_factory=dict[RunKey, float])
    _asked: dict[RunKey, tuple[str, float]] = field(default_factory=dict[RunKey, tuple[str, float]])
    _reasons: dict[RunKey, list[str]] = field(default_factory=lambda: defaultdict[RunKey, list[str]](list))
    _told: dict[RunKey, set[str]] = field(default_factory=lambda: defaultdict[RunKey, set[str]](set))

    def committed(self, writes: Sequence[Write]) -> None:
        reasons = [str(write.row.get("reason")) for write in writes if isinstance(write, Put) and _is_rerun(write)]
        for write in writes:
            match write:
                case Put(table=TableName.EVENTS, row=row):
                    self._note_event(write.key, row)
                case Put(table=TableName.CONTROL, row=row) if named := keys.run_row_of(write.key.pk, write.key.sk):
                    self._note(named[0], named[1], row, reasons)
                case Delete(table=TableName.CONTROL, key=key) if named := keys.run_row_of(key.pk, key.sk):
                    if named[0] is RowKind.TRIGGER:
                        self._forget(named[1])
                case _:
                    continue

    def _note(self, kind: RowKind, key: RunKey, row: Row, reasons: list[str]) -> None:
        match kind:
            case RowKind.DRY_RUN:
                self.rehearsed.add(key)
            case RowKind.RERUN_REQUEST:
                self._note_request(key, row)
            case RowKind.TRIGGER:
                run = run_from_row(row)
                assert isinstance(run, Run)
                self._note_run(key, run, reasons)
            case _:
                return

    def _note_event(self, key: Key, row: Row) -> None:
        stored = event_of(row)
        if stored is not None:
            named = keys.run_row_of(key.pk, f"{keys.TRIGGER}{stored.event.schedule}#{stored.event.period}")
            if named is not None:
                self._told[named[1]].add(stored.event.type)

    def _note_run(self, key: RunKey, run: Run, reasons: list[str]) -> None:
        before, now = self.runs.get(key), _now()
        if before is not None and run.attempt > before.attempt:
            self._reasons[key] += reasons
        if run.state is State.TRIGGERING and (before is None or before.state is not State.TRIGGERING):
            self._check_start(key, run)
            self._reasons[key].clear()
            self._told[key].clear()
        self.runs[key] = run
        if run.is_ended:
            self._active_since.pop(key, None)
        else:
            self._active_since.setdefault(key, now)
        complete = self._complete[key]
        current = _attempt(run) if run.state is State.COMPLETED else None
        for attempt, until in complete.items():
            if until == math.inf and attempt != current:
                complete[attempt] = now
        if current is not None:
            complete[current] = math.inf
        asked = self._asked.get(key)
        if asked is not None and asked[0] in run.handled:
            del self._asked[key]

    def _forget(self, key: RunKey) -> None:
        self.runs.pop(key, None)
        self._active_since.pop(key, None)
        self._asked.pop(key, None)
        for attempt in [attempt for attempt, until in self._complete[key].items() if until == math.inf]:
            self._complete[key][attempt] = _now()

    # --- with each commit ---------------------------------------------------------------------------------------------

    def _check_start(self, key: RunKey, run: Run) -> None:
        """Each needed upstream run is named, with an attempt that had completed and was not replaced long ago."""
        read_by = _now() - self.lag.total_seconds()
        for item, needed in self.graph.needs(key):
            for upstream in needed:
                attempt = run.started_after.get(str(upstream))
                until = self._complete[upstream].get(attempt or "", -math.inf)
                self.verdicts.require(
                    until >= read_by,
                    Invariant.NO_EARLY_START,
                    f"run {key} starts after attempt {attempt} of {upstream} ({item.pipeline}), which is not complete: "
                    f"{self._complete[upstream]}",
                )
        last, reasons = self.runs.get(key), self._reasons[key]
        if last is not None and last.started_after and reasons and FOLLOWS.issuperset(reasons):
            self.verdicts.require(
                last.started_after != run.started_after,
                Invariant.ONE_RERUN,
                f"run {key} ran again ({reasons}) after the same attempts: {run.started_after}",
            )

    def _note_request(self, key: RunKey, row: Row) -> None:
        request = rerun_request_of(row)
        if request.reason in FOLLOWS:
            self._check_rest(key)
        self._asked[key] = (request.identity, _now())

    def _check_rest(self, key: RunKey) -> None:
        """Nothing above a run that is to follow runs again, or is about to: else it would have to follow twice.

        What waits for a failed run is not about to: a person may need days to fix it.
        """
        read_by = _now() - self.lag.total_seconds()
        for above in self.graph.above(key):
            since = self._active_since.get(above, math.inf)
            self.verdicts.require(
                since > read_by or self._is_blocked(above, read_by),
                Invariant.ONE_RERUN,
                f"a rerun of {key} is requested, {above} is active since {since}",
            )
            identity, at = self._asked.get(above, ("", math.inf))
            run = self.runs.get(above)
            is_open = run is not None and identity not in run.handled
            self.verdicts.require(
                at > read_by or not is_open,
                Invariant.ONE_RERUN,
                f"a rerun of {key} is requested, that of {above} was at {at} and is not answered",
            )

    def _is_blocked(self, key: RunKey, read_by: float) -> bool:
        """Say whether a run waits for one that had ended otherwise than complete when a decision read it."""
        run = self.runs.get(key)
        if run is None or not run.is_at_gate:
            return False
        needed = [each for _, runs in self.graph.needs(key) for each in runs]
        return any(self._is_lost(each, read_by) for each in needed)

    def _is_lost(self, key: RunKey, read_by: float) -> bool:
        is_active = self._active_since.get(key, math.inf) <= read_by
        is_complete = any(until >= read_by for until in self._complete[key].values())
        return self._is_blocked(key, read_by) if is_active else not is_complete

    # --- at rest ------------------------------------------------------------------------------------------------------

    def undone(self) -> list[str]:
        """What is left to do below the runs that have ended; empty once all of it was done."""
        found: dict[RunKey, str] = {}
        for upstream in self.runs:
            for key in self.graph.needing(upstream):
                if key not in found and (problem := self._problem(key)):
                    found[key] = f"{key} {problem}"
        return [*found.values()]

    def check(self) -> None:
        left = self.undone()
        self.verdicts.require(not left, Invariant.NO_STALE_RESULT, f"all is quiet, and {'; '.join(left)}")

    def _problem(self, key: RunKey) -> str | None:
        pipeline, run = self.graph.pipelines[key.pipeline], self.runs.get(key)
        needed = [each for _, runs in self.graph.needs(key) for each in runs]
        current = {str(each): self._current(each) for each in needed}
        if None in current.values() or pipeline.dry_run:
            return None
        if run is None:
            is_expected = pipeline.schedules[0].trigger is None
            return "never began, although all that it needs is complete" if is_expected else None
        if run.is_at_gate:
            return "waits, although all that it needs is complete"
        if run.is_ended and run.started_after and run.outcome is not Outcome.CANCELLED:
            return self._staleness(key, run, pipeline, current)
        return None

    def _staleness(self, key: RunKey, run: Run, pipeline: Pipeline, current: dict[str, str | None]) -> str | None:
        changed = [name for name, attempt in run.started_after.items() if current[name] != attempt]
        wants = {
            item.on_rerun for item in pipeline.schedules[0].after for name in changed if _is_of(item.pipeline, name)
        }
        if not wants - {OnRerun.IGNORE}:
            return None
        assert pipeline.job is not None
        is_spent = run.spent.drift >= pipeline.job.max_drift_reruns
        want = OnRerun.RERUN if OnRerun.RERUN in wants else OnRerun.ALERT
        is_excused = (is_spent or want is OnRerun.ALERT) and bool(self._told[key] & _TOLD[want])
        return None if is_excused else f"was started after {[(name, run.started_after[name]) for name in changed]}"

    def _current(self, key: RunKey) -> str | None:
        run = self.runs.get(key)
        return _attempt(run) if run is not None and run.state is State.COMPLETED else None


def _is_rerun(write: Put) -> bool:
    return write.table is TableName.RERUN


def _attempt(run: Run) -> str:
    return f"{run.run_id[:8]}.{run.attempt}"


def _is_of(pipeline: str, name: str) -> bool:
    return name.partition("/")[0] == pipeline


def _now() -> float:
    return asyncio.get_running_loop().time()
