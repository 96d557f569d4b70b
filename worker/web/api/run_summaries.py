"""Summaries over HTTP: a running job says how many records it saw, processed, skipped and failed on."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from worker.core.errors import Rejected
from worker.core.model.keys import RunKey
from worker.core.model.summaries import NAMES, NUMBER_MAX
from worker.operations.runs.summaries import put_summary
from worker.web.api.context import ApiContext, Context
from worker.web.api.parameters import RunName
from worker.web.api.responses import record
from worker.web.api.schemas import ApiModel
from worker.web.problems import ProblemType, WebProblem

Count = Annotated[int | None, Field(ge=0, le=NUMBER_MAX, strict=True)]
EXAMPLE: Final = {"seen": 1200, "processed": 3, "skipped": 1197, "errored": 0}

run_summaries_router = APIRouter(tags=["jobs"])


class SummaryCounts(ApiModel):
    """How many records the job saw so far; counts that are left out stay as they are."""

    seen: Count = None
    processed: Count = None
    skipped: Count = None
    errored: Count = None

    def counts(self) -> Mapping[str, int]:
        given = {name: getattr(self, name) for name in NAMES}
        return {name: count for name, count in given.items() if isinstance(count, int)}


class SummaryBody(SummaryCounts):
    """The counts, and the attempt whose job gives them; without it, the current one."""

    attempt: int | None = Field(default=None, ge=1)


class RunSummaryDocument(ApiModel):
    """The summary of a run, with everything that its job gave so far."""

    type: Literal["run-summary"]
    pipeline: str
    schedule: str
    period: str
    summary: dict[str, int] = Field(examples=[EXAMPLE])


@run_summaries_router.post(
    "/runs/{pipeline}/{schedule}/{period}/summary",
    summary="Put the summary of a running job",
    response_model=RunSummaryDocument,
)
async def run_summary(context: Context, key: RunName, body: SummaryBody) -> Response:
    """Save how many records the running job saw. A repeat changes nothing; after its end, it fails."""
    return await put_counts(context, key, body.attempt, body)


async def put_counts(context: ApiContext, key: RunKey, attempt: int | None, body: SummaryCounts) -> Response:
    """Save the counts and return the whole summary. Raises `WebProblem` if no such job runs."""
    counts = body.counts()
    if not counts:
        raise WebProblem(ProblemType.INVALID, f"there is no count; give one of {', '.join(NAMES)}")
    try:
        summary = await put_summary(context.tables, context.clock, key, attempt, counts)
    except Rejected as refused:
        raise WebProblem(ProblemType.CONFLICT, str(refused)) from refused
    names = {"pipeline": key.pipeline, "schedule": key.schedule, "period": str(key.period)}
    return record({"type": "run-summary", **names, "summary": dict(summary)})
