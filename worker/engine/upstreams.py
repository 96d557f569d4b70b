"""Upstreams: reads the upstream runs that a run needs, consistently and by exact key, and judges them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from worker.config.versions import PipelineVersions, Version
from worker.core.dependencies.gate import GateResult, ItemResult, Standing, UpstreamRun, judge_latest, judge_needed
from worker.core.dependencies.graph import named_schedule
from worker.core.dependencies.period_mapping import (
    Link,
    is_in_latest_range,
    latest_range,
    mapping_of,
    needed_periods,
)
from worker.core.errors import Rejected
from worker.core.model.keys import RunKey, run_key_of_name
from worker.core.model.pipeline import Dependency, OnRerun, PeriodMapping, PipelineId, Schedule
from worker.core.run.context import limits
from worker.core.run.ended import changed_upstreams, named, on_rerun, signature_of
from worker.core.run.facts import UpstreamEnded
from worker.core.run.state import PATH_MAX, ForeignRun, Outcome, Run
from worker.core.schedule.period_range import wrong_grain
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period
from worker.core.time.timestamps import parse_rfc3339
from worker.store.repos.requests import Requests, RerunRequest
from worker.store.repos.runs import Runs
from worker.store.table import Tables

SETTLED_READ_MAX: Final = 1000  # runs above one that are looked at for whether they are at rest
LATEST_READ_MAX: Final = 50  # how many runs `latest` looks at, newest first


@dataclass(slots=True)
class UpstreamMemo:
    """Remembers what one pass over many downstreams has read and found: rows of upstreams, and versions."""

    runs: dict[RunKey, Run | ForeignRun | None] = field(default_factory=dict[RunKey, Run | ForeignRun | None])
    versions: dict[PipelineId, Version | None] = field(default_factory=dict[PipelineId, Version | None])
    blocked: dict[RunKey, bool] = field(default_factory=dict[RunKey, bool])  # each run of a diamond is judged once


class UpstreamReader:
    """Reads upstream runs. A memo may be shared by reads that begin after the same change was committed."""

    def __init__(self, tables: Tables, configs: PipelineVersions) -> None:
        self._runs, self._requests, self._configs = Runs(tables), Requests(tables), configs

    async def gate(self, key: RunKey, schedule: Schedule, memo: UpstreamMemo | None = None) -> GateResult:
        """Judge every item of `after` for one run."""
        memo = memo or UpstreamMemo()
        return GateResult(tuple([await self._item(key.period, schedule, each, memo) for each in schedule.after]))

    async def ended(self, run: Run, schedule: Schedule, upstream: RunKey) -> UpstreamEnded:
        """Return the fact that an upstream run ended, with what its upstreams are now."""
        gate, current = await self._current(run, schedule)
        waits_for = await self._active_above(gate)
        if waits_for is None and changed_upstreams(run, current):
            waits_for = await self._unsettled(gate)
        return UpstreamEnded(upstream=upstream, upstreams=current, waits_for=waits_for, is_followed=gate.is_followed)

    async def _active_above(self, gate: GateResult) -> str | None:
        """Return what a gate waits for before its runs are at rest; a blocked run that it does not need is."""
        if gate.is_at_rest:
            return None
        memo = UpstreamMemo()
        active = [each.run for item in gate.items for each in item.runs if each.standing is Standing.ACTIVE]
        blocked = [isinstance(run, Run) and await self._is_blocked(run, memo) for run in active]
        if gate.is_passed and all(blocked):
            return None
        return gate.reason or "an upstream run is active"

    async def _current(self, run: Run, schedule: Schedule) -> tuple[GateResult, dict[str, str]]:
        gate = await self.gate(run.key, schedule)
        return gate, gate.attempts | await self._others(run, gate)

    async def link(self, schedule: Schedule, dependency: Dependency, memo: UpstreamMemo | None = None) -> Link | str:
        """Return the dependency with the upstream's schedule in force, or why there is none."""
        version = await self._version(dependency.pipeline, memo or UpstreamMemo())
        if version is None:
            return f"there is no pipeline {dependency.pipeline}"
        upstream = named_schedule(version.pipeline, dependency)
        if upstream is None:
            return f"{dependency.pipeline} has no such schedule" if dependency.schedule else "it has several schedules"
        return Link(dependency, schedule, upstream)

    async def _version(self, pipeline: PipelineId, memo: UpstreamMemo) -> Version | None:
        if pipeline not in memo.versions:
            memo.versions[pipeline] = await self._configs.current(pipeline)
        return memo.versions[pipeline]

    async def _item(self, period: Period, schedule: Schedule, dependency: Dependency, memo: UpstreamMemo) -> ItemResult:
        link = await self.link(schedule, dependency, memo)
        if isinstance(link, str):
            return ItemResult(dependency=dependency, period=period, problem=link)
        if mapping_of(link, period) is PeriodMapping.LATEST:
            return judge_latest(link, period, await self._newest(link, period))
        needed = needed_periods(link, period)
        keys = [RunKey(dependency.pipeline, link.upstream.id, each.period) for each in needed]
        found = await self._read(keys, memo)
        runs = [
            UpstreamRun(key=key, run=found[key], excused=each.excused) for key, each in zip(keys, needed, strict=True)
        ]
        return judge_needed(link, period, needed, runs)

    async def _newest(self, link: Link, period: Period) -> list[UpstreamRun]:
        span, zone = latest_range(link, period), link.upstream.zone
        # The names of a day begin with its date in some zone; a day on either side covers all of them.
        first = Period(wall_at(span.start, zone).date() - timedelta(days=1))
        last = Period(wall_at(span.end, zone).date() + timedelta(days=1), 23, 59)
        pipeline = link.dependency.pipeline
        found = await self._runs.newest_between(pipeline, link.upstream.id, first, last, LATEST_READ_MAX)
        return [UpstreamRun(key=run.key, run=run) for run in found if is_in_latest_range(link, period, run.key.period)]

    async def _read(self, keys: Sequence[RunKey], memo: UpstreamMemo) -> dict[RunKey, Run | ForeignRun | None]:
        missing = [key for key in keys if key not in memo.runs]
        if missing:
            found = await self._runs.load_many(missing)
            memo.runs.update({key: found.get(key) for key in missing})
        return {key: memo.runs[key] for key in keys}

    async def _others(self, run: Run, gate: GateResult) -> dict[str, str]:
        """Return the upstream runs that the job was started on and that the gate names no longer."""
        listed = {str(each.key) for item in gate.items for each in item.runs}
        keys = [key for name in run.started_after if name not in listed and (key := run_key_of_name(name)) is not None]
        found = await self._runs.load_many(keys) if keys else {}
        runs = [UpstreamRun(key=key, run=each) for key, each in found.items()]
        return {str(each.key): each.attempt for each in runs if each.is_complete}

    async def _unsettled(self, gate: GateResult) -> str | None:
        """Return which upstream runs, at any distance, are about to run again; None if all are at rest.

        Otherwise a run at the end of a diamond would run again for each of its sides.
        """
        level = [each.run for item in gate.items for each in item.runs if isinstance(each.run, Run)]
        seen, memo = {run.key for run in level}, UpstreamMemo()
        for _ in range(PATH_MAX):
            if active := [str(run.key) for run in level if not (run.is_ended or await self._is_blocked(run, memo))]:
                return f"{named(active)} runs again"
            if waiting := await self._requested(level):
                return f"a rerun of {named(waiting)} was requested"
            names = {key for run in level for name in run.started_after if (key := run_key_of_name(name)) is not None}
            above = await self._runs.load_many([*names]) if names else {}
            if stale := [str(run.key) for run in level if run.is_ended and await self._is_to_rerun(run, above, memo)]:
                return f"{named(stale)} is to run again"
            level = [run for key, run in above.items() if isinstance(run, Run) and key not in seen]
            seen.update(run.key for run in level)
            if not level or len(seen) > SETTLED_READ_MAX:
                return None
        return None

    async def _is_to_rerun(self, run: Run, above: Mapping[RunKey, Run | ForeignRun], memo: UpstreamMemo) -> bool:
        """Return whether an ended run is out of date and will be rerun for it, without anybody's help.

        One that would wait for a failed run is not about to, nor is one whose rerun was rejected: what is below them
        would wait for ever.
        """
        if run.outcome is Outcome.CANCELLED or not _differs(run, above):
            return False
        version = await self._configs.current(run.key.pipeline)
        schedule = version.pipeline.schedule(run.key.schedule) if version else None
        if version is None or schedule is None or version.pipeline.dry_run:
            return False
        gate, current = await self._current(run, schedule)
        changed = changed_upstreams(run, current)
        if not changed or signature_of(changed) == run.upstream_reported or await self._needs_help(gate, memo):
            return False
        wants = any(on_rerun(schedule, name) is OnRerun.RERUN for name in changed)
        return gate.is_followed or (wants and run.spent.drift < limits(version.pipeline).max_drift_reruns)

    async def _is_blocked(self, run: Run, memo: UpstreamMemo, depth: int = 0) -> bool:
        """Return whether a run waits at its gate for runs that do not complete without anybody's help."""
        if not run.is_at_gate or depth > PATH_MAX:
            return False
        if run.key not in memo.blocked:
            schedule = await self._schedule_of(run)
            memo.blocked[run.key] = schedule is None or await self._needs_help(
                await self.gate(run.key, schedule, memo), memo, depth
            )
        return memo.blocked[run.key]

    async def _schedule_of(self, run: Run) -> Schedule | None:
        """Return the schedule that a run began under; None if it cannot be read, so that the run waits."""
        try:
            version = await self._configs.get(run.key.pipeline, run.config_hash)
        except Rejected:
            return None
        return version.pipeline.schedule(run.key.schedule)

    async def _needs_help(self, gate: GateResult, memo: UpstreamMemo, depth: int = 0) -> bool:
        """Return whether a gate stays blocked until somebody reruns or creates an upstream run."""
        for item in gate.items:
            if item.needs_help([run.key for run in _active(item) if await self._is_blocked(run, memo, depth + 1)]):
                return True
        return False

    async def _requested(self, runs: Collection[Run]) -> list[str]:
        """Return the runs with a rerun request that is not answered, however long a pause holds it."""
        requests = await self._requests.reruns_of([run.key for run in runs])
        found: list[str] = []
        for run in runs:
            request = requests.get(run.key)
            if request and _is_open(run, request) and await self._is_answered_some_day(run.key):
                found.append(str(run.key))
        return found

    async def _is_answered_some_day(self, key: RunKey) -> bool:
        """Return whether a worker answers a rerun request: not in dry run, or for a period of another grain."""
        version = await self._configs.current(key.pipeline)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if version is None or schedule is None or version.pipeline.dry_run:
            return False
        return schedule.grain is None or wrong_grain(key.period, schedule) is None


def _active(item: ItemResult) -> list[Run]:
    return [each.run for each in item.runs if isinstance(each.run, Run) and each.standing is Standing.ACTIVE]


def _differs(run: Run, above: Mapping[RunKey, Run | ForeignRun]) -> bool:
    """Return whether an upstream run that the job was started on has another attempt now."""
    attempts = (UpstreamRun(key=key, run=each) for key, each in above.items())
    return any(run.started_after.get(str(each.key), each.attempt) != each.attempt for each in attempts)


def _is_open(run: Run, request: RerunRequest) -> bool:
    """Return whether a request is not answered. One that is older than the attempt was, or never will be."""
    asked_at = parse_rfc3339(request.requested_at)
    return asked_at is not None and asked_at >= run.attempt_began_at and request.identity not in run.handled
