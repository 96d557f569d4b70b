"""Catch up without records: handle every pipeline's rows as if they had just been written."""

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
from worker.core.model.ids import PipelineId
from worker.core.model.keys import loss_mark_sk
from worker.core.run.facts import Origin
from worker.runtime.clock import Clock
from worker.runtime.logs import logger
from worker.store.repos.events import event_write
from worker.store.repos.marks import once_write
from worker.store.repos.pipelines import Pipelines
from worker.store.table import StaleWrite, Tables

# The origin says whether a run that this creates should have existed already.
ResyncPipeline: TypeAlias = Callable[[PipelineId, Origin], Awaitable[None]]
CatchUp: TypeAlias = Callable[[Gap | None], Awaitable[None]]

_NO_PIPELINE: Final = PipelineId("")

_log = logger()


class Halt(WorkerError):
    """Reports lost records of a stream whose policy is to wait for a person. Reading stops."""

    def __init__(self, gap: Gap) -> None:
        super().__init__(
            f"reading of {gap.source} has halted: records after {gap.asked} are gone; make sure that what they said is "
            f"known, then let {ON_LOSS} say resync and restart"
        )


def halting(tables: Tables, catch_up: CatchUp) -> CatchUp:
    """Catch up at a first start only. If records are lost, send an alert and stop."""

    async def catch_up_or_halt(gap: Gap | None) -> None:
        if gap is None:
            return await catch_up(None)
        await tell_loss(tables, gap)
        raise Halt(gap)

    return catch_up_or_halt


class Resync:
    """Catches up on lost records of our own tables."""

    def __init__(
        self,
        tables: Tables,
        resync: ResyncPipeline,
        tries: RetryPolicy,
        clock: Clock,
        *,
        first: ResyncPipeline | None = None,
    ) -> None:
        """Create it. `first` resyncs a pipeline at the first start, instead of `resync`."""
        self._tables, self._resync, self._tries, self._clock = tables, resync, tries, clock
        self._first = first or resync

    async def catch_up(self, gap: Gap | None) -> None:
        """Report a loss, if there was one, then resync every pipeline. Repeatable. Raises `RetryLater`.

        Without a gap it is the first start: sensors that were written before it are new, and nobody missed them.
        """
        if gap is not None:
            await tell_loss(self._tables, gap)
        resync, origin = (self._first, Origin.SENSOR) if gap is None else (self._resync, Origin.RECONCILIATION)
        count = 0
        async for stored in Pipelines(self._tables).list():
            await self._look_at(stored.pipeline, lambda name: resync(name, origin))
            count += 1
        _log.info("pipelines.resynced", count=count)
        if gap is not None:
            await tell_resync(self._tables, gap, count, self._clock.now())

    async def _look_at(self, pipeline: PipelineId, resync: Callable[[PipelineId], Awaitable[None]]) -> None:
        given_up = await self._tries.limited(lambda: resync(pipeline))
        if given_up is not None:
            # One damaged row must not block every other pipeline.
            _log.error("pipeline.left_behind", pipeline=pipeline, reason=given_up.reason)


async def tell_loss(tables: Tables, gap: Gap) -> None:
    """Emit an event about lost records, once per gap, however often it is noticed."""
    event = Event(
        id=_gap_id(gap),
        type=EventType.DATA_LOSS_SUSPECTED,
        at=gap.noticed_at,
        message=str(gap),
        detail={"source": gap.source, "from": gap.asked, "to": gap.resume_at},
    )
    await _tell_once(tables, event, gap)


async def tell_resync(tables: Tables, gap: Gap, count: int, now: datetime) -> None:
    """Emit an event that the resync is done, once per gap."""
    event = Event(
        id=_gap_id(gap, "resynced"),
        type=EventType.DATA_RESYNCED,
        at=now,
        message=f"every row was read again after the gap in {gap.source} ({count} pipelines); reading continues",
        detail={"source": gap.source, "from": gap.asked, "to": gap.resume_at, "pipelines": count},
    )
    await _tell_once(tables, event, gap)


def _gap_id(gap: Gap, *more: str) -> str:
    return hashlib.sha256(" ".join((gap.source, gap.asked, *more)).encode()).hexdigest()[:32]


async def _tell_once(tables: Tables, event: Event, gap: Gap) -> None:
    told = once_write(_NO_PIPELINE, loss_mark_sk(event.id), {"source": gap.source}, gap.noticed_at)
    with suppress(StaleWrite):  # emitted before, by this worker or an earlier reader
        await tables.commit(told, event_write(event))
