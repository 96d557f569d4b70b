"""Upstream failures: reports, once for each run below a failed one, that it cannot start."""

from typing import Final

from worker.core.dependencies.gate import GateResult
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Schedule
from worker.core.run.state import PATH_MAX
from worker.engine.commits import Commits
from worker.engine.root_causes import BlockedRunReader, RootCause, RootCauses
from worker.engine.upstreams import UpstreamMemo, UpstreamReader
from worker.runtime.clock import Clock

TOLD_MAX: Final = 1000  # runs below one failure that are told of it


class UpstreamFailures:
    def __init__(
        self,
        commits: Commits,
        *,
        upstreams: UpstreamReader,
        causes: RootCauses,
        blocked: BlockedRunReader,
        clock: Clock,
    ) -> None:
        self._commits, self._clock = commits, clock
        self._upstreams, self._causes, self._blocked = upstreams, causes, blocked

    async def tell(
        self, key: RunKey, schedule: Schedule, memo: UpstreamMemo | None, gate: GateResult | None = None
    ) -> None:
        """Emit an event for a run whose upstream failed, and for the runs below it, once for each."""
        gate = gate or await self._upstreams.gate(key, schedule, memo)
        if not gate.failed:
            return
        cause = await self._causes.of(key, gate)
        if cause is None or not cause.is_failed or not await self._tell(key, cause):
            return
        level, told, below_memo = [key], 1, UpstreamMemo()
        for _ in range(PATH_MAX):
            level = await self._blocked.directly(level, below_memo, at_most=TOLD_MAX)
            for below in level:
                told += await self._tell(below, cause)
            if not level or told >= TOLD_MAX:
                return

    async def _tell(self, key: RunKey, cause: RootCause) -> bool:
        event = EmitEvent(
            type=EventType.UPSTREAM_FAILED,
            message=f"{key} cannot start: {cause}",
            detail={
                "rootCause": cause.record,
                "actionHint": f"fix {cause.key.pipeline} and rerun it; this run then starts by itself",
            },
            once=True,
        )
        return await self._commits.tell_once(key, event, self._clock.now())
