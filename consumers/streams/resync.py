"""Catching up without records: every pipeline's rows are looked at as if they had just been written."""

import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import Final, TypeAlias

from consumers.delivery.retry import RetryPolicy
from consumers.streams.source import Gap
from worker.config.settings import ON_LOSS
from worker.core.errors import WorkerError
from worker.core.model.events import Event, EventType
from worker.core.model.keys import loss_mark_sk
from worker.core.model.pipeline import PipelineId
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.events import event_write
from worker.store.repos.marks import once_write
from worker.store.repos.pipelines import Pipelines
from worker.store.table import StaleWrite, Tables

ResyncPipeline: TypeAlias = Callable[[PipelineId], Awaitable[None]]
CatchUp: TypeAlias = Callable[[Gap | None], Awaitable[None]]

_NO_PIPELINE: Final = PipelineId("")

_log = logger()


class Halt(WorkerError):
    """Records are gone, and the stream's policy is to wait for a person: nothing more is read."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(
            f"reading of {gap.source} has halted: records after {gap.asked} are gone; make sure that what they said is "
            f"known, then let {ON_LOSS} say resync and restart"
        )


def halting(tables: Tables, catch_up: CatchUp) -> CatchUp:
    """Catch up at a first start only: where records are gone, tell people and stop."""

    async def catch_up_or_halt(gap: Gap | None) -> None:
        if gap is None:
            return await catch_up(None)
        await tell_loss(tables, gap)
        raise Halt(gap)

    return catch_up_or_halt


class Resync:
    """What a consumer of our own tables does about records it will never see."""

    def __init__(self, tables: Tables, resync: ResyncPipeline, tries: RetryPolicy, clock: Clock) -> None:
        self._tables, self._resync, self._tries, self._clock = tables, resync, tries, clock

    async def catch_up(self, gap: Gap | None) -> None:
        """Tell people if something was lost, then look at everything. May be repeated. Raises `RetryLater`."""
        if gap is not None:
            await tell_loss(self._tables, gap)
        count = 0
        async for stored in Pipelines(self._tables).list():
            await self._look_at(stored.pipeline)
            count += 1
        _log.info("pipelines.resynced", count=count)
        if gap is not None:
            await tell_resync(self._tables, gap, count, self._clock.now())

    async def _look_at(self, pipeline: PipelineId) -> None:
        given_up = await self._tries.limited(lambda: self._resync(pipeline))
        if given_up is not None:
            # One damaged row must not keep every other pipeline waiting.
            _log.error("pipeline.left_behind", pipeline=pipeline, reason=given_up.reason)


async def tell_loss(tables: Tables, gap: Gap) -> None:
    """Tell people, once for each gap, however often and whenever it is noticed."""
    event = Event(
        id=_gap_id(gap),
        type=EventType.DATA_LOSS_SUSPECTED,
        at=gap.noticed_at,
        message=str(gap),
        detail={"source": gap.source, "from": gap.asked, "to": gap.resume_at},
    )
    await _tell_once(tables, event, gap)


async def tell_resync(tables: Tables, gap: Gap, count: int, now: datetime) -> None:
    """Tell people, once for each gap, that everything was looked at again."""
    event = Event(
        id=_gap_id(gap, "resynced"),
        type=EventType.DATA_RESYNCED,
        at=now,
        message=f"everything was looked at again after the gap in {gap.source} ({count} pipelines); reading goes on",
        detail={"source": gap.source, "from": gap.asked, "to": gap.resume_at, "pipelines": count},
    )
    await _tell_once(tables, event, gap)


def _gap_id(gap: Gap, *more: str) -> str:
    return hashlib.sha256(" ".join((gap.source, gap.asked, *more)).encode()).hexdigest()[:32]


async def _tell_once(tables: Tables, event: Event, gap: Gap) -> None:
    told = once_write(_NO_PIPELINE, loss_mark_sk(event.id), {"source": gap.source}, gap.noticed_at)
    with suppress(StaleWrite):  # told before, by us or by whoever read here then
        await tables.commit(told, event_write(event))
