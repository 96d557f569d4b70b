"""Cascades: a marker says that a pipeline upstream is done, and that there should be a run here."""

from worker.config.versions import Version
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId
from worker.core.run.facts import Origin, RunTriggered
from worker.engine.engine import Engine
from worker.engine.intake.sensors import SensorIntake
from worker.runtime.clock import Clock
from worker.store.repos.deferred_signals import DeferredCascade, DeferredSignals
from worker.store.table import Tables


class Cascades:
    def __init__(self, tables: Tables, engine: Engine, signals: SensorIntake, clock: Clock) -> None:
        self._engine, self._signals, self._clock = engine, signals, clock
        self._held = DeferredSignals(tables)

    async def take_in(self, version: Version, key: RunKey, path: tuple[PipelineId, ...]) -> None:
        """Handle a marker; harmless to repeat."""
        schedule = version.pipeline.schedule(key.schedule)
        if schedule is not None and (refusal := await self._signals.refusal(key, schedule)):
            await self._signals.refuse(key, keys.marker_pk(key.pipeline), "", refusal)
            return
        if not await self._is_settled(version, key, path):
            await self._held.keep(DeferredCascade(key, path), self._clock.now())

    async def take_up(self, version: Version, held: DeferredCascade) -> None:
        """Handle what a pause held back as if it were just delivered; it is kept until it is settled."""
        if await self._is_settled(version, held.key, held.path):
            await self._held.forget(held)

    async def _is_settled(self, version: Version, key: RunKey, path: tuple[PipelineId, ...]) -> bool:
        wanted = RunTriggered(key=key, birth=self._engine.birth(version), origin=Origin.CASCADE, path=path)
        return await self._engine.handle(key, wanted)
