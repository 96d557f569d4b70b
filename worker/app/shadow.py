"""The wiring of shadow mode: any kind of worker beside the system in charge, deciding everything and doing nothing."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from worker.app.environment import Platform, Resources, WorkerDeps, no_duties
from worker.config.settings import AlertSettings, AwsSettings, Role, Settings
from worker.membership.clock_guard import ClockGuard
from worker.runtime.clock import Clock
from worker.store.shadow import ShadowTables

# Facts in, and decisions about them. No relay, no alerts, no queue of which each message is handled once; and no
# scheduler: the system in charge starts nothing by cron, and what is missing there is not ours to tell.
DUTIES: Final = frozenset({Role.ENGINE})


def shadow_settings(settings: Settings) -> Settings:
    """The settings of a worker that reaches nobody: what could be used to reach someone is not even read."""
    return replace(settings, duties=DUTIES, aws=AwsSettings(), people=AlertSettings())


class ShadowPlatform:
    """Another kind, on a store that keeps what it writes apart, without jobs, routes or queues."""

    def __init__(self, kind: Platform, clock: Clock) -> None:
        self._kind, self._clock = kind, clock
        self._tables = ShadowTables(kind.tables, clock)

    @property
    def group(self) -> str:
        return self._kind.group  # its rows are kept apart too, so the name may be the same

    @property
    def where(self) -> str:
        return f"{self._kind.where}, as a shadow"

    @property
    def tables(self) -> ShadowTables:
        return self._tables

    @property
    def guard(self) -> ClockGuard:
        return self._kind.guard

    def beater_tables(self) -> ShadowTables:
        return ShadowTables(self._kind.beater_tables(), self._clock)

    async def open(self, stack: AsyncExitStack) -> Resources:
        premises = await self._kind.open(stack)
        return Resources(place=shadow_deps(premises.place, self._tables))


def shadow_deps(place: WorkerDeps, tables: ShadowTables) -> WorkerDeps:
    """The same place without a way to act: no job can be started, no event leaves, nothing is written elsewhere."""
    return replace(
        place,
        tables=tables,
        routes=(),
        runners={},
        ways={},
        does=DUTIES,
        duties=no_duties,  # what keeps a file small belongs to the workers that are in charge of it
        ticker=None,
        rehearses=True,
    )
