"""Submits actions for the API and the console: the same rules, forecasts and audit events."""

from collections.abc import Awaitable, Callable
from datetime import datetime, tzinfo
from typing import Final, TypeVar

from worker.config.versions import Version
from worker.core.errors import ConfigError
from worker.core.model.given_times import time_after
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.run.forecast import Prospect
from worker.core.run.reruns import DATA_DRIFT, LATE_DATA, REPLAY
from worker.core.run.state import Pause
from worker.operations.pipelines import pausing
from worker.operations.runs.requests import RequestOutcome, RerunSpec, RunRequests
from worker.runtime.ids import random_id
from worker.store.table import StaleWrite
from worker.web.api.audit import requester_of
from worker.web.api.context import ApiContext, RequestAuthor
from worker.web.api.parameters import require_pipeline, require_version
from worker.web.problems import ProblemType, WebProblem

Asked = TypeVar("Asked")

OUR_REASONS: Final = frozenset({LATE_DATA, DATA_DRIFT, REPLAY})  # the reason decides which budget is charged
GOOD: Final = frozenset({Prospect.ACCEPTED, Prospect.WAITS})


async def submit_rerun(
    context: ApiContext,
    author: RequestAuthor,
    key: RunKey,
    wish: RerunSpec,
    *,
    is_dry: bool,
    new_id: Callable[[], str] = random_id,
) -> RequestOutcome:
    """Request another attempt, or with `is_dry` only its forecast. Raises `WebProblem`."""
    if wish.reason in OUR_REASONS:
        raise WebProblem(ProblemType.INVALID, f"the reason {wish.reason!r} is the worker's own; use other words")
    version = await version_for(context, key)
    requests = requests_by(context, author, is_dry=is_dry, new_id=new_id)
    return await submitted(lambda: requests.rerun(key, version, wish))


async def submit_cancel(
    context: ApiContext,
    author: RequestAuthor,
    key: RunKey,
    reason: str,
    *,
    waive_sla: bool,
    is_dry: bool,
    new_id: Callable[[], str] = random_id,
) -> RequestOutcome:
    """Request a cancellation, or with `is_dry` only its forecast. Raises `WebProblem`."""
    version = await version_for(context, key)
    requests = requests_by(context, author, is_dry=is_dry, new_id=new_id)
    return await submitted(lambda: requests.cancel(key, version, reason, waive_sla=waive_sla))


async def pause_pipeline(
    context: ApiContext, author: RequestAuthor, pipeline: str, reason: str, until: str | None
) -> tuple[Pause, bool]:
    """Pause a pipeline; return the pause, and whether it was paused before. Raises `WebProblem`."""
    pause = Pause(reason, pause_end(context, until))
    await require_pipeline(context, pipeline)
    now = context.clock.now()
    before = await pausing.pause_pipeline(context.tables, PipelineId(pipeline), pause, requester_of(author), now)
    return pause, before is not None and not before.is_over(now)


async def resume_pipeline(context: ApiContext, author: RequestAuthor, pipeline: str, reason: str) -> tuple[Pause, bool]:
    """End a pause; return it, and whether it was still in force. Raises `WebProblem` without one."""
    await require_pipeline(context, pipeline)
    now = context.clock.now()
    before = await pausing.resume_pipeline(context.tables, PipelineId(pipeline), reason, requester_of(author), now)
    if before is None:
        raise WebProblem(ProblemType.NOTHING_TO_DO, f"{pipeline} is not paused")
    return before, not before.is_over(now)


def pause_end(context: ApiContext, until: str | None, zone: tzinfo | None = None) -> datetime | None:
    """Return when a pause ends: a time, or an age from now; a time of the zone's clock if one is given.

    Raises `WebProblem`.
    """
    try:
        return time_after(until, context.clock.now(), zone) if until else None
    except ConfigError as error:
        raise WebProblem(ProblemType.INVALID, str(error)) from error


def requests_by(
    context: ApiContext, author: RequestAuthor, *, is_dry: bool, new_id: Callable[[], str] = random_id
) -> RunRequests:
    return RunRequests(context.tables, context.clock, is_rehearsed=is_dry, by=requester_of(author), new_id=new_id)


async def submitted(ask: Callable[[], Awaitable[Asked]]) -> Asked:
    """Make a request. Raises `WebProblem` if another was written at the same moment."""
    try:
        return await ask()
    except StaleWrite as error:
        raise WebProblem(ProblemType.CONFLICT, "another request was written at the same time; try again") from error


async def version_for(context: ApiContext, key: RunKey) -> Version:
    version = await require_version(context, key.pipeline)
    schedule_named(version, key.schedule)
    return version


def schedule_named(version: Version, name: str | None) -> Schedule:
    schedules = version.pipeline.schedules
    if name is None and len(schedules) == 1:
        return schedules[0]
    found = next((each for each in schedules if each.id == name), None)
    if found is None:
        known = ", ".join(each.id for each in schedules)
        what = "several schedules" if name is None else f"no schedule {name}"
        kind = ProblemType.INVALID if name is None else ProblemType.UNKNOWN_RUN
        raise WebProblem(kind, f"pipeline {version.pipeline.id} has {what}; it has {known}")
    return found
