"""Dead letters: records that could not be processed, by source, oldest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.web.console.console import Console, LivePart

SHOWN_MAX: Final = 50  # of each source
SOURCES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class LetterSource:
    """LetterSource is a source with its oldest dead letters; `is_cut`: there are more."""

    name: str
    letters: Sequence[DeadLetter]
    is_cut: bool


async def deadletters_page(console: Console, request: Request) -> Response:
    store = DeadLetters(console.context.tables)
    names = await store.sources()
    sources: list[LetterSource] = []
    for name in names[:SOURCES_MAX]:
        letters = await store.list(name, SHOWN_MAX + 1)
        if letters:
            sources.append(LetterSource(name, letters[:SHOWN_MAX], len(letters) > SHOWN_MAX))
    return await console.page(
        request,
        "deadletters.html",
        live_part=LivePart("page", console.links.to("deadletters"), "", ""),
        sources=sources,
        sources_total=len(names),
        sources_read=min(len(names), SOURCES_MAX),
    )
