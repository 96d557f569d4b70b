"""Session wiring: what is created for each session, because nothing of it may outlive the session."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from consumers.delivery.retry import RetryPolicy
from scheduler.apscheduler_jobs import JobScheduler, JobScope
from scheduler.cron.cron_lease import STREAM as CRON
from scheduler.cron.cron_lease import CronRole, shard_of
from scheduler.cron.slices import ALL_SLICES
from scheduler.cron.starter import CronStarts
from scheduler.periodic import PeriodicTask
from scheduler.scheduler_lease import SchedulerRole
from scheduler.watchdog.checks.table import make_watchdog
from worker.app.archive import archive_task, summaries_task
from worker.app.components import EngineComponents, build_engine
from worker.app.dependencies import Readers, WorkerDeps
from worker.app.readers import ReaderFactory
from worker.app.runner_boundary import contain_probe_bugs, contain_runner_bugs
from worker.config.lease_roles import role_of
from worker.config.roles import Role
from worker.config.versions import PipelineVersions
from worker.engine.probes.standing import StandingProbes
from worker.membership.adoption import Adoption
from worker.membership.lease_coordinator import LeaseOffer
from worker.membership.orphan_finder import OrphanFinder
from worker.membership.peers import MemberStanding
from worker.membership.sessions import Member
from worker.runtime.concurrency import TrackedTaskGroup
from worker.runtime.error_boundary import ErrorBoundary
from worker.store.failure_counter import count_failures
from worker.store.repos.active_rows import ActiveRows
from worker.store.repos.installation import installed_at
from worker.store.repos.leases import Leases
from worker.store.table import Change

STARTS_MAX_S: Final = 4.0  # wait for the answers to starts that were sent, after no new work is accepted


class SessionWork:
    """Holds everything that acts in one session, from its engine to its relay."""

    def __init__(self, deps: WorkerDeps, member: Member, tasks: TrackedTaskGroup) -> None:
        self._deps, self._member, self._tasks = deps, member, tasks
        self._boundary = ErrorBoundary(deps.outputs.on_unexpected_error)
        # One for all components of the worker, so that a failure of the store is not blamed on any of them.
        self._tables, self._clock = count_failures(deps.store.tables), deps.store.clock
        self._tries = RetryPolicy(
            deps.store.clock, self._tables.ping, deps.tuning.retry_backoff, store_failures=self._store_failures
        )
        self._reading = ReaderFactory(deps, self._tables, member.keeper, self._tries)
        self._services: list[asyncio.Task[None]] = []
        self._parts: EngineComponents | None = None
        self.readers: Readers = {}
        self._dead_letters: Mapping[str, int] = {}
        self._may_watch: Callable[[], bool] = lambda: False

    @property
    def dead_letters_held(self) -> Mapping[str, int]:
        """Return how many dead letters each source has; nothing if another worker runs the watchdog."""
        return self._dead_letters if self._may_watch() else {}

    def _note_dead_letters(self, held: Mapping[str, int]) -> None:
        self._dead_letters = held

    @property
    def archive_lag_s(self) -> float | None:
        """Return how far behind the archive is; None if this session does not write it."""
        archiver = self._deps.sources.archiver
        return None if archiver is None else archiver.lag_s

    @property
    def runs_held(self) -> int:
        """Return how many runs this session holds."""
        return 0 if self._parts is None else len(self._parts.engine)

    def _store_failures(self) -> int:
        return self._tables.failures

    async def handle(self, change: Change) -> None:
        """Handle a record again, out of order; does nothing before the session has begun."""
        if self._parts is not None:
            await self._parts.router.handle(change)

    async def begin(self) -> None:
        deps, member = self._deps, self._member
        began_at = await self._tries.forever(lambda: installed_at(self._tables, deps.store.group, self._clock.now()))
        parts = self._parts = build_engine(
            self._tables,
            {kind: contain_runner_bugs(runner, self._boundary) for kind, runner in deps.outputs.runners.items()},
            MemberStanding(member.fence, member.peers, member.guard),
            self._clock,
            self._tasks,
            began_at=began_at,
            configs=PipelineVersions(self._tables, dry_run=deps.dry_run),
            limits=deps.tuning.limits,
            new_id=deps.store.new_id,
            log=deps.outputs.log,
            boundary=self._boundary,
            callback_url=deps.outputs.callback_url,
            hints=deps.outputs.hints,
            workers=lambda: max(1, len(member.peers.live_for(Role.ENGINE))),
            measures=deps.outputs.measures,
            probe_runners={
                kind: contain_probe_bugs(runner, self._boundary) for kind, runner in deps.outputs.probe_runners.items()
            },
        )
        readers = self.readers = self._reading.readers(parts.router, parts.resync)
        self._services = [self._tasks.create_task(deps.sources.wake_readers(readers), name="watcher")]
        offers = [
            *self._reading.offers(readers),
            *self._reading.replaying(readers, parts.router),
            *deps.sources.extra_leases(readers),
        ]
        if Role.ENGINE in deps.roles:
            offers += self._run_engine(parts)
            member.pulse.measure = lambda: self.runs_held
        for offer in offers:
            member.keeper.offer(replace(offer, role=role_of(offer.stream)))

    def _run_engine(self, parts: EngineComponents) -> list[LeaseOffer]:
        adoption = Adoption(
            parts.engine.adopt,
            self._clock,
            self._deps.outputs.log,
            is_held=parts.engine.holds,
            runs_held=lambda: self.runs_held,
        )
        self._services += [
            self._tasks.create_task(parts.engine.run(), name="timers"),
            self._tasks.create_task(adoption.run(), name="adoption"),
            self._tasks.create_task(parts.router.run(), name="pauses"),
        ]
        finder = self._finder(adoption)
        probes = StandingProbes(
            self._tables,
            parts.configs,
            parts.probes,
            self._clock,
            spawn=parts.engine.spawn_probe,
            holds=finder.holds,
            log=self._deps.outputs.log,
        )
        self._services.append(self._tasks.create_task(probes.run(), name="probes"))
        return [finder.offer(), *self._scheduling(parts)]

    async def finish(self) -> None:
        """Stop the timers, wait until the leases are released, and wait briefly for answers to starts."""
        for service in self._services:
            service.cancel()
        while self._member.keeper.held:
            await self._clock.sleep(0.05)
        await self._tasks.wait_for("start:", timeout_s=STARTS_MAX_S)
        # The remaining tasks wait for something far off; their rows show it, and another worker adopts them.
        self._tasks.end_all()

    def _finder(self, adoption: Adoption) -> OrphanFinder:
        return OrphanFinder(
            ActiveRows(self._tables),
            self._member.peers,
            self._clock,
            adoption.take_up,
            leases=self._deps.tuning.orphan_search.leases,
            pass_every_s=self._deps.tuning.orphan_search.pass_every_s,
        )

    def _scheduling(self, parts: EngineComponents) -> list[LeaseOffer]:
        if not self._deps.sources.schedules or Role.SCHEDULER not in self._deps.roles:
            return []

        def is_time_trusted() -> bool:
            # Everything that the scheduler does depends on the time.
            return self._member.guard.is_trusted

        cron = CronRole(partial(self._cron, parts), self._clock, is_time_trusted=is_time_trusted)
        self._services.append(self._tasks.create_task(cron.run(), name="cron"))
        watchdog = SchedulerRole(
            partial(self._watchdog, parts),
            self._clock,
            is_time_trusted=is_time_trusted,
            on_job=self._deps.outputs.on_job,
        )
        return [cron.offer(), watchdog.offer()]

    def _cron(self, parts: EngineComponents, jobs: JobScheduler) -> CronStarts:
        return CronStarts(
            self._tables,
            parts.engine,
            parts.configs,
            self._clock,
            jobs=jobs,
            log=self._deps.outputs.log,
            boundary=self._boundary,
        )

    def _watchdog(self, parts: EngineComponents, scope: JobScope) -> list[PeriodicTask]:
        self._dead_letters, self._may_watch = {}, scope.may_act
        watched = replace(
            self._deps.sources.watchdog,
            unheld_slices=self._unheld_slices,
            note_dead_letters=self._note_dead_letters,
        )
        watchdog = make_watchdog(
            self._tables,
            parts.engine,
            self._clock,
            watched,
            configs=parts.configs,
            watches=parts.watches,
            resync=parts.resync,
            may_act=scope.may_act,
        )
        archiver = self._deps.sources.archiver
        archiving = [] if archiver is None else [archive_task(archiver, self._clock, scope.may_act)]
        if (summaries := self._deps.sources.summaries) is not None:
            archiving.append(summaries_task(summaries, self._clock, scope.may_act))
        return [replace(task, run=self._boundary.around(task.run)) for task in (*watchdog.tasks(), *archiving)]

    async def _unheld_slices(self) -> Sequence[str]:
        """Return the slices of cron that no live worker holds."""
        leases = {lease.shard: lease for lease in await Leases(self._tables, self._deps.store.group).list(CRON)}
        await self._member.peers.look()
        held = {shard for shard, lease in leases.items() if lease.owner and not self._member.peers.is_over(lease.owner)}
        return sorted(set(map(shard_of, ALL_SLICES)) - held)
