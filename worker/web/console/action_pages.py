"""Actions on runs and pipelines: a form with a reason, its forecast, and the final button."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, tzinfo
from typing import Final, cast
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.time.timestamps import format_rfc3339
from worker.operations.runs.requests import RequestOutcome, RerunSpec
from worker.runtime.ids import random_id
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.requests import Requests
from worker.web.api.schemas import REASON_MAX
from worker.web.api.submissions import (
    GOOD,
    pause_end,
    pause_pipeline,
    resume_pipeline,
    submit_cancel,
    submit_rerun,
)
from worker.web.console.console import Console
from worker.web.console.links import is_own_path
from worker.web.console.live_rows import zone_named
from worker.web.console.pipeline_page import pipeline_of
from worker.web.console.run_page import run_key_of
from worker.web.console.wording import moment_text
from worker.web.problems import ProblemType, WebProblem

FIELDS_MAX: Final = 20
FORM: Final = "application/x-www-form-urlencoded"
_ID: Final = re.compile(r"[A-Za-z0-9-]{8,64}")


@dataclass(frozen=True, slots=True)
class Prospects:
    """Prospects says what will come of an action; without `is_good` there is no final button."""

    is_good: bool
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ActionSubject:
    """ActionSubject is an action and what it is about. `back` leads to its page."""

    action: str
    name: str
    back: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionForm:
    """ActionForm is what a person entered. `id` names the request, so that a second click repeats nothing."""

    reason: str = ""
    id: str = ""
    supersede: bool = False
    waive: bool = False
    until: str = ""
    zone: str = ""  # of the clock that `until` is meant by
    back: str = ""
    count: str = ""
    token: str = ""  # of the preview that is confirmed
    is_confirmed: bool = False

    @property
    def problem(self) -> str:
        if not self.reason:
            return "say why: it is recorded with your name"
        return f"a reason has at most {REASON_MAX} characters" if len(self.reason) > REASON_MAX else ""


async def run_action_page(console: Console, request: Request) -> Response:
    """Serve the form of a rerun or a cancellation, its forecast, and the request itself."""
    require_operator(console, request)
    key, action = run_key_of(request), str(request.path_params["action"])
    if action not in {"rerun", "cancel"}:
        raise WebProblem(ProblemType.NOT_FOUND, "there is no such action")
    form = await read_form(request)
    subject = ActionSubject(action, str(key), console.links.run(key))
    if request.method != "POST" or form.problem:
        is_wrong = request.method == "POST"
        return await action_response(console, request, subject, form, problem=form.problem if is_wrong else "")
    if form.is_confirmed and await _is_repeated(console, key, action, form):
        return RedirectResponse(f"{subject.back}?done={action}", 303)
    outcome = await _submit(console, request, key, action, form)
    if outcome.is_written:
        return RedirectResponse(f"{subject.back}?done={action}", 303)
    expected = outcome.forecast
    prospects = Prospects(expected.prospect in GOOD, expected.sentence, expected.remedy)
    return await action_response(console, request, subject, form, prospects=prospects)


async def pipeline_action_page(console: Console, request: Request) -> Response:
    """Serve the form of a pause or its end, what it means, and the action itself."""
    require_operator(console, request)
    pipeline, action = pipeline_of(request), str(request.path_params["action"])
    if action not in {"pause", "resume"}:
        raise WebProblem(ProblemType.NOT_FOUND, "there is no such action")
    form = await read_form(request)
    came_from = form.back.partition("?")[0]
    back = f"{console.links.base}{came_from}" if is_own_path(came_from) else console.links.pipeline(pipeline)
    subject = ActionSubject(action, pipeline, back)
    context, author = console.context, console.author(request)
    zone = await _zone_of(console, pipeline, form.zone)
    form = replace(form, zone=f"{zone}")
    if request.method != "POST" or form.problem:
        is_wrong = request.method == "POST"
        return await action_response(console, request, subject, form, problem=form.problem if is_wrong else "")
    try:
        until = pause_end(context, form.until, zone)
    except WebProblem as problem:
        return await action_response(console, request, subject, form, problem=problem.detail)
    if form.is_confirmed:
        if action == "pause":
            await pause_pipeline(context, author, pipeline, form.reason, form.until or None)
        elif await Pauses(context.tables).load(pipeline) is not None:  # else a second click: it was resumed already
            await resume_pipeline(context, author, pipeline, form.reason)
        return RedirectResponse(f"{subject.back}?done={action}", 303)
    # What is confirmed is this very time, however long a person looks at it.
    form = replace(form, until=format_rfc3339(until) if until else "")
    end = f" until {moment_text(until, zone)}" if until else " until somebody resumes it"
    sentence = (
        f"no new run or attempt of {pipeline} starts{end}; running jobs go on, and deadlines stay watched"
        if action == "pause"
        else "what arrived during the pause is processed now"
    )
    return await action_response(
        console, request, subject, form, prospects=Prospects(is_good=True, sentence=sentence), zone=zone
    )


async def _submit(console: Console, request: Request, key: RunKey, action: str, form: ActionForm) -> RequestOutcome:
    context, author, is_dry = console.context, console.author(request), not form.is_confirmed
    if action == "rerun":
        wish = RerunSpec(reason=form.reason, supersede=form.supersede)
        return await submit_rerun(context, author, key, wish, is_dry=is_dry, new_id=lambda: form.id)
    return await submit_cancel(
        context, author, key, form.reason, waive_sla=form.waive, is_dry=is_dry, new_id=lambda: form.id
    )


async def _is_repeated(console: Console, key: RunKey, action: str, form: ActionForm) -> bool:
    """Return whether this very form was submitted already: a double click asks once."""
    requests = Requests(console.context.tables)
    seen = await requests.rerun_of(key) if action == "rerun" else await requests.cancel_of(key)
    return seen is not None and seen.id == form.id


async def _zone_of(console: Console, pipeline: PipelineId, chosen: str) -> tzinfo:
    """Return the zone that the page showed times in; without one, that of the pipeline."""
    if chosen:
        return zone_named(chosen)
    stored = await Pipelines(console.context.tables).get(pipeline)
    version = None if stored is None else await console.context.versions.in_force_of(stored)
    return version.pipeline.schedules[0].zone if version and version.pipeline.schedules else UTC


def require_operator(console: Console, request: Request) -> None:
    """Refuse the form itself to viewers. The guard refuses their changes, whatever the page."""
    if console.is_read_only:
        raise WebProblem(ProblemType.READ_ONLY, "this server changes nothing; use another, or a command")
    if not console.may_act(request):
        raise WebProblem(ProblemType.FORBIDDEN, "changes need a token whose role is operator")


async def read_form(request: Request) -> ActionForm:
    if request.method != "POST":
        return ActionForm(back=request.query_params.get("back", ""))
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise WebProblem(ProblemType.BAD_REQUEST, f"the form must be sent as {FORM}")
    try:
        found = parse_qs((await request.body()).decode(), max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise WebProblem(ProblemType.BAD_REQUEST, "the form cannot be read") from error
    fields: Mapping[str, list[str]] = cast("Mapping[str, list[str]]", found)
    values = {name: each[0].strip() for name, each in fields.items()}
    given = values.get("id", "")
    return ActionForm(
        reason=values.get("reason", ""),
        id=given if _ID.fullmatch(given) else random_id(),
        supersede=values.get("supersede") == "1",
        waive=values.get("waive") == "1",
        until=values.get("until", "")[:64],
        zone=values.get("zone", "")[:64],
        back=values.get("back", "")[:500],
        count=values.get("count", "")[:20],
        token=values.get("token", ""),
        is_confirmed=values.get("confirm") == "1",
    )


async def action_response(
    console: Console,
    request: Request,
    subject: ActionSubject,
    form: ActionForm,
    *,
    problem: str = "",
    prospects: Prospects | None = None,
    zone: tzinfo = UTC,
    counted: str = "",
) -> Response:
    return await console.page(
        request,
        "action.html",
        status=422 if problem else 200,
        zone=zone,
        action=subject.action,
        subject=subject.name,
        back=subject.back,
        form=form,
        problem=problem,
        prospects=prospects,
        counted=counted,
        here=f"{console.links.base}{request.scope['path']}",
        reason_max=REASON_MAX,
    )
