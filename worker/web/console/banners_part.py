"""The banners alone, which live updates fetch again."""

from starlette.requests import Request
from starlette.responses import Response

from worker.web.console.console import Console


async def banners_fragment(console: Console, request: Request) -> Response:
    await console.context.live.fresh()
    return console.page(request, "banners.html")
