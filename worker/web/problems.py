"""WebProblem documents (RFC 9457): every response that is an error is one, of a closed list of types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from worker.core.errors import ConfigError, Rejected, WorkerError
from worker.runtime.json_bytes import to_json
from worker.runtime.logs import redacted_text
from worker.web.asgi import Header, Send, respond

PROBLEM_JSON: Final = "application/problem+json"
RETRY_AFTER_S: Final = 5


@dataclass(frozen=True, slots=True)
class ProblemKind:
    slug: str
    status: int
    title: str


class ProblemType(Enum):
    """ProblemType lists every type of problem that a response can have; programs match on its slug."""

    BAD_REQUEST = ProblemKind("bad-request", 400, "The request is not understood")
    BAD_CURSOR = ProblemKind("bad-cursor", 400, "The cursor is not one of this list")
    WINDOW_TOO_LONG = ProblemKind("window-too-long", 400, "The span of time is too long")
    UNAUTHENTICATED = ProblemKind("unauthenticated", 401, "A valid token is needed")
    FORBIDDEN = ProblemKind("forbidden", 403, "The role does not allow this")
    CROSS_SITE = ProblemKind("cross-site", 403, "Another site sent the request")
    READ_ONLY = ProblemKind("read-only", 403, "This server is read-only")
    NOT_FOUND = ProblemKind("not-found", 404, "There is nothing at this path")
    UNKNOWN_PIPELINE = ProblemKind("unknown-pipeline", 404, "There is no such pipeline")
    UNKNOWN_RUN = ProblemKind("unknown-run", 404, "There is no such run")
    UNKNOWN_DEAD_LETTER = ProblemKind("unknown-dead-letter", 404, "There is no such dead letter")
    METHOD_NOT_ALLOWED = ProblemKind("method-not-allowed", 405, "The path does not have this method")
    TOO_SLOW = ProblemKind("too-slow", 408, "The request did not arrive in time")
    CONFLICT = ProblemKind("conflict", 409, "Something else was written at the same time")
    PREVIEW_CHANGED = ProblemKind("preview-changed", 409, "The set of runs is not the one previewed")
    NOTHING_TO_DO = ProblemKind("nothing-to-do", 409, "There is nothing to do")
    TOO_LARGE = ProblemKind("too-large", 413, "The request is too large")
    WRONG_HOST = ProblemKind("wrong-host", 421, "The host is not this server's")
    INVALID = ProblemKind("invalid", 422, "The content is not valid")
    TOO_MANY = ProblemKind("too-many", 429, "There are too many requests")
    HEADERS_TOO_LARGE = ProblemKind("headers-too-large", 431, "The request's headers are too large")
    INTERNAL = ProblemKind("internal", 500, "The server made a mistake")
    STORE_UNAVAILABLE = ProblemKind("store-unavailable", 503, "The store does not answer")


_WORTH_A_RETRY: Final = frozenset({ProblemType.STORE_UNAVAILABLE, ProblemType.TOO_MANY})


@dataclass(frozen=True, slots=True)
class FieldError:
    """FieldError says what is wrong at one place of a request's content."""

    where: str
    what: str


class WebProblem(Exception):
    """WebProblem ends a request with a problem document."""

    def __init__(
        self,
        kind: ProblemType,
        detail: str = "",
        *,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail or kind.value.title)
        self.kind, self.detail, self.errors = kind, detail, tuple(errors)
        retry = {"Retry-After": str(RETRY_AFTER_S)} if kind in _WORTH_A_RETRY else {}
        self.headers: Mapping[str, str] = {**retry, **(headers or {})}


def problem_of(error: WorkerError) -> WebProblem:
    """Return the problem of an error whose type says what the caller should do."""
    text = redacted_text(str(error))
    match error:
        case ConfigError() | Rejected():
            return WebProblem(ProblemType.BAD_REQUEST, text)
        case _:
            return WebProblem(ProblemType.STORE_UNAVAILABLE, text)


def problem_body(problem: WebProblem, request_id: str = "") -> bytes:
    kind = problem.kind.value
    document: dict[str, object] = {
        "type": f"urn:interlock:problem:{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": problem.detail or None,
        "requestId": request_id or None,
        "errors": [{"where": each.where, "what": each.what} for each in problem.errors] or None,
    }
    return to_json({name: value for name, value in document.items() if value is not None})


def problem_headers(problem: WebProblem) -> list[Header]:
    return [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in problem.headers.items()]


async def send_problem(send: Send, problem: WebProblem, request_id: str = "") -> None:
    body = problem_body(problem, request_id)
    await respond(send, problem.kind.value.status, body, PROBLEM_JSON, problem_headers(problem))
