"""Problems as pages, for browsers; programs get problem documents."""

from http import HTTPStatus

from starlette.requests import cookie_parser

from worker.operations.page_links import page_path
from worker.web.access import SIGN_IN, Caller
from worker.web.asgi import Scope, header
from worker.web.console.console import Console
from worker.web.console.wording import theme_of
from worker.web.guard import CALLER
from worker.web.problems import ProblemType, WebProblem

API: str = "/api/"


class ProblemPages:
    """Renders a problem for a browser that asked for a page."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, scope: Scope, problem: WebProblem, request_id: str) -> str | None:
        """Return the page of a problem; None if the request was not for a page."""
        path = str(scope["path"])
        if path.startswith(API) or "text/html" not in (header(scope, b"accept") or ""):
            return None
        status = problem.kind.value.status
        theme = theme_of(cookie_parser(header(scope, b"cookie") or ""))
        if problem.kind is ProblemType.UNAUTHENTICATED and self._console.sessions is not None:
            # The address stays that of the page, so that the link works after the form.
            told = problem.detail if header(scope, b"authorization") else ""
            return self._console.render(
                "sign_in.html", theme=theme, caller=None, path=SIGN_IN, to=_target(scope), problem=told
            )
        caller: Caller | None = scope.get("state", {}).get(CALLER)
        return self._console.render(
            "problem.html",
            theme=theme,
            caller=caller,
            path=path,
            status=status,
            phrase=HTTPStatus(status).phrase,
            title=problem.kind.value.title,
            detail=problem.detail,
            request_id=request_id,
        )


def _target(scope: Scope) -> str:
    """Return where to go on after the sign-in: the page that was asked for."""
    if scope["method"] != "GET":
        return "/"
    query = scope.get("query_string", b"").decode("latin-1")
    return page_path(*str(scope["path"]).strip("/").split("/")) + (f"?{query}" if query else "")
