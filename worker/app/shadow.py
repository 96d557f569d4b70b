"""Shadow mode: a worker alongside the system in charge that decides and records, and starts nothing."""

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from worker.app.dependencies import WorkerDeps, no_extra_leases
from worker.app.platforms import Platform, Resources
from worker.config.roles import Role
from worker.config.settings import AlertSettings, AwsSettings, Settings
from worker.membership.clock_guard import ClockGuard
from worker.runtime.clock import Clock
from worker.runtime.process_identity import ProcessWitness
from worker.store.shadow import ShadowTables

# Only the engine: no relay, no alerts and no queues, because only one consumer gets each message. No scheduler either:
# the system in charge starts nothing by cron, and a shadow must not report its missing runs.
SHADOW_ROLES: Final = frozenset({Role.ENGINE})


def shadow_settings(settings: Settings) -> Settings:
    """Return settings without anything that could reach another system or a person."""
    return replace(settings, roles=SHADOW_ROLES, aws=AwsSettings(), alerts=AlertSettings())


class ShadowPlatform:
    """Wraps a platform without its jobs, routes and queues, on a store that keeps its own rows separate."""

    def __init__(self, platform: Platform, clock: Clock) -> None:
        self._platform, self._clock = platform, clock
        self._tables = ShadowTables(platform.tables, clock)

    @property
    def group(self) -> str:
        return self._platform.group  # its rows are separate too, so the name may be the same

    @property
    def where(self) -> str:
        return f"{self._platform.where}, as a shadow"

    @property
    def tables(self) -> ShadowTables:
        return self._tables

    @property
    def guard(self) -> ClockGuard:
        return self._platform.guard

    @property
    def witness(self) -> ProcessWitness | None:
        return self._platform.witness

    def beater_tables(self) -> ShadowTables:
        return ShadowTables(self._platform.beater_tables(), self._clock)

    async def open(self, stack: AsyncExitStack) -> Resources:
        resources = await self._platform.open(stack)
        return Resources(deps=shadow_deps(resources.deps, self._tables))


def shadow_deps(deps: WorkerDeps, tables: ShadowTables) -> WorkerDeps:
    """Return dependencies that cannot start a job, send an event, or write outside the shadow's own rows."""
    return replace(
        deps,
        store=replace(deps.store, tables=tables),
        # No extra leases: the workers in charge of a file do its housekeeping.
        sources=replace(deps.sources, extra_leases=no_extra_leases, schedules=False),
        outputs=replace(deps.outputs, routes=(), runners={}, dead_letter_handlers={}),
        roles=SHADOW_ROLES,
        dry_run=True,
    )
