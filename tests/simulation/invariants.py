"""The invariants, checked with every commit from what it writes, and with every job from what it really did."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.simulation.target import Job, Record, world_time
from tests.simulation.violations import Invariant, Verdicts
from tests.support.clock.manual import NOON
from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.events import Event, EventType
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import OnUnknownStart, Pipeline
from worker.core.model.rules import evaluate
from worker.core.model.values import Json
from worker.core.run.state import Budget, Outcome, Pause, Run, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.jobs.runner import StartRequest, Succeeded
from worker.store.repos.events import event_of
from worker.store.repos.pauses import pause_of
from worker.store.repos.probes.traits import trait_of
from worker.store.repos.run_rows import run_from_row
from worker.store.repos.sensors import sensor_of
from worker.store.repos.sla_watches import watch_from_row
from worker.store.table import ACTIVE, TTL, Delete, Key, Put, Row, TableName, Write

# How far the clocks of workers may be from the world's.
CLOCKS_AGREE: Final = timedelta(seconds=30)

# A day's deadline may be on the next day: a history does not wait for it.
SOON: Final = timedelta(hours=2)

# What is told when a run ends, by how it ended.
_TOLD: Final[Mapping[Outcome, frozenset[str]]] = {
    Outcome.SUCCEEDED: frozenset({EventType.JOB_COMPLETED}),
    Outcome.FAILED: frozenset({EventType.RETRY_EXHAUSTED, EventType.PIPELINE_EXCLUDED}),
    Outcome.EXHAUSTED: frozenset({EventType.VALIDATION_EXHAUSTED}),
    Outcome.NOT_STARTED: frozenset({EventType.RETRY_EXHAUSTED}),
    Outcome.START_UNKNOWN: frozenset({EventType.JOB_START_UNKNOWN}),
    Outcome.ORPHANED: frozenset({EventType.JOB_ORPHANED}),
    Outcome.CANCELLED: frozenset({EventType.RUN_CANCELLED}),
    Outcome.TIMED_OUT: frozenset({EventType.SFN_TIMEOUT}),
}
# Ends that say that no job of the attempt runs.
_NOTHING_RUNS: Final = frozenset({Outcome.NOT_STARTED, Outcome.CANCELLED, Outcome.TIMED_OUT})
# What is never told without the run's own row moving in the same commit.
_OF_THE_ROW: Final = frozenset({EventType.VALIDATION_PASSED, EventType.JOB_TRIGGERED, EventType.JOB_FAILED}).union(
    *_TOLD.values()
) - {EventType.PIPELINE_EXCLUDED}
_VERDICTS: Final[Mapping[str, Verdict]] = {
    EventType.SLA_MET: Verdict.MET,
    EventType.SLA_BREACH: Verdict.BREACHED,
    EventType.RELATIVE_SLA_BREACH: Verdict.BREACHED,
    EventType.SLA_WAIVED: Verdict.WAIVED,
}
_OUTSIDE_THE_BUDGETS: Final = frozenset({"replay", "upstream-replay"})
_WARNINGS: Final = frozenset({EventType.SLA_WARNING, EventType.RELATIVE_SLA_WARNING})


@dataclass(slots=True)
class Decision:
    """One commit, as far as runs are concerned."""

    runs: dict[RunKey, Row] = field(default_factory=dict[RunKey, Row])
    watches: dict[RunKey, Row] = field(default_factory=dict[RunKey, Row])
    events: dict[RunKey, list[Event]] = field(default_factory=lambda: defaultdict[RunKey, list[Event]](list))
    reruns: list[str] = field(default_factory=list[str])  # why, for each that is recorded

    def told(self, key: RunKey) -> list[str]:
        return [event.type for event in self.events.get(key, ())]


@dataclass(slots=True)
class Inspector:
    """Knows every row that matters as it was before the commit at hand."""

    pipelines: Mapping[str, Pipeline]
    record: Record
    verdicts: Verdicts
    grace: timedelta
    runs: dict[RunKey, Run] = field(default_factory=dict[RunKey, Run])
    watches: dict[RunKey, SlaWatch] = field(default_factory=dict[RunKey, SlaWatch])
    contents: dict[str, Mapping[str, Json]] = field(default_factory=dict[str, Mapping[str, Json]])
    rehearsed: set[RunKey] = field(default_factory=set[RunKey])
    pauses: dict[str, Pause] = field(default_factory=dict[str, Pause])  # by partition
    given_up: set[str] = field(default_factory=set[str])  # tokens of jobs that people were told to look after
    _rows: dict[RunKey, Row] = field(default_factory=dict[RunKey, Row])
    _requests: dict[RunKey, set[str]] = field(default_factory=lambda: defaultdict[RunKey, set[str]](set))
    _passed: set[RunKey] = field(default_factory=set[RunKey])  # runs whose rules held at least once
    _accepted: dict[RunKey, int] = field(default_factory=lambda: defaultdict[RunKey, int](int))
    _begun_by_hand: dict[RunKey, int] = field(default_factory=lambda: defaultdict[RunKey, int](int))
    _run_of_token: dict[str, str] = field(default_factory=dict[str, str])

    def committed(self, writes: Sequence[Write]) -> None:
        decision = Decision()
        for write in writes:
            self._sort(write, decision)
        for key, events in decision.events.items():
            self._check_events(key, events, decision)
        for key, row in decision.watches.items():
            self._check_watch(key, row, decision)
        for key, row in decision.runs.items():
            self._check_run(key, row, decision)

    def _sort(self, write: Write, decision: Decision) -> None:
        match write:
            case Put(table=TableName.CONTROL, row=row):
                self._sort_control(write.key, row, decision)
            case Put(table=TableName.EVENTS, row=row) if (stored := event_of(row)) and stored.out:
                event = stored.event
                named = keys.run_row_of(write.key.pk, f"{keys.TRIGGER}{event.schedule}#{event.period}")
                if named is not None:
                    decision.events[named[1]].append(event)
            case Put(table=TableName.RERUN, row=row):
                decision.reruns.append(str(row.get("reason")))
            case Delete(table=TableName.CONTROL, key=key) if key.sk == keys.PAUSE:
                self.pauses.pop(key.pk, None)
            case Delete(table=TableName.CONTROL, key=key):
                named = keys.run_row_of(key.pk, key.sk)
                if named is not None and named[0] is RowKind.TRIGGER:
                    self.runs.pop(named[1], None)
                    self._rows.pop(named[1], None)
                    self._accepted.pop(named[1], None)  # with the row goes the memory of what was answered
                    self._begun_by_hand.pop(named[1], None)
            case _:
                return

    def _sort_control(self, key: Key, row: Row, decision: Decision) -> None:
        if key.sk.startswith(keys.TRAIT):
            trait = trait_of(row)
            if trait is not None and trait.data is not None:
                self.contents[content_hash(trait.data)] = trait.data
            return
        if (sensor := sensor_of(row)) is not None:
            self.contents[content_hash(sensor.data)] = sensor.data
            return
        if key.sk == keys.PAUSE and (pause := pause_of(row)) is not None:
            self.pauses[key.pk] = pause
        named = keys.run_row_of(key.pk, key.sk)
        if named is None:
            return
        if key.sk.startswith(keys.DRY_RUN):
            self.rehearsed.add(named[1])
        elif key.sk.startswith(keys.TRIGGER):
            decision.runs[named[1]] = row
        elif key.sk.startswith(keys.SLA):
            decision.watches[named[1]] = row
        elif key.sk.startswith(keys.RERUN_REQUEST):
            self._requests[named[1]].add(f"{row.get('reason')} {row.get('requestedAt')} {row.get('id')}")

    # --- runs ---------------------------------------------------------------------------------------------------------

    def _check_run(self, key: RunKey, row: Row, decision: Decision) -> None:
        before, after = self.runs.get(key), run_from_row(row)
        assert isinstance(after, Run)
        self._check_versions(f"run {key}", before, after)
        self._check_lifetime(key, after, row)
        self._check_change(key, row)
        self._check_budgets(key, before, after, decision)
        if before is None or (after.state is State.TRIGGERING and before.state is not State.TRIGGERING):
            self._check_beginning(key)
        if after.is_ended and (before is None or not before.is_ended):
            self._check_end(key, after, decision)
        if after.state is State.TRIGGERING and (before is None or before.state is not State.TRIGGERING):
            self._check_pass(key, after, decision)
        self.runs[key], self._rows[key] = after, row

    def _check_beginning(self, key: RunKey) -> None:
        """A run or a job begins: it may."""
        pipeline, pause = self.pipelines[key.pipeline], self.pauses.get(keys.pipeline_pk(key.pipeline))
        is_paused = pause is not None and not pause.is_over(self._now() + CLOCKS_AGREE)
        self.verdicts.require(
            not is_paused, Invariant.NOTHING_BEGINS_IN_A_PAUSE, f"run {key} went on although {pause} is in force"
        )
        self.verdicts.require(
            not pipeline.dry_run, Invariant.REHEARSALS_TOUCH_NOTHING, f"run {key} is real, its pipeline is in dry run"
        )

    def _check_versions(self, what: str, before: Run | SlaWatch | None, after: Run | SlaWatch) -> None:
        expected = before.version + 1 if before else 1
        self.verdicts.require(
            after.version == expected,
            Invariant.VERSIONS_ONLY_RISE,
            f"{what} went from version {expected - 1} to {after.version}",
        )

    def _check_lifetime(self, key: RunKey, after: Run, row: Row) -> None:
        is_right = (TTL in row) == after.is_ended and (ACTIVE.partition in row) != after.is_ended
        what = f"run {key} is {after.state}: ttl {row.get(TTL)}, bucket {row.get(ACTIVE.partition)}"
        self.verdicts.require(is_right, Invariant.BOUNDED_LIFE, what)

    def _check_change(self, key: RunKey, row: Row) -> None:
        """A write that changes nothing but who wrote it is a wait that costs."""
        if key in self._rows:
            old = self._rows[key]
            changed = {name for name in {*row, *old} if row.get(name) != old.get(name)}
            what = f"run {key} was written though it only waits ({row.get('state')})"
            self.verdicts.require(changed - {"version", "owner"}, Invariant.WAITING_IS_FREE, what)

    def _check_budgets(self, key: RunKey, before: Run | None, after: Run, decision: Decision) -> None:
        job = self.pipelines[key.pipeline].job
        assert job is not None
        limits = {
            Budget.TRANSIENT: job.max_retries,
            Budget.CODE: job.max_code_retries,
            Budget.DRIFT: job.max_drift_reruns,
            Budget.MANUAL: job.max_manual_reruns,
        }
        over = [budget for budget, limit in limits.items() if after.spent.of(budget) > limit]
        self.verdicts.require(not over, Invariant.BUDGETS_ARE_EXACT, f"run {key} overspent {over}: {after.spent}")
        if before is not None:
            attempts = after.attempt - before.attempt
            charged = sum(after.spent.of(budget) - before.spent.of(budget) for budget in Budget)
            free = sum(reason in _OUTSIDE_THE_BUDGETS for reason in decision.reruns)
            self.verdicts.require(
                attempts in {0, 1} and charged + free == attempts == len(decision.reruns),
                Invariant.BUDGETS_ARE_EXACT,
                f"run {key}: {attempts} attempts began, {charged} were charged, {decision.reruns} recorded",
            )
        begun_by_hand = decision.told(key).count(EventType.TRIGGER_ACCEPTED)
        self._begun_by_hand[key] += begun_by_hand
        self.verdicts.require(
            self._begun_by_hand[key] <= 1 and (before is None or not begun_by_hand),
            Invariant.BUDGETS_ARE_EXACT,
            f"run {key} was begun by hand {self._begun_by_hand[key]} times, or although it existed",
        )
        self._accepted[key] += decision.told(key).count(EventType.RERUN_ACCEPTED)
        self.verdicts.require(
            self._accepted[key] <= len(self._requests[key]),
            Invariant.BUDGETS_ARE_EXACT,
            f"run {key}: {self._accepted[key]} reruns were accepted, {len(self._requests[key])} were asked for",
        )

    def _check_end(self, key: RunKey, after: Run, decision: Decision) -> None:
        assert after.outcome is not None
        told = [name for name in decision.told(key) if name in _TOLD[after.outcome]]
        self.verdicts.require(
            len(told) == 1, Invariant.EVERY_EXIT_IS_TOLD, f"run {key} ended ({after.outcome}) and told {told}"
        )
        alive = self._alive_unsaid(after)
        self.verdicts.require(
            not alive or after.outcome not in _NOTHING_RUNS,
            Invariant.EVERY_EXIT_IS_TOLD,
            f"run {key} ended ({after.outcome}) while {alive} of its last attempt runs",
        )
        watch = self.watches.get(key)
        if after.outcome is Outcome.SUCCEEDED and watch is not None:
            self.verdicts.require(
                not watch.is_deadline_open, Invariant.ONE_VERDICT, f"run {key} succeeded and its deadline is open"
            )

    def _alive_unsaid(self, ended: Run) -> list[str]:
        """The jobs of the last attempt that run on, without those beside the known one that people were told of."""
        now, known = asyncio.get_running_loop().time(), (ended.job or {}).get("id")
        alive = [job.id for job in self.record.by_token[ended.token] if job.is_alive(now)]
        return [id_ for id_ in alive if ended.token not in self.given_up or id_ == known]

    def _check_pass(self, key: RunKey, after: Run, decision: Decision) -> None:
        self._passed.add(key)
        self.verdicts.require(
            EventType.VALIDATION_PASSED in decision.told(key),
            Invariant.NO_START_ON_BAD_DATA,
            f"run {key} is about to start, and no pass is recorded",
        )
        data = {name: self.contents[known] for name, known in after.started_on.items() if known in self.contents}
        result = evaluate(self.pipelines[key.pipeline].rules, data, after.since)
        self.verdicts.require(
            result.passed and len(data) == len(after.started_on),
            Invariant.NO_START_ON_BAD_DATA,
            f"run {key} is about to start on {data}: {result.reason}",
        )

    # --- events -------------------------------------------------------------------------------------------------------

    def _check_events(self, key: RunKey, events: list[Event], decision: Decision) -> None:
        for event in events:
            if event.type in _OF_THE_ROW:
                what = f"{event.type} was told without the row of {key}"
                self.verdicts.require(key in decision.runs, Invariant.ONE_DECISION_ONE_COMMIT, what)
            if event.type in _VERDICTS or event.type in _WARNINGS:
                what = f"{event.type} was told without the watch of {key}"
                self.verdicts.require(key in decision.watches, Invariant.ONE_DECISION_ONE_COMMIT, what)
            if event.type in {EventType.JOB_ORPHANED, EventType.JOB_START_UNKNOWN}:
                self.given_up.add(str(event.detail.get("token")))

    # --- watches ------------------------------------------------------------------------------------------------------

    def _check_watch(self, key: RunKey, row: Row, decision: Decision) -> None:
        before, after = self.watches.get(key), watch_from_row(row)
        self._check_versions(f"watch {key}", before, after)
        told = [name for name in decision.told(key) if name in _VERDICTS]
        warned = [name for name in decision.told(key) if name in _WARNINGS]
        self._check_evaluation(key, before, after, decision)
        if before is not None and before.is_closed:
            self.verdicts.violated(Invariant.ONE_VERDICT, f"watch {key} moved after its verdict")
        is_new = after.verdict is not None and (before is None or before.verdict is None)
        # A person may waive the deadline of the evaluation after the run's own was judged.
        was_open = before is not None and before.evaluation_at is not None and before.evaluation_verdict is None
        is_waived = not is_new and was_open and after.evaluation_verdict is Verdict.WAIVED
        expected = [after.verdict] if is_new else [Verdict.WAIVED] if is_waived else []
        self.verdicts.require(
            [_VERDICTS[name] for name in told] == expected,
            Invariant.ONE_VERDICT,
            f"watch {key} came to {after.verdict} and told {told}",
        )
        is_first = (before is None or before.warned_at is None) and after.verdict is None
        self.verdicts.require(not warned or is_first, Invariant.ONE_VERDICT, f"watch {key} warned out of turn")
        if is_new and after.verdict in {Verdict.MET, Verdict.BREACHED}:
            self._check_truth(key, after, decision)
        self.watches[key] = after

    def _check_evaluation(self, key: RunKey, before: SlaWatch | None, after: SlaWatch, decision: Decision) -> None:
        """The deadline of the evaluation: one verdict, with its event, and no breach once the rules held."""
        told = decision.told(key).count(EventType.EVALUATION_SLA_BREACH)
        was, is_now = before.evaluation_verdict if before else None, after.evaluation_verdict
        is_breach = was is None and is_now is Verdict.BREACHED
        self.verdicts.require(
            (was is None or is_now is was) and told == is_breach,
            Invariant.ONE_VERDICT,
            f"the evaluation of {key} went from {was} to {is_now} and told {told} breaches",
        )
        has_held = key in self._passed
        if is_breach:
            is_due = after.evaluation_at is not None and self._now() >= after.evaluation_at - CLOCKS_AGREE
            self.verdicts.require(
                is_due and not has_held,
                Invariant.ONE_VERDICT,
                f"the evaluation of {key} was breached at {self._now()}, due {after.evaluation_at}, held {has_held}",
            )

    def _check_truth(self, key: RunKey, watch: SlaWatch, decision: Decision) -> None:
        run = self.runs.get(key)
        if key in decision.runs:
            self._check_judged_success(key, watch)
        elif watch.verdict is Verdict.MET:
            self.verdicts.violated(
                Invariant.ONE_VERDICT, f"watch {key} was met outside of the commit of its run's success"
            )
        elif run is not None and run.state is State.POLLING and run.since < _due(watch) - 2 * CLOCKS_AGREE:
            # The deadline's own time says nothing about a job that may just have ended: it must have been asked.
            job = self.record.jobs[str((run.job or {})["id"])]
            was_asked = world_time(job.asked_at) >= _due(watch) - CLOCKS_AGREE
            self.verdicts.require(
                was_asked, Invariant.ONE_VERDICT, f"watch {key} was breached without a look at {job.id}"
            )
        is_due = self._now() >= _due(watch) - CLOCKS_AGREE
        self.verdicts.require(
            watch.verdict is Verdict.MET or is_due or key in decision.runs,
            Invariant.ONE_VERDICT,
            f"watch {key} was breached before {watch.breach_at}",
        )

    def _check_judged_success(self, key: RunKey, watch: SlaWatch) -> None:
        ended = [
            job.end.ended_at
            for job in self.record.by_run[key.pipeline, key.schedule, str(key.period)]
            if isinstance(job.end, Succeeded) and job.end.ended_at is not None
        ]
        late = [at - _due(watch) for at in ended]
        met = any(by < CLOCKS_AGREE for by in late)
        breached = any(by > -CLOCKS_AGREE for by in late)
        is_true = met if watch.verdict is Verdict.MET else breached
        self.verdicts.require(
            is_true, Invariant.ONE_VERDICT, f"watch {key}: {watch.verdict}, but successes came {late}"
        )

    # --- jobs ---------------------------------------------------------------------------------------------------------

    def sent(self, request: StartRequest) -> None:
        """A start leaves a worker: its intent must be on the row."""
        about = request.context
        named = keys.run_row_of(keys.pipeline_pk(about.pipeline), f"{keys.TRIGGER}{about.schedule}#{about.period}")
        run = self.runs.get(named[1]) if named else None
        is_meant = run is not None and run.state in {State.TRIGGERING, State.STOPPING} and run.attempt == about.attempt
        what = f"a start of {about.pipeline} {about.period} was sent, its row says {run.state if run else None}"
        self.verdicts.require(is_meant, Invariant.NO_START_ON_BAD_DATA, what)

    def begins(self, job: Job) -> None:
        """A job begins at its target: no other of its token may exist, none of its run may be alive."""
        now = asyncio.get_running_loop().time()
        owner = self._run_of_token.setdefault(job.token, job.run_id)
        may_repeat = self._may_repeat(job)
        self.verdicts.require(
            (may_repeat or not self.record.by_token[job.token]) and owner == job.run_id,
            Invariant.ONE_START_PER_TOKEN,
            f"{job.run} began a second job under {job.token}",
        )
        alive = [
            other.id
            for other in self.record.by_run[job.run]
            if other.is_alive(now)
            and other.token != job.token
            and other.token not in self.given_up
            and not (may_repeat and self.record.by_token[other.token][-1] is not other)
        ]
        self.verdicts.require(not alive, Invariant.ONE_ATTEMPT_ALIVE, f"{job.run} began {job.id} beside {alive}")

    def _may_repeat(self, job: Job) -> bool:
        """Its target recognises no repeat, and its pipeline wants a start without an answer to be repeated."""
        target = self.pipelines[job.run[0]].job
        return target is not None and target.on_unknown_start is OnUnknownStart.RESTART

    # --- time ---------------------------------------------------------------------------------------------------------

    def check_overdue(self) -> None:
        """Whatever had to happen by now has happened."""
        limit = self._now() - self.grace
        for key, run in self.runs.items():
            if not run.is_ended:
                due = run.timeout_at if run.window_ends_at is None else run.window_ends_at
                what = f"run {key} is {run.state} since {run.since}, its time was over at {due}"
                self.verdicts.require(due > limit, Invariant.BOUNDED_LIFE, what)
        for key, watch in self.watches.items():
            what = f"the deadline of {key} passed at {_open_until(watch)} without a verdict"
            self.verdicts.require(watch.is_closed or _open_until(watch) > limit, Invariant.ONE_VERDICT, what)

    @property
    def is_quiet(self) -> bool:
        """Nothing is left to do but to wait for deadlines that are hours away."""
        is_any_active = any(not run.is_ended and not run.is_at_gate for run in self.runs.values())
        soon = self._now() + SOON
        return not is_any_active and all(
            watch.is_closed or _open_until(watch) > soon for watch in self.watches.values()
        )

    def _now(self) -> datetime:
        return NOON + timedelta(seconds=asyncio.get_running_loop().time())


def _due(watch: SlaWatch) -> datetime:
    assert watch.breach_at is not None
    return watch.breach_at


def _open_until(watch: SlaWatch) -> datetime:
    """The first of its deadlines that has no verdict."""
    instants = (
        watch.breach_at if watch.is_deadline_open else None,
        watch.evaluation_at if watch.is_evaluation_open else None,
    )
    return min((at for at in instants if at is not None), default=datetime.max.replace(tzinfo=UTC))
