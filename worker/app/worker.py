"""The wiring: every adapter is made here, joined here, and ended here in order.

Everything that must have one holder is a lease; what a session held when it was lost begins anew from the rows in the
next one. Queues need no lease: whoever takes a message has it.
"""

import asyncio
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib.metadata import version
from typing import Final

from worker.app.environment import Platform, Resources
from worker.app.session import SessionWork
from worker.app.telemetry import Telemetry, counting
from worker.config.settings import Role, Settings
from worker.membership.heartbeat_threads import ThreadBeater
from worker.membership.sessions import GroupSettings, Member, Membership, session_ids
from worker.runtime import gc_tuning
from worker.runtime.clock import Clock
from worker.runtime.concurrency import TrackedTaskGroup
from worker.runtime.logs import logger
from worker.store.failure_counter import FailureCountingTables, count_failures

# Duties whose work is shared out by leases; the others only take messages.
LEASED: Final = frozenset({Role.ENGINE, Role.SCHEDULER, Role.RELAY})

_log = logger()


class Worker:
    """One worker process. `run` it once; `stop` ends it in order, within 25 s."""

    def __init__(self, kind: Platform, settings: Settings, clock: Clock, telemetry: Telemetry) -> None:
        self._kind, self._settings, self._clock, self._telemetry = kind, settings, clock, telemetry
        self._stopping, self._hurrying = asyncio.Event(), asyncio.Event()
        self._membership = Membership(
            GroupSettings(
                name=kind.group,
                program=version("interlock"),
                timing=settings.timing,
                duties=frozenset(settings.duties & LEASED),
            ),
            tables=FailureCountingTables(kind.tables).report_to(telemetry.store, clock),
            beater=ThreadBeater(lambda: FailureCountingTables(kind.beater_tables()).report_to(telemetry.store, clock)),
            clock=clock,
            new_session_id=session_ids(socket.gethostname()),
            guard=kind.guard,
            notify=telemetry.notice,
            availability=telemetry.store,
        )

    def stop(self) -> None:
        """Take nothing more, finish what is in hand, give everything up, end the session. Said again: finish none."""
        is_hurried = self._stopping.is_set()
        _log.info("worker.stopping", is_hurried=is_hurried)
        if is_hurried:
            self._hurrying.set()
        self._telemetry.stop()
        self._stopping.set()
        self._membership.stop()

    def stop_once(self) -> None:
        """Stop in order, unless that is under way."""
        if not self._stopping.is_set():
            self.stop()

    async def run(self) -> None:
        """Work until stopped. Raises `ConfigError` and `RetryLater` if the store cannot be opened."""
        async with AsyncExitStack() as stack:
            await self._kind.tables.start()
            stack.push_async_callback(self._kind.tables.stop)
            premises = await self._kind.open(stack)
            tables = count_failures(premises.place.tables).report_to(self._telemetry.store, self._clock)
            routes = [*premises.place.routes, counting(self._telemetry.told)]
            place = replace(premises.place, tables=tables, routes=routes)
            premises = replace(premises, place=place)
            await self._telemetry.open(
                stack,
                queues=premises.queues,
                needs_session=self._needs_session,
                alert_failures=premises.alert_failures,
            )
            gc_tuning.freeze_startup_objects()
            duties = sorted(self._settings.duties)
            _log.info("worker.started", store=self._kind.where, version=version("interlock"), duties=duties)
            await self._serve(premises)
        _log.info("worker.stopped")

    @property
    def _needs_session(self) -> bool:
        return bool(self._settings.duties & LEASED)

    async def _serve(self, premises: Resources) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(run(), name=name) for name, run in premises.beside.items()]
            beside.append(tasks.create_task(self._telemetry.run(), name="telemetry"))
            queues = [tasks.create_task(queue.run(), name=f"queue:{queue.name}") for queue in premises.queues]
            stopping = tasks.create_task(self._stop_queues(premises), name="stop-queues")
            await self._work_in_sessions(premises)
            await asyncio.gather(*queues)
            for task in (*beside, stopping):
                task.cancel()

    async def _stop_queues(self, premises: Resources) -> None:
        for asked in (self._stopping, self._hurrying):
            await asked.wait()
            for queue in premises.queues:
                queue.stop()

    async def _work_in_sessions(self, premises: Resources) -> None:
        if self._needs_session:
            await self._membership.serve(lambda member: self._work(member, premises))
        else:
            await self._stopping.wait()

    async def _work(self, member: Member, premises: Resources) -> None:
        """One session: everything of it runs until the session ends or is asked to."""
        async with TrackedTaskGroup() as tasks:
            session = SessionWork(premises.place, member, tasks)
            with self._telemetry.watching(session, member):
                await session.begin()
                await member.stopping.wait()
                await session.finish()
