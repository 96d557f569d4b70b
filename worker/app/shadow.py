"""The wiring of shadow mode: any kind of worker beside the system in charge, deciding everything and doing nothing."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from worker.app.environment import Kind, Premises, Workplace, no_duties
from worker.config.settings import AwsSettings, Duty, PeopleSettings, Settings
from worker.membership.clock_guard import ClockGuard
from worker.runtime.clock import Clock
from worker.store.shadow import ShadowTables

# Facts in, and decisions about them. No relay, no alerts, no queue of which each message is handled once; and no
# scheduler: the system in charge starts nothing by cron, and what is missing there is not ours to tell.
DUTIES: Final = frozenset({Duty.ENGINE})


def shadow_settings(settings: Settings) -> Settings:
    """The settings of a worker that reaches nobody: what could be used to reach someone is not even read."""
    return replace(settings, duties=DUTIES, aws=AwsSettings(), people=PeopleSettings())


class ShadowKind:
    """Another kind, on a store that keeps what it writes apart, without jobs, routes or queues."""

    def __init__(self, kind: Kind, clock: Clock) -> None:
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

    async def open(self, stack: AsyncExitStack) -> Premises:
        premises = await self._kind.open(stack)
        return Premises(place=shadow_workplace(premises.place, self._tables))


def shadow_workplace(place: Workplace, tables: ShadowTables) -> Workplace:
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
