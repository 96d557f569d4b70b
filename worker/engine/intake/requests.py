"""Requests: turns trigger, rerun and cancel requests, from people or from Interlock, into facts."""

from datetime import datetime

from worker.config.versions import PipelineVersions, Version
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Schedule
from worker.core.run.facts import CancelRequested, RerunRequested, TriggerRequested
from worker.core.run.reruns import UPSTREAM_REPLAY, is_automatic
from worker.core.time.timestamps import parse_rfc3339
from worker.engine.commits import Commits
from worker.engine.engine import Engine, Handled
from worker.engine.intake.rerun_freshness import RerunFreshness
from worker.engine.intake.sensors import SensorIntake
from worker.runtime.clock import Clock
from worker.runtime.logs import Log
from worker.store.repos.installation import InstallTime
from worker.store.repos.requests import Requests, TriggerRequest
from worker.store.repos.runs import Runs
from worker.store.table import Tables


class RequestIntake:
    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        configs: PipelineVersions,
        commits: Commits,
        sensors: SensorIntake,
        *,
        installed: InstallTime,
        clock: Clock,
        log: Log,
    ) -> None:
        self._engine, self._configs, self._commits, self._sensors = engine, configs, commits, sensors
        self._installed, self._clock, self._log = installed, clock, log
        self._requests, self._runs, self._freshness = Requests(tables), Runs(tables), RerunFreshness(tables, clock)

    async def handle_rerun(self, key: RunKey, at: datetime | None) -> None:
        """Handle a rerun request as its row is now. `at` None: only the row says when it was written."""
        request = await self._requests.rerun_of(key)
        version = await self._configs.current(key.pipeline)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if request is None or version is None or schedule is None:
            return
        asked_at = at or parse_rfc3339(request.requested_at)
        if asked_at is None or not self._installed.is_news(asked_at):
            self._log("request.ignored", {"run": str(key), "reason": "it is older than this installation"})
            return
        if refusal := await self._sensors.refusal(key, schedule):
            tell = EmitEvent(
                type=EventType.RERUN_REJECTED,
                message=f"{key}: rerun rejected: {refusal.reason}",
                detail={"actionHint": refusal.hint},
                once=True,
            )
            await self._commits.tell_once(key, tell, self._clock.now())
            return
        await self._sensors.warn_of_grain(key, schedule, "a rerun request", {"reason": request.reason})
        fact = RerunRequested(
            key=key,
            birth=self._engine.new_run(version),
            identity=request.identity,
            reason=request.reason,
            is_followed=request.is_followed or request.reason == UPSTREAM_REPLAY,
            is_fresh=is_automatic(request.reason)
            or await self._freshness.of(key, await self._runs.load(key), version.pipeline, schedule),
            supersede=request.supersede,
        )
        await self._engine.handle(key, fact)

    async def handle_trigger(self, key: RunKey) -> None:
        """Handle a trigger request, and remove it once it is answered; a pause holds it back. Safe to repeat."""
        request = await self._requests.trigger_of(key)
        version = await self._configs.current(key.pipeline)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if request is None or version is None or schedule is None:
            return
        if refusal := await self._sensors.refusal(key, schedule):
            tell = EmitEvent(
                type=EventType.TRIGGER_REJECTED,
                message=f"{key}: trigger rejected ({request.reason}, requested by {request.by}): {refusal.reason}",
                detail={"reason": refusal.reason, "requestedBy": request.by, "actionHint": refusal.hint},
                once=True,
                about=request.identity,  # the same period may be asked for again
            )
            await self._commits.tell_once(key, tell, self._clock.now())
        elif await self._trigger(key, version, schedule, request) is Handled.HELD_BACK:
            return
        # Last: if the worker dies before this, the run remembers the request, and it is removed when it comes again.
        await self._requests.forget_trigger(key, request)

    async def _trigger(self, key: RunKey, version: Version, schedule: Schedule, request: TriggerRequest) -> Handled:
        await self._sensors.warn_of_grain(key, schedule, "a trigger request", {"requestedBy": request.by})
        requested_at = parse_rfc3339(request.requested_at) or self._clock.now()
        fact = TriggerRequested(
            key=key,
            birth=self._engine.new_run(version),
            identity=request.identity,
            reason=request.reason,
            by=request.by,
            arrived_at=await self._sensors.arrival(key, schedule, requested_at),
        )
        return await self._engine.handle(key, fact)

    async def handle_cancel(self, key: RunKey) -> None:
        """Handle a cancel request as its row is now."""
        request = await self._requests.cancel_of(key)
        if request is not None:
            fact = CancelRequested(reason=request.reason, waive_sla=request.waive_sla, identity=request.identity)
            await self._engine.handle(key, fact)
