"""One dead letter with its body, and forms that replay or drop one, or replay all of a source."""

import json
from datetime import timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from worker.core.errors import WorkerError
from worker.core.model.events import EventType
from worker.operations.redaction import without_secrets
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.events import Events
from worker.store.row_codec import decode_row
from worker.store.rows import to_json_map
from worker.web.api.deadletters import (
    REPLAYED_MAX,
    drop_one,
    find_letter,
    letters_to_replay,
    replay_all,
    replay_one,
)
from worker.web.console.action_pages import (
    ActionForm,
    ActionSubject,
    Prospects,
    action_response,
    read_form,
    require_operator,
)
from worker.web.console.console import Console
from worker.web.problems import ProblemType, WebProblem

BODY_CHARS_MAX: Final = 65_536
ACTIONS: Final = ("replay", "drop")
_REPEATED_WITHIN: Final = timedelta(minutes=10)
_LATEST_ACTIONS: Final = 100


async def deadletter_page(console: Console, request: Request) -> Response:
    letter = await _letter(console, request)
    stored = await DeadLetters(console.context.tables).body(letter)
    body = None if stored is None else _body_text(stored)
    return await console.page(
        request,
        "deadletter.html",
        letter=letter,
        body=None if body is None else body[:BODY_CHARS_MAX],
        body_left=max(0, len(body or "") - BODY_CHARS_MAX),
    )


async def deadletter_action_page(console: Console, request: Request) -> Response:
    """Serve the form that replays or drops one dead letter, what it means, and the action itself."""
    require_operator(console, request)
    action = str(request.path_params["action"])
    if action not in ACTIONS:
        raise WebProblem(ProblemType.NOT_FOUND, "there is no such action")
    form, source = await read_form(request), str(request.path_params["source"])
    done = console.links.to("deadletters", source, done=action)
    if form.is_confirmed and not form.problem and await _is_repeated(console, form):
        return RedirectResponse(done, 303)
    letter = await _letter(console, request)
    subject = ActionSubject(action, f"{source} {letter.id}", console.links.to("deadletters", source, letter.id))
    if request.method != "POST" or form.problem:
        problem = form.problem if request.method == "POST" else ""
        return await action_response(console, request, subject, form, problem=problem)
    if not form.is_confirmed:
        prospects = Prospects(is_good=True, sentence=_sentence(action, letter))
        return await action_response(console, request, subject, form, prospects=prospects)
    act = replay_one if action == "replay" else drop_one
    await act(console.context, console.author(request), letter, form.reason, form.id)
    return RedirectResponse(done, 303)


async def source_replay_page(console: Console, request: Request) -> Response:
    """Serve the form that replays all dead letters of a source after their number was typed."""
    require_operator(console, request)
    form, source = await read_form(request), str(request.path_params["source"])
    done = console.links.to("deadletters", source, done="replay")
    if form.is_confirmed and not form.problem and await _is_repeated(console, form):
        return RedirectResponse(done, 303)
    letters = await letters_to_replay(console.context, source)
    subject, count = ActionSubject("replay", source, console.links.to("deadletters", source)), str(len(letters))
    problem = form.problem
    if not problem and form.count != count:
        problem = f"there are {count} dead letters, not {form.count or 'none'}; look at them, then type their number"
    if request.method != "POST" or problem:
        problem = problem if request.method == "POST" else ""
        return await action_response(console, request, subject, form, problem=problem, counted=count)
    if not form.is_confirmed:
        which = f"the oldest {count}" if len(letters) == REPLAYED_MAX else f"all {count}"
        prospects = Prospects(is_good=True, sentence=f"workers process {which} again, those of one key in order")
        return await action_response(console, request, subject, form, prospects=prospects, counted=count)
    await replay_all(console.context, console.author(request), letters, form.reason, form.id)
    return RedirectResponse(done, 303)


def _sentence(action: str, letter: DeadLetter) -> str:
    if action == "drop":
        return "the record is gone for good; its key is processed again from its next change"
    order = "those of its key are replayed in order" if letter.lane else "it has no key, so no order"
    return f"a worker processes the record again within 30 seconds; {order}"


async def _letter(console: Console, request: Request) -> DeadLetter:
    names = request.path_params
    return await find_letter(console.context, str(names["source"]), str(names["letter"]))


async def _is_repeated(console: Console, form: ActionForm) -> bool:
    """Return whether this very form was submitted already: a double click asks once."""
    since = console.context.clock.now() - _REPEATED_WITHIN
    latest = await Events(console.context.tables).latest("", _LATEST_ACTIONS, since=since)
    return any(each.event.id == form.id and each.event.type == EventType.OPERATOR_ACTION for each in latest)


def _body_text(stored: bytes) -> str:
    """Return a body as indented JSON; one that is none as it is."""
    try:
        return json.dumps(without_secrets(to_json_map(decode_row(stored))), indent=2, ensure_ascii=False, default=str)
    except (WorkerError, ValueError, TypeError):
        return stored.decode(errors="replace")
