"""The worker process: opens the platform, works in sessions until stopped, closes all in order.

A lease protects work that must have one holder; the next session restores what a lost one held from the rows. Queues
need no lease: the consumer that receives a message owns it.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from typing import Final

from worker.app.archive import open_archiver, open_summaries, with_archiver, with_summaries
from worker.app.platforms import Platform, Resources
from worker.app.session import SessionWork
from worker.app.telemetry import Telemetry, counting
from worker.app.web import open_web, with_callbacks
from worker.config.roles import Role
from worker.config.settings import Settings
from worker.membership.heartbeat_threads import ThreadBeater
from worker.membership.sessions import GroupSettings, Member, Membership, session_ids
from worker.runtime import gc_tuning
from worker.runtime.clock import Clock
from worker.runtime.concurrency import TrackedTaskGroup
from worker.runtime.logs import logger
from worker.store.failure_counter import FailureCountingTables, count_failures

# Roles whose work is divided by leases; the others only consume queues.
LEASED: Final = frozenset({Role.ENGINE, Role.SCHEDULER, Role.RELAY})

_log = logger()


class Worker:
    """One worker process. Call `run` once; `stop` ends it in order, within 25 s."""

    def __init__(self, platform: Platform, settings: Settings, clock: Clock, telemetry: Telemetry) -> None:
        self._platform, self._settings, self._clock, self._telemetry = platform, settings, clock, telemetry
        self._stopping, self._hurrying = asyncio.Event(), asyncio.Event()
        self._say_begun: Callable[[], None] | None = None
        self._has_worked = False  # in an earlier session
        self._membership = Membership(
            GroupSettings(
                name=platform.group,
                program=version("interlock"),
                timing=settings.timing,
                roles=frozenset(settings.roles & LEASED),
            ),
            tables=FailureCountingTables(platform.tables).report_to(telemetry.store, clock, telemetry),
            beater=ThreadBeater(
                lambda: FailureCountingTables(platform.beater_tables()).report_to(telemetry.store, clock)
            ),
            clock=clock,
            new_session_id=session_ids(socket.gethostname()),
            guard=platform.guard,
            witness=platform.witness,
            notify=telemetry.notice,
            availability=telemetry.store,
        )

    def when_begun(self, say: Callable[[], None]) -> None:
        """Have `say` called once: when the first session has begun, or at once for roles that need none."""
        self._say_begun = say

    def stop(self) -> None:
        """Stop in order: take no new work, finish current work, release leases.

        A second call stops without finishing the current work.
        """
        is_hurried = self._stopping.is_set()
        _log.info("worker.stopping", is_hurried=is_hurried)
        if is_hurried:
            self._hurrying.set()
        self._telemetry.stop()
        self._stopping.set()
        self._membership.stop()

    def stop_once(self) -> None:
        """Stop in order, unless already stopping."""
        if not self._stopping.is_set():
            self.stop()

    async def run(self) -> None:
        """Work until stopped. Raises `ConfigError` and `RetryLater` if the store cannot be opened."""
        async with AsyncExitStack() as stack:
            await self._platform.tables.start()
            stack.push_async_callback(self._platform.tables.stop)
            resources = self._with_telemetry(await self._platform.open(stack))
            await self._telemetry.open(
                stack,
                queues=resources.queues,
                needs_session=self._needs_session,
                alert_failures=resources.alert_failures,
                alert_measures=resources.alert_measures,
            )
            resources = await self._with_archive(stack, await self._with_web(stack, resources))
            gc_tuning.freeze_startup_objects()
            roles = sorted(self._settings.roles)
            _log.info("worker.started", store=self._platform.where, version=version("interlock"), roles=roles)
            await self._serve(resources)
        _log.info("worker.stopped")

    async def _with_web(self, stack: AsyncExitStack, resources: Resources) -> Resources:
        """Serve the API, if the settings give an address; jobs then get an address for their reports."""
        deps, served = resources.deps, None
        if self._settings.web.listen:
            served = await open_web(
                stack,
                self._settings,
                tables=deps.store.tables,
                clock=self._clock,
                health=self._telemetry,
                meters=self._telemetry.meters,
            )
        if Role.ENGINE in deps.roles and not self._settings.shadow:
            outputs = await with_callbacks(deps.outputs, self._settings, deps.store.tables, served)
            deps = replace(deps, outputs=outputs)
        return replace(resources, deps=deps)

    async def _with_archive(self, stack: AsyncExitStack, resources: Resources) -> Resources:
        """Archive history and export summaries, if the settings say where and the scheduler may run here."""
        deps, settings, tables = resources.deps, self._settings, resources.deps.store.tables
        if Role.SCHEDULER not in deps.roles or settings.shadow:
            return resources
        if (place := settings.archive.target) is not None:
            archiver = await open_archiver(stack, settings, place, tables=tables, clock=self._clock)
            deps = with_archiver(deps, archiver)
        if (place := settings.archive.summaries) is not None:
            summaries = await open_summaries(stack, settings, place, tables=tables, clock=self._clock)
            deps = with_summaries(deps, summaries)
        return replace(resources, deps=deps)

    def _with_telemetry(self, resources: Resources) -> Resources:
        """Add measures of store calls, delivered events and changes of runs."""
        deps = resources.deps
        tables = count_failures(deps.store.tables).report_to(self._telemetry.store, self._clock, self._telemetry)
        routes = [*deps.outputs.routes, counting(self._telemetry.told)]
        outputs = replace(
            deps.outputs,
            routes=routes,
            measures=self._telemetry,
            on_job=self._telemetry.job_told,
            on_sent=self._telemetry.event_sent,
        )
        return replace(resources, deps=replace(deps, store=replace(deps.store, tables=tables), outputs=outputs))

    @property
    def _needs_session(self) -> bool:
        return bool(self._settings.roles & LEASED)

    async def _serve(self, resources: Resources) -> None:
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(run(), name=name) for name, run in resources.background_tasks.items()]
            background.append(tasks.create_task(self._telemetry.run(), name="telemetry"))
            queues = [tasks.create_task(queue.run(), name=f"queue:{queue.name}") for queue in resources.queues]
            stopping = tasks.create_task(self._stop_queues(resources), name="stop-queues")
            await self._work_in_sessions(resources)
            await asyncio.gather(*queues)
            if not self._hurrying.is_set():
                await self._telemetry.send_last()
            for task in (*background, stopping):
                task.cancel()

    async def _stop_queues(self, resources: Resources) -> None:
        for asked in (self._stopping, self._hurrying):
            await asked.wait()
            for queue in resources.queues:
                queue.stop()

    async def _work_in_sessions(self, resources: Resources) -> None:
        if self._needs_session:
            await self._membership.serve(lambda member: self._work(member, resources))
        else:
            self._note_begun()
            await self._stopping.wait()

    def _note_begun(self) -> None:
        say, self._say_begun = self._say_begun, None
        if say is not None:
            say()

    async def _work(self, member: Member, resources: Resources) -> None:
        """Work in one session until it ends or the worker is asked to stop."""
        if self._has_worked:
            # All that the lost session held is garbage in cycles, and its adoption froze it.
            gc_tuning.freeze_again()
        self._has_worked = True
        async with TrackedTaskGroup() as tasks:
            session = SessionWork(resources.deps, member, tasks)
            with self._telemetry.watching(session, member):
                await session.begin()
                self._note_begun()
                await member.stopping.wait()
                await session.finish()
