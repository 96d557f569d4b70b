"""Dead letters: records that could not be processed, by source, oldest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.web.console.console import Console, LivePart
from worker.web.problems import ProblemType, WebProblem

SHOWN_MAX: Final = 50  # of each source
OF_ONE_MAX: Final = 200  # on the page of one source
SOURCES_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class LetterSource:
    """LetterSource is a source with its oldest dead letters; `is_cut`: there are more."""

    name: str
    letters: Sequence[DeadLetter]
    is_cut: bool


async def deadletters_page(console: Console, request: Request) -> Response:
    store, chosen = DeadLetters(console.context.tables), str(request.path_params.get("source", ""))
    names = await store.sources()
    if chosen and chosen not in names:
        raise WebProblem(ProblemType.NOT_FOUND, "no dead letter ever came from such a source")
    if chosen:
        names = [chosen]
    shown_max = OF_ONE_MAX if chosen else SHOWN_MAX
    sources: list[LetterSource] = []
    for name in names[:SOURCES_MAX]:
        letters = await store.list(name, shown_max + 1)
        if letters:
            sources.append(LetterSource(name, letters[:shown_max], len(letters) > shown_max))
    return await console.page(
        request,
        "deadletters.html",
        live_part=LivePart("page", console.links.to("deadletters", *filter(None, [chosen])), "", ""),
        chosen=chosen,
        sources=sources,
        sources_total=len(names),
        sources_read=min(len(names), SOURCES_MAX),
    )
