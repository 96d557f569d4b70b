"""Sign-in: the browser asks for a token as a password, and sends it with every request from then on."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from worker.web.console.console import Console
from worker.web.console.links import is_own_path
from worker.web.console.problem_pages import CHALLENGE
from worker.web.problems import ProblemType, WebProblem


async def sign_in(console: Console, request: Request) -> Response:
    """Redirect a caller who sent a token to where they came from; ask others for one."""
    if "authorization" not in request.headers:
        detail = "enter any name, and the token as the password"
        raise WebProblem(ProblemType.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": CHALLENGE})
    to = request.query_params.get("to", "/")
    path = to if is_own_path(to) else "/"
    return RedirectResponse(f"{console.links.base}{path}", 303)
