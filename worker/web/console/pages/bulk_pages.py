"""Rerun all runs of a filter: a form with a reason, the preview of each run, and what became of them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from worker.core.model.keys import RunKey
from worker.operations.bulk.execution import BulkSpec, RunForecast
from worker.store.repos.bulk_operations import BulkAction, BulkOperations, BulkResult, BulkRunResult
from worker.web.api.bulk_previews import BulkPreview, carried_out_later, preview_runs, start_previewed
from worker.web.api.schemas import REASON_MAX
from worker.web.console.action_pages import ActionForm, read_form, require_operator
from worker.web.console.console import Console
from worker.web.console.links import Links
from worker.web.console.pages.runs_page import RERUN_STATES, filter_of, query_of
from worker.web.console.wording import Badge
from worker.web.problems import ProblemType, WebProblem

REFRESH_S: Final = 5
_BULK: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
# What a person corrects by another preview: the form says it.
_CORRECTED: Final = frozenset({ProblemType.INVALID, ProblemType.PREVIEW_CHANGED, ProblemType.NOTHING_TO_DO})
_ACCEPTED: Final = Badge("✓", "accepted", "completed")
_REJECTED: Final = Badge("✕", "rejected", "failed")
_REQUESTED: Final = Badge("✓", "requested", "completed")


@dataclass(frozen=True, slots=True)
class BulkLine:
    """BulkLine is one run of a bulk operation: what would come of a request, or what came of it."""

    key: RunKey
    link: str
    badge: Badge
    sentence: str


async def bulk_rerun_page(console: Console, request: Request) -> Response:
    """Serve the form of a bulk rerun, its preview, and the start of exactly what was previewed."""
    require_operator(console, request)
    query = query_of(request)
    if query["state"] not in RERUN_STATES:
        what = f"choose which runs to rerun by one of the states {', '.join(RERUN_STATES)}"
        raise WebProblem(ProblemType.BAD_REQUEST, what)
    form = await read_form(request)
    if request.method != "POST":
        return await _form(console, request, query, form)
    if form.problem:
        return await _form(console, request, query, form, problem=WebProblem(ProblemType.INVALID, form.problem))
    context, author = console.context, console.author(request)
    try:
        if form.is_confirmed:
            operation = await start_previewed(context, author, form.token)
            later = carried_out_later(context, author, operation)
            return RedirectResponse(console.links.to("bulk", operation.id), 303, background=later)
        wanted = BulkSpec(action=BulkAction.RERUN, reason=form.reason)
        preview = await preview_runs(context, author, filter_of(query), wanted)
    except WebProblem as problem:
        if problem.kind not in _CORRECTED:
            raise
        return await _form(console, request, query, form, problem=problem)
    return await _form(console, request, query, form, preview=preview)


async def bulk_page(console: Console, request: Request) -> Response:
    """Show what a bulk operation has done so far."""
    operations, bulk = BulkOperations(console.context.tables), str(request.path_params["bulk"])
    operation = await operations.load(bulk) if _BULK.fullmatch(bulk) else None
    if operation is None:
        raise WebProblem(ProblemType.NOT_FOUND, "there is no such bulk operation; they are kept for 7 days")
    done = await operations.results(operation.id)
    results = [done[key] for key in operation.runs if key in done]
    return await console.page(
        request,
        "bulk.html",
        operation=operation,
        lines=[_done(each, console.links) for each in results],
        counts=Counter(each.result.value for each in results),
        refresh_s=None if operation.finished_at else REFRESH_S,
    )


async def _form(
    console: Console,
    request: Request,
    query: Mapping[str, str],
    form: ActionForm,
    *,
    preview: BulkPreview | None = None,
    problem: WebProblem | None = None,
) -> Response:
    return await console.page(
        request,
        "bulk_rerun.html",
        status=problem.kind.value.status if problem else 200,
        query=query,
        form=form,
        preview=preview,
        lines=list(_foreseen(preview.forecasts, console.links)) if preview else [],
        problem=problem.detail if problem else "",
        reason_max=REASON_MAX,
    )


def _foreseen(forecasts: Iterable[RunForecast], links: Links) -> Iterable[BulkLine]:
    for each in forecasts:
        remedy = f"; {each.forecast.remedy}" if each.forecast.remedy else ""
        badge = _ACCEPTED if each.is_accepted else _REJECTED
        yield BulkLine(each.key, links.run(each.key), badge, f"{each.forecast.sentence}{remedy}")


def _done(result: BulkRunResult, links: Links) -> BulkLine:
    badge = _REQUESTED if result.result is BulkResult.REQUESTED else _REJECTED
    return BulkLine(result.key, links.run(result.key), badge, result.sentence)
