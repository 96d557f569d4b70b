"""Mistakes one could make in the worker, each put in at one seam: what a simulation is worth shows on them."""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias

import pytest

from consumers.outbox import relay
from consumers.streams.low_water_mark import LowWaterMark
from tests.simulation.violations import Invariant
from worker.core.dependencies.gate import GateResult, ItemResult
from worker.core.dependencies.graph import DependencyGraph
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.events import JobEvent
from worker.core.model.pipeline import Job, PipelineId, Sla
from worker.core.probes.trait import Trait
from worker.core.run import polling
from worker.core.run.context import Context, limits
from worker.core.run.decision import Decision
from worker.core.run.effects import JudgeDeadline, StartJob
from worker.core.run.endings import after_failure, begin_stop
from worker.core.run.facts import UpstreamEnded
from worker.core.run.state import AfterStop, Run
from worker.core.sla import watch as slawatch
from worker.engine.commits import Commits
from worker.engine.decisions import Decisions
from worker.engine.engine import Engine
from worker.engine.intake.dependents import Dependents
from worker.engine.probe_results import ProbeResults
from worker.engine.upstreams import UpstreamReader
from worker.engine.waiting_probes import WaitingProbes
from worker.membership import held_lease, lease_coordinator
from worker.membership.orphan_finder import PASS_EVERY_S, TRY_AGAIN_S, OrphanFinder
from worker.store.repos import run_rows
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.runs import Runs
from worker.store.rows import expiry
from worker.store.table import TTL, Change, ChangeKind, Key, Put, TableName, Update, Value

Patch: TypeAlias = pytest.MonkeyPatch
Bug: TypeAlias = Callable[[Patch], None]
# The seams are private: what stands in for them is typed as loosely as a patch is.
Anything: TypeAlias = Any


def drop_the_version_condition(patch: Patch) -> None:
    async def put(self: Anything, run: Run, condition: object, extra: Anything) -> Run:
        saved = replace(run, version=run.version + 1)
        await self._tables.commit(Put(TableName.CONTROL, run_to_row(saved)), *extra)
        return saved

    patch.setattr(Runs, "_put", put)


def act_before_the_commit(patch: Patch) -> None:
    make, of_run = Engine.__init__, Commits.of_run

    def init(self: Anything, *args: Anything, **options: Anything) -> None:
        make(self, *args, **options)
        options["commits"].engine = self

    async def act_first(
        self: Anything, before: Anything, after: Anything, decision: Decision, *rest: Anything, **more: Anything
    ) -> Anything:
        starts = [action for action in decision.actions if isinstance(action, StartJob)]
        for start in starts:
            version = await self.engine._configs.get(after.key.pipeline, after.config_hash)
            self.engine._dispatcher.dispatch(start, after, version.pipeline)
        if starts:
            await self.engine._clock.sleep(3.0)  # the commit takes as long as the start
        return await of_run(self, before, after, decision, *rest, **more)

    patch.setattr(Engine, "__init__", init)
    patch.setattr(Commits, "of_run", act_first)


def forget_fencing_on_release(patch: Patch) -> None:
    async def live(held: Anything, holder: Anything, clock: Anything) -> None:
        try:
            await held_lease.live(held, holder, clock)
        finally:
            key = Key(held._leases._pk, keys.lease_sk(held.lease.stream, held.lease.shard))
            freed = Update(
                table=TableName.CONTROL,
                key=key,
                set={"epoch": held.lease.epoch + 1},
                remove=frozenset({"owner"}),
            )
            await held._leases._tables.commit(freed)

    patch.setattr(lease_coordinator, "live", live)


def checkpoint_early(patch: Patch) -> None:
    """Forget a record when it is read, not when it is done."""

    def nothing(_: LowWaterMark, __: str) -> None:
        return

    patch.setattr(LowWaterMark, "take", nothing)
    patch.setattr(LowWaterMark, "done", nothing)


def double_the_budgets(patch: Patch) -> None:
    def job(case: Context) -> Job:
        right = limits(case.pipeline)
        return replace(
            right,
            max_retries=2 * right.max_retries,
            max_code_retries=2 * right.max_code_retries,
            max_drift_reruns=2 * right.max_drift_reruns,
        )

    patch.setattr(Context, "job", property(job))


def judge_by_the_time_only(patch: Patch) -> None:
    async def judge(self: Anything, key: keys.RunKey) -> None:
        await self._watches.handle(key, None)

    patch.setattr(Engine, "judge_deadline", judge)


def leave_the_run_id_out_of_the_token(patch: Patch) -> None:
    def token(run: Run) -> str:
        return "il-" + hashlib.sha256(f"{run.key}#{run.attempt}".encode()).hexdigest()[:40]

    patch.setattr(Run, "token", property(token))


def retry_without_a_stop(patch: Patch) -> None:
    def begin(case: Context, after: AfterStop, reason: str, *, rerun_reason: str = "") -> Decision:
        if after is AfterStop.RETRY:
            return after_failure(case, None, reason, JobEvent.JOB_POLL_EXHAUSTED)
        return begin_stop(case, after, reason, rerun_reason=rerun_reason)

    patch.setattr(polling, "begin_stop", begin)


def relay_what_is_not_ours(patch: Patch) -> None:
    def is_outgoing(change: Change) -> bool:
        return change.kind is ChangeKind.INSERT and keys.stamp_of(change.key.sk) is not None

    patch.setattr(relay, "is_outgoing", is_outgoing)


def judge_outside_of_the_runs_commit(patch: Patch) -> None:
    of_run = Commits.of_run

    async def judge_after(
        self: Anything, before: Anything, after: Anything, decision: Decision, *rest: Anything, **more: Anything
    ) -> Anything:
        key, now = more["key"], more["now"]
        kept = Decision.of(*(effect for effect in decision.effects if not isinstance(effect, JudgeDeadline)))
        watch = more.pop("watch")
        is_judged = kept != decision
        run, watch = await of_run(self, before, after, kept, *rest, watch=None if is_judged else watch, **more)
        for judged in (effect for effect in decision.effects if isinstance(effect, JudgeDeadline)):
            found = await self._watches.load(key)
            verdict = slawatch.decide(found, Sla(), slawatch.RunSucceeded(judged.succeeded_at), now)
            moved = slawatch.evolve(found, key, verdict, now, self._session)
            watch = await self.of_watch(found, moved, verdict, run_version=run.version if run else 0, key=key, now=now)
        return run, watch

    patch.setattr(Commits, "of_run", judge_after)


def let_active_rows_expire(patch: Patch) -> None:
    where_listed: Callable[[Run, str, str], dict[str, Value]] = run_rows._where_listed  # pyright: ignore[reportPrivateUsage]  the seam of this bug

    def expiring(run: Run, pk: str, sk: str) -> Mapping[str, Value]:
        return {TTL: expiry(run.created_at, timedelta(hours=5)), **where_listed(run, pk, sk)}

    patch.setattr(run_rows, "_where_listed", expiring)


def adopt_by_one_index_read(patch: Patch) -> None:
    """Read the buckets once, when they are taken, and trust that the index knew of everything."""

    async def hold(self: Anything, held: Anything) -> None:
        is_read = False
        while not held.is_stopping:
            with suppress(RetryLater):
                if not is_read:
                    await self._pass(held)
                    is_read = True
            await held.nap(TRY_AGAIN_S if not is_read else PASS_EVERY_S)

    patch.setattr(OrphanFinder, "hold", hold)


def look_at_no_inputs_of_a_success(patch: Patch) -> None:
    async def as_asked(self: Anything, asked: Anything) -> Anything:
        return asked

    patch.setattr(Decisions, "_with_inputs", as_asked)


# --- pipelines that run after others ----------------------------------------------------------------------------------


def start_when_some_upstream_is_complete(patch: Patch) -> None:
    """An early start: one complete item, or one complete hour of a day, is taken for all."""

    def some_item(gate: GateResult) -> bool:
        return any(item.is_passed for item in gate.items)

    def some_run(item: ItemResult) -> bool:
        return any(run.is_complete for run in item.runs)

    patch.setattr(GateResult, "is_passed", property(some_item))
    patch.setattr(ItemResult, "is_passed", property(some_run))


def wake_one_downstream_only(patch: Patch) -> None:
    """A lost wake-up: the end of a run is passed on to the first pipeline that runs after it."""
    downstreams = DependencyGraph.downstreams

    def first(self: DependencyGraph, pipeline: PipelineId) -> tuple[PipelineId, ...]:
        return tuple(downstreams(self, pipeline))[:1]

    patch.setattr(DependencyGraph, "downstreams", first)


def rerun_for_each_upstream(patch: Patch) -> None:
    """A double rerun: a run follows each upstream run that completes again, and does not wait for the others."""

    async def at_rest(_: Anything, __: GateResult) -> None:
        return None

    def always(_: ItemResult) -> bool:
        return True

    patch.setattr(UpstreamReader, "_unsettled", at_rest)
    patch.setattr(ItemResult, "is_at_rest", property(always))


def forget_what_changed_while_the_job_ran(patch: Patch) -> None:
    """A forgotten rerun: nobody compares a run with its upstreams when it ends."""

    async def nothing(_: Anything, __: keys.RunKey) -> None:
        return None

    patch.setattr(Dependents, "_compare", nothing)


def forget_reruns_above(patch: Patch) -> None:
    """A forgotten rerun: a run that has ended is out of the upstreams' reach."""
    ended = UpstreamReader.ended

    async def unchanged(self: Anything, run: Run, *rest: Anything) -> UpstreamEnded:
        return replace(await ended(self, run, *rest), upstreams=dict(run.started_after))

    patch.setattr(UpstreamReader, "ended", unchanged)


def use_results_for_ever(patch: Patch) -> None:
    """A stale result: the time to live of a probe is ignored."""

    def is_valid(self: Trait, _: datetime) -> bool:
        return self.data is not None

    patch.setattr(Trait, "is_valid", is_valid)


def start_without_confirmation(patch: Patch) -> None:
    """A start that nothing confirms: what a probe says right before it is not looked at."""

    async def confirm(_: Anything, *__: Anything) -> None:
        return None

    patch.setattr(WaitingProbes, "confirm", confirm)


def ask_whenever_a_run_begins_to_wait(patch: Patch) -> None:
    """Too many requests: nobody remembers when a probe was sent last."""

    def never(_: Anything, *__: Anything) -> timedelta:
        return timedelta()

    patch.setattr(ProbeResults, "too_early_by", never)


# Which invariants a bug violates; the first seed that shows it depends on what it takes.
BUGS: Final[Mapping[Bug, frozenset[Invariant]]] = {
    drop_the_version_condition: frozenset({Invariant.VERSIONS_ONLY_RISE}),
    act_before_the_commit: frozenset({Invariant.NO_START_ON_BAD_DATA}),
    forget_fencing_on_release: frozenset({Invariant.VERSIONS_ONLY_RISE}),
    checkpoint_early: frozenset({Invariant.NOTHING_IS_LOST}),
    double_the_budgets: frozenset({Invariant.BUDGETS_ARE_EXACT}),
    judge_by_the_time_only: frozenset({Invariant.ONE_VERDICT}),
    leave_the_run_id_out_of_the_token: frozenset({Invariant.ONE_START_PER_TOKEN}),
    retry_without_a_stop: frozenset({Invariant.ONE_ATTEMPT_ALIVE}),
    relay_what_is_not_ours: frozenset({Invariant.NOTHING_IS_LOST}),
    judge_outside_of_the_runs_commit: frozenset({Invariant.ONE_VERDICT}),
    let_active_rows_expire: frozenset({Invariant.BOUNDED_LIFE}),
    adopt_by_one_index_read: frozenset({Invariant.BOUNDED_LIFE, Invariant.ONE_VERDICT}),
    look_at_no_inputs_of_a_success: frozenset({Invariant.INPUTS_STAY_OR_SOMEBODY_KNOWS}),
}
# The same for pipelines that run after others, which only some histories have.
GRAPH_BUGS: Final[Mapping[Bug, frozenset[Invariant]]] = {
    start_when_some_upstream_is_complete: frozenset({Invariant.NO_EARLY_START}),
    wake_one_downstream_only: frozenset({Invariant.NO_STALE_RESULT}),
    rerun_for_each_upstream: frozenset({Invariant.ONE_RERUN}),
    forget_what_changed_while_the_job_ran: frozenset({Invariant.NO_STALE_RESULT}),
    forget_reruns_above: frozenset({Invariant.NO_STALE_RESULT}),
}
# The same for pipelines that wait for probes.
PROBE_BUGS: Final[Mapping[Bug, frozenset[Invariant]]] = {
    use_results_for_ever: frozenset({Invariant.NO_START_ON_STALE_PROBE}),
    start_without_confirmation: frozenset({Invariant.NO_START_ON_STALE_PROBE}),
    ask_whenever_a_run_begins_to_wait: frozenset({Invariant.ONE_REQUEST_PER_INTERVAL}),
}
