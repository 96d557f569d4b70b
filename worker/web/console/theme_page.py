"""The choice of a theme: a plain link that sets a cookie, so it works without JavaScript."""

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from worker.web.console.console import Console
from worker.web.console.links import is_own_path
from worker.web.console.wording import THEME_COOKIE, THEMES
from worker.web.problems import ProblemType, WebProblem

KEPT_S: Final = 365 * 86_400


async def choose_theme(console: Console, request: Request) -> Response:
    """Keep the choice, and go back to where it was made."""
    chosen, to = request.query_params.get("set", ""), request.query_params.get("to", "/")
    if chosen not in THEMES:
        raise WebProblem(ProblemType.NOT_FOUND, f"there is no such theme; choose one of {', '.join(THEMES)}")
    response = RedirectResponse(f"{console.links.base}{to if is_own_path(to) else '/'}", 303)
    response.set_cookie(
        THEME_COOKIE, chosen, max_age=KEPT_S, path=f"{console.links.base}/", httponly=True, samesite="lax"
    )
    return response
