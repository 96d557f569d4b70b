"""Pauses and resumes pipelines: the state and the event that says who and why are one commit."""

from datetime import datetime

from worker.core.model.ids import PipelineId
from worker.core.run.state import Pause
from worker.operations.operator_actions import OperatorAction, Requester, action_event
from worker.runtime.ids import random_id
from worker.store.repos.events import event_write
from worker.store.repos.pauses import Pauses
from worker.store.table import Put, StaleWrite, Tables


async def pause_pipeline(
    tables: Tables, pipeline: PipelineId, pause: Pause, by: Requester, now: datetime
) -> Pause | None:
    """Pause a pipeline; return the pause that this one replaces."""
    pauses = Pauses(tables)
    before = await pauses.load(pipeline)
    await pauses.put(pipeline, pause, _event("pause", pipeline, pause.reason, by, now))
    return before


async def resume_pipeline(
    tables: Tables, pipeline: PipelineId, reason: str, by: Requester, now: datetime
) -> Pause | None:
    """End the pause of a pipeline; return it, or None (and record nothing) without one."""
    pauses = Pauses(tables)
    before = await pauses.load(pipeline)
    if before is None:
        return None
    try:
        await pauses.remove(pipeline, _event("resume", pipeline, reason, by, now))
    except StaleWrite:  # somebody else resumed it since
        return None
    return before


def _event(action: str, pipeline: PipelineId, reason: str, by: Requester, now: datetime) -> Put:
    done = OperatorAction(name=action, subject=pipeline, reason=reason, pipeline=pipeline)
    return event_write(action_event(by, done, event_id=random_id(), at=now))
