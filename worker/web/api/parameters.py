"""Parameters that many endpoints share: names in paths, and the paging of lists."""

from typing import Annotated, Final, Literal

from fastapi import Depends, Path
from pydantic import ConfigDict, Field
from pydantic.alias_generators import to_camel

from worker.config.versions import Version
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.time.periods import Period
from worker.operations.pipelines.lookup import suggestion
from worker.operations.runs.run_query import LIMIT, LIMIT_MAX
from worker.store.repos.pipelines import Pipelines
from worker.web.api.context import ApiContext
from worker.web.api.schemas import ApiModel
from worker.web.problems import ProblemType, WebProblem

# Ids as pipeline files allow them. Others cannot exist, so that no path leads anywhere else.
ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# Sources of dead letters are names of streams and routes.
SOURCE: Final = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"

PipelineName = Annotated[str, Path(pattern=ID, examples=["orders-daily"])]
ScheduleName = Annotated[str, Path(pattern=ID, examples=["stream"])]
PeriodName = Annotated[str, Path(max_length=16, examples=["2027-03-22"])]
SourceName = Annotated[str, Path(pattern=SOURCE, examples=["feed.control"])]
LetterName = Annotated[str, Path(min_length=1, max_length=256)]


class Paging(ApiModel):
    """How much of a list to return, and from where on."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid")

    limit: int = Field(default=LIMIT, ge=1, le=LIMIT_MAX, description="How many at most.")
    cursor: str | None = Field(default=None, max_length=4_096, description="`next` of the page before.")
    format: Literal["json", "ndjson"] | None = Field(
        default=None, description="`ndjson`: one record a line. It has priority over the header `Accept`."
    )


def period_of(text: str) -> Period:
    """Read a period in either spelling. Raises `WebProblem`."""
    period = Period.parse(text) or Period.parse_compact(text)
    if period is None:
        wanted = "write 2027-03-22, 2027-03-22T07 or 2027-03-22T0730"
        raise WebProblem(ProblemType.BAD_REQUEST, f"{text!r} is not a period; {wanted}")
    return period


async def _run_key(pipeline: PipelineName, schedule: ScheduleName, period: PeriodName) -> RunKey:
    return RunKey(PipelineId(pipeline), ScheduleId(schedule), period_of(period))


RunName = Annotated[RunKey, Depends(_run_key)]


async def require_pipeline(context: ApiContext, pipeline: str) -> None:
    """Raise `WebProblem` if there is no such pipeline."""
    if await Pipelines(context.tables).get(PipelineId(pipeline)) is None:
        raise await unknown_pipeline(context, pipeline)


async def require_version(context: ApiContext, pipeline: str) -> Version:
    """Return the version in force. Raises `WebProblem` without one, and if it cannot be used."""
    version = await context.versions.current(PipelineId(pipeline))
    if version is None:
        await require_pipeline(context, pipeline)
        raise WebProblem(ProblemType.CONFLICT, f"the configuration of {pipeline} cannot be used; correct and push it")
    return version


async def unknown_pipeline(context: ApiContext, pipeline: str) -> WebProblem:
    hint = await suggestion(context.tables, PipelineId(pipeline)) or "GET /pipelines lists what there is"
    return WebProblem(ProblemType.UNKNOWN_PIPELINE, f"there is no pipeline {pipeline} in the store; {hint}")


def unknown_run(key: RunKey) -> WebProblem:
    return WebProblem(ProblemType.UNKNOWN_RUN, f"there is no run {key}; its explanation says why")
