"""Cascades: a marker states that an upstream pipeline has completed and a run should exist here."""

from worker.config.versions import Version
from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.run.facts import Origin, RunTriggered
from worker.engine.engine import Engine, Handled
from worker.engine.intake.sensors import SensorIntake
from worker.runtime.clock import Clock
from worker.store.repos.deferred_signals import DeferredCascade, DeferredSignals
from worker.store.table import Tables


class Cascades:
    def __init__(self, tables: Tables, engine: Engine, sensors: SensorIntake, clock: Clock) -> None:
        self._engine, self._sensors, self._clock = engine, sensors, clock
        self._deferred = DeferredSignals(tables)

    async def handle(self, version: Version, key: RunKey, path: tuple[PipelineId, ...]) -> None:
        """Handle a cascade marker. Safe to repeat."""
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is not None and (refusal := await self._sensors.refusal(key, schedule)):
            await self._sensors.refuse(key, keys.marker_pk(key.pipeline), "", refusal)
            return
        if schedule is not None:
            await self._sensors.warn_of_grain(key, schedule, "a cascade marker", {"path": [*path]})
        if not await self._is_settled(version, key, path):
            await self._deferred.keep(DeferredCascade(key, path), self._clock.now())

    async def resume(self, version: Version, held: DeferredCascade) -> None:
        """Handle a cascade that a pause held back as if just delivered; keep it until it is settled."""
        if await self._is_settled(version, held.key, held.path):
            await self._deferred.forget(held)

    async def _is_settled(self, version: Version, key: RunKey, path: tuple[PipelineId, ...]) -> bool:
        wanted = RunTriggered(key=key, birth=self._engine.new_run(version), origin=Origin.CASCADE, path=path)
        return await self._engine.handle(key, wanted) is Handled.SETTLED
