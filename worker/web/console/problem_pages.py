"""Problems as pages, for browsers; programs get problem documents."""

from http import HTTPStatus

from starlette.requests import cookie_parser

from worker.web.access import Caller
from worker.web.asgi import Scope, header
from worker.web.console.console import Console
from worker.web.console.wording import theme_of
from worker.web.guard import CALLER
from worker.web.problems import ProblemType, WebProblem

API: str = "/api/"
# A browser asks for the token as a password: its name may be anything.
CHALLENGE = 'Basic realm="interlock", charset="UTF-8"'


class ProblemPages:
    """Renders a problem for a browser that asked for a page."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, scope: Scope, problem: WebProblem, request_id: str) -> str | None:
        """Return the page of a problem; None if the request was not for a page."""
        path = str(scope["path"])
        if path.startswith(API) or "text/html" not in (header(scope, b"accept") or ""):
            return None
        if problem.kind is ProblemType.UNAUTHENTICATED:
            problem.headers = {**problem.headers, "WWW-Authenticate": CHALLENGE}
        status = problem.kind.value.status
        caller: Caller | None = scope.get("state", {}).get(CALLER)
        return self._console.render(
            "problem.html",
            theme=theme_of(cookie_parser(header(scope, b"cookie") or "")),
            caller=caller,
            path=path,
            status=status,
            phrase=HTTPStatus(status).phrase,
            title=problem.kind.value.title,
            detail=problem.detail,
            request_id=request_id,
        )
