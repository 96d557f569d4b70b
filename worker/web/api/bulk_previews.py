"""Previews bulk operations and starts exactly what was previewed, for the API and the console."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.background import BackgroundTask

from worker.config.store_setting import GROUP
from worker.core.errors import WorkerError
from worker.operations.bulk.execution import BulkRequests, BulkSpec, RunForecast
from worker.operations.bulk.preview_token import VALID_FOR, BadPreviewToken, PreviewClaim, read_token, write_token
from worker.operations.bulk.selection import fixed_filter, select_by_filter
from worker.operations.bulk.start import start_bulk
from worker.operations.operator_actions import Requester
from worker.operations.runs.run_filter import RunFilter
from worker.runtime.ids import random_id, random_long_id
from worker.runtime.logs import logger
from worker.store.repos.bulk_operations import BulkOperation, BulkOperations, BulkResult
from worker.store.repos.callback_key import make_callback_key
from worker.web.api.audit import requester_of
from worker.web.api.context import ApiContext, RequestAuthor
from worker.web.api.submissions import OUR_REASONS
from worker.web.problems import ProblemType, WebProblem

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkPreview:
    """BulkPreview says what requests would lead to. `token` starts them until `expires_at`."""

    forecasts: Sequence[RunForecast]
    left_out: str  # what is not selected; "" if nothing
    token: str
    expires_at: datetime

    @property
    def accepted(self) -> int:
        return sum(each.is_accepted for each in self.forecasts)

    @property
    def rejected(self) -> int:
        return len(self.forecasts) - self.accepted


async def preview_runs(context: ApiContext, author: RequestAuthor, runs: RunFilter, wanted: BulkSpec) -> BulkPreview:
    """Select at most 1,000 runs and say what a request for each would lead to. Writes no request.

    Raises `WebProblem`, `BadFilter` and `WindowTooLong`.
    """
    if wanted.reason in OUR_REASONS:
        raise WebProblem(ProblemType.INVALID, f"the reason {wanted.reason!r} is the worker's own; use other words")
    now, by = context.clock.now(), requester_of(author)
    fixed = fixed_filter(runs, wanted.action, now)
    selection = await select_by_filter(context.tables, fixed, now)
    forecasts = await BulkRequests(context.tables, context.clock, by).preview(selection.runs, wanted)
    claim = PreviewClaim(
        bulk_id=random_id(),
        wanted=wanted,
        runs=fixed,
        digest=selection.digest,
        by=by.name,
        expires_at=now + VALID_FOR,
    )
    return BulkPreview(
        forecasts=forecasts,
        left_out=selection.left_out,
        token=write_token(claim, await _key(context)),
        expires_at=claim.expires_at,
    )


async def start_previewed(context: ApiContext, author: RequestAuthor, token: str) -> BulkOperation:
    """Store the operation of a preview, or return the one that it started already.

    Raises `WebProblem`.
    """
    by, now = requester_of(author), context.clock.now()
    try:
        claim = read_token(token, await _key(context), by=by.name, now=now)
    except BadPreviewToken as error:
        raise WebProblem(ProblemType.INVALID, str(error)) from error
    return await BulkOperations(context.tables).load(claim.bulk_id) or await _started(context, by, claim)


def carried_out_later(context: ApiContext, author: RequestAuthor, operation: BulkOperation) -> BackgroundTask | None:
    """Return what makes the requests after the response was sent; None if all are made."""
    if operation.finished_at is not None:
        return None
    return BackgroundTask(_carry_out, context, requester_of(author), operation, context.bulk_turns)


async def _started(context: ApiContext, by: Requester, claim: PreviewClaim) -> BulkOperation:
    """Store the operation, if its filter still selects what was previewed. Raises `WebProblem`."""
    selection = await select_by_filter(context.tables, claim.runs, context.clock.now())
    if selection.digest != claim.digest:
        raise WebProblem(
            ProblemType.PREVIEW_CHANGED, "since the preview other runs match the filter; preview again and look at them"
        )
    if not selection.runs:
        raise WebProblem(ProblemType.NOTHING_TO_DO, "no run matches the filter")
    return await start_bulk(
        context.tables,
        context.clock,
        by,
        claim.wanted,
        selection,
        command=f"web-{claim.bulk_id}",
        bulk_id=claim.bulk_id,
    )


async def _key(context: ApiContext) -> bytes:
    return await make_callback_key(context.tables, GROUP, lambda: random_long_id() + random_long_id())


async def _carry_out(context: ApiContext, by: Requester, operation: BulkOperation, turns: asyncio.Semaphore) -> None:
    """Make the requests after the response was sent. If the server ends, the token continues them."""
    async with turns:
        try:
            results = await BulkRequests(context.tables, context.clock, by).execute(operation)
        except WorkerError as error:
            _log.warning("bulk.interrupted", bulk=operation.id, problem=str(error))
            return
    counts = Counter(each.result for each in results)
    _log.info("bulk.finished", bulk=operation.id, requested=counts[BulkResult.REQUESTED], of=len(results))
