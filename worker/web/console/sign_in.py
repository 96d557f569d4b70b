"""Sign-in: a form takes a token once, and a signed cookie stands for it from then on."""

from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from worker.runtime.logs import logger
from worker.web.access import CREDENTIAL_MAX, SIGN_OUT, AccessRole
from worker.web.addresses import is_loopback_name
from worker.web.console.console import Console
from worker.web.console.links import is_own_path
from worker.web.identity.browser_sessions import COOKIE, KEPT, BrowserSessions
from worker.web.problems import ProblemType, WebProblem

FIELDS_MAX: Final = 5

_log = logger()


async def sign_in(console: Console, request: Request) -> Response:
    """Serve the form, and begin a session for a token: then lead to where the caller came from."""
    sessions = console.sessions
    if sessions is None:
        raise WebProblem(ProblemType.NOT_FOUND, "there is no token to sign in with; set INTERLOCK_WEB_TOKENS")
    if request.method != "POST":
        to = _own(request.query_params.get("to", "/"))
        if "authorization" in request.headers:
            return RedirectResponse(f"{console.links.base}{to}", 303)
        return await _form(console, request, to)
    return await _begin(console, sessions, request)


async def sign_out(console: Console, request: Request) -> Response:
    """End the session of this browser."""
    author = console.author(request)
    _log.info("web.signed_out", name=author.caller.name, client=_client(request), request_id=author.request_id)
    response = RedirectResponse(console.links.to(), 303)
    response.delete_cookie(COOKIE, path=f"{console.links.base}/", httponly=True, samesite="lax")
    return response


async def _begin(console: Console, sessions: BrowserSessions, request: Request) -> Response:
    fields = await _fields(request)
    to, client, request_id = _own(fields.get("to", "/")), _client(request), console.author(request).request_id
    if sessions.tries.are_too_many(client):
        raise WebProblem(ProblemType.TOO_MANY, "too many tries to sign in failed; try again in a minute")
    given = fields.get("token", "").strip()
    token = sessions.token_of(given) if 0 < len(given) <= CREDENTIAL_MAX else None
    if token is None:
        sessions.tries.note(client)
        _log.info("web.sign_in_failed", client=client, request_id=request_id)
        return await _form(console, request, to, problem="this is not a valid token")
    if token.caller.role is AccessRole.PRODUCER:
        return await _form(console, request, to, problem="this token writes sensors, and cannot read pages")
    caller = token.caller
    _log.info("web.signed_in", name=caller.name, role=caller.role.value, client=client, request_id=request_id)
    response = RedirectResponse(f"{console.links.base}{to}", 303)
    response.set_cookie(
        COOKIE,
        sessions.begin(token),
        max_age=int(KEPT.total_seconds()),
        path=f"{console.links.base}/",
        httponly=True,
        secure=not is_loopback_name((request.url.hostname or "").strip("[]")),
        samesite="lax",
    )
    return response


async def _form(console: Console, request: Request, to: str, *, problem: str = "") -> Response:
    return await console.page(request, "sign_in.html", status=401 if problem else 200, to=to, problem=problem)


async def _fields(request: Request) -> dict[str, str]:
    try:
        found = parse_qs((await request.body()).decode(), max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise WebProblem(ProblemType.BAD_REQUEST, "the form cannot be read") from error
    return {name: each[0] for name, each in found.items()}


def _own(path: str) -> str:
    """Return where to go on: a path of this server, and never the end of the session."""
    return path if is_own_path(path) and path.partition("?")[0] != SIGN_OUT else "/"


def _client(request: Request) -> str:
    return request.client.host if request.client else ""
