"""Dead letters: records that could not be processed, and what to do with them."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from worker.config.store_setting import GROUP
from worker.core.model.values import Json
from worker.operations.dead_letters import letter_record, record_letter_action, release_key
from worker.operations.operator_actions import OperatorAction
from worker.operations.runs.cursors import read_cursor, write_cursor
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.row_codec import decode_row
from worker.store.rows import instant_text, to_json_map
from worker.web.api.audit import requester_of
from worker.web.api.context import ApiContext, Author, Context, RequestAuthor
from worker.web.api.parameters import LetterName, Paging, SourceName
from worker.web.api.responses import listing, page, record
from worker.web.api.schemas import (
    DeadLetterActionDocument,
    DeadLetterDocument,
    DeadLetterSourceDocument,
    ReasonRequest,
)
from worker.web.problems import ProblemType, WebProblem

COUNTED_MAX: Final = 1_000
REPLAYED_MAX: Final = 1_000

deadletters_router = APIRouter(tags=["dead letters"])


@deadletters_router.get("/deadletters", summary="List sources of dead letters", **listing(DeadLetterSourceDocument))
async def list_sources(request: Request, context: Context) -> Response:
    """List every source that ever had a dead letter, with how many it has now."""
    letters = DeadLetters(context.tables)
    items: list[Mapping[str, Json]] = []
    for source in await letters.sources():
        found = await letters.list(source, COUNTED_MAX + 1)
        items.append(
            {
                "type": "deadletterSource",
                "source": source,
                "count": min(len(found), COUNTED_MAX),
                "countIsExact": len(found) <= COUNTED_MAX,
                "oldest": instant_text(found[0].at) if found else None,
            }
        )
    return page(request, items)


@deadletters_router.get(
    "/deadletters/{source}", summary="List the dead letters of a source", **listing(DeadLetterDocument)
)
async def list_letters(
    request: Request, context: Context, source: SourceName, query: Annotated[Paging, Query()]
) -> Response:
    """List the dead letters of one source, oldest first, without their bodies."""
    await require_source(context, source)
    bound = f"deadletters\x1f{source}"
    shown = read_cursor(query.cursor, bound).get("shown", 0) if query.cursor else 0
    skipped = shown if isinstance(shown, int) else 0
    # Dead letters are few, because each is worth an alert; those before the cursor are read again.
    letters = await DeadLetters(context.tables).list(source, skipped + query.limit + 1)
    found = list(islice(letters, skipped, skipped + query.limit))
    has_more = len(letters) > skipped + len(found)
    following = write_cursor(bound, {"shown": skipped + len(found)}) if has_more else None
    return page(request, [letter_record(letter) for letter in found], following)


@deadletters_router.get(
    "/deadletters/{source}/{letter}", summary="Show a dead letter", response_model=DeadLetterDocument
)
async def show_letter(context: Context, source: SourceName, letter: LetterName) -> Response:
    """Return one dead letter with the record, message or event that it holds."""
    found = await find_letter(context, source, letter)
    body = await DeadLetters(context.tables).body(found)
    content = None if body is None else to_json_map(decode_row(body))
    return record({**letter_record(found), "body": content})


@deadletters_router.post(
    "/deadletters/{source}/replay",
    summary="Replay all dead letters of a source",
    status_code=202,
    response_model=DeadLetterActionDocument,
)
async def replay_source(context: Context, author: Author, source: SourceName, body: ReasonRequest) -> Response:
    """Request that workers process the dead letters of a source again, in order; at most 1,000."""
    letters = await letters_to_replay(context, source)
    await replay_all(context, author, letters, body.reason)
    return _answer("deadletterReplay", source, None, len(letters))


@deadletters_router.post(
    "/deadletters/{source}/{letter}/replay",
    summary="Replay a dead letter",
    status_code=202,
    response_model=DeadLetterActionDocument,
)
async def replay_letter(
    context: Context, author: Author, source: SourceName, letter: LetterName, body: ReasonRequest
) -> Response:
    """Request that a worker processes a dead letter again; those of the same row replay in order."""
    await replay_one(context, author, await find_letter(context, source, letter), body.reason)
    return _answer("deadletterReplay", source, letter, 1)


@deadletters_router.post(
    "/deadletters/{source}/{letter}/drop",
    summary="Drop a dead letter",
    status_code=202,
    response_model=DeadLetterActionDocument,
)
async def drop_letter(
    context: Context, author: Author, source: SourceName, letter: LetterName, body: ReasonRequest
) -> Response:
    """Drop a dead letter; its row is processed again from its next change."""
    await drop_one(context, author, await find_letter(context, source, letter), body.reason)
    return _answer("deadletterDrop", source, letter, 1)


async def letters_to_replay(context: ApiContext, source: str) -> list[DeadLetter]:
    """Return the dead letters that a replay of a source takes. Raises `WebProblem` for none."""
    await require_source(context, source)
    letters = await DeadLetters(context.tables).list(source, REPLAYED_MAX)
    if not letters:
        raise WebProblem(ProblemType.NOTHING_TO_DO, f"{source} has no dead letter")
    return letters


async def replay_all(
    context: ApiContext,
    author: RequestAuthor,
    letters: Sequence[DeadLetter],
    reason: str,
    event_id: str | None = None,
) -> None:
    """Request a replay of dead letters of one source. `event_id` names the form, so that it counts once."""
    action = OperatorAction(name="replay dead letters", subject=letters[0].source, reason=reason)
    await _record(context, author, action, event_id)
    for letter in letters:
        await Replays(context.tables, GROUP).ask(letter, context.clock.now())


async def replay_one(
    context: ApiContext, author: RequestAuthor, letter: DeadLetter, reason: str, event_id: str | None = None
) -> None:
    action = OperatorAction(name="replay dead letter", subject=f"{letter.source} {letter.id}", reason=reason)
    await _record(context, author, action, event_id)
    await Replays(context.tables, GROUP).ask(letter, context.clock.now())


async def drop_one(
    context: ApiContext, author: RequestAuthor, letter: DeadLetter, reason: str, event_id: str | None = None
) -> None:
    action = OperatorAction(name="drop dead letter", subject=f"{letter.source} {letter.id}", reason=reason)
    await _record(context, author, action, event_id)
    await release_key(context.tables, letter)
    await DeadLetters(context.tables).drop(letter)


async def _record(
    context: ApiContext, author: RequestAuthor, action: OperatorAction, event_id: str | None = None
) -> None:
    await record_letter_action(context.tables, requester_of(author), action, context.clock.now(), event_id)


def _answer(kind: str, source: str, letter: str | None, count: int) -> Response:
    expected = "a worker replays within 30 seconds" if kind == "deadletterReplay" else "dropped"
    return record({"type": kind, "source": source, "id": letter, "count": count, "expected": expected}, 202)


async def require_source(context: ApiContext, source: str) -> None:
    if source not in await DeadLetters(context.tables).sources():
        raise WebProblem(ProblemType.UNKNOWN_DEAD_LETTER, f"no dead letter ever came from {source!r}")


async def find_letter(context: ApiContext, source: str, letter: str) -> DeadLetter:
    await require_source(context, source)
    async for found in DeadLetters(context.tables).every(source):
        if found.id == letter:
            return found
    raise WebProblem(ProblemType.UNKNOWN_DEAD_LETTER, f"there is no dead letter {letter[:200]!r} of {source}")
