"""HTTP client: sends one request to an external service and reports whether it may have arrived.

After a failure, the question that matters is whether the request may have arrived. The moment at which the first byte
leaves decides this, not the kind of the error: before that moment the request was certainly not sent.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from socket import AF_UNSPEC
from ssl import SSLError
from types import SimpleNamespace, TracebackType
from typing import Self, TypeAlias, cast

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from worker.core.errors import Rejected
from worker.core.run.state import FailureCategory
from worker.jobs.runner import always
from worker.net.address_policy import AddressPolicy, AddressRefused
from worker.net.guarded_connector import AddressGuard, guarded_connector

ANSWER_BYTES_MAX = 65_536
REDIRECTS_MAX = 5

_CONNECT_TIMEOUT_S = 5.0
# As many as the engine has calls under way: a few slow targets must not delay the starts of all others.
CONNECTIONS_MAX = 512
_CHUNK_BYTES = 16_384
_LINE_BREAK = re.compile(r"[\r\n\0]")
_AS_IT_IS = frozenset({307, 308})
_BY_GET = frozenset({301, 302, 303})
# The only headers that may follow a redirect to another origin: any other header of a pipeline may be a credential.
_HARMLESS = frozenset({"accept", "content-type", "idempotency-key"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    timeout: timedelta = timedelta(seconds=30)
    # A request with effects is sent once, on its own connection. An idle connection may break in a way that looks like
    # a lost request, and the library would retry some methods by itself.
    once: bool = False
    may_send: Callable[[], bool] = always
    answer_bytes_max: int = ANSWER_BYTES_MAX
    has_secret_body: bool = False  # only the origin it was written for may see it

    @property
    def target(self) -> str:
        """Return method and address without user, query and fragment, which may hold credentials."""
        try:
            url = URL(self.url)
            return f"{self.method} {url.origin()}{url.raw_path}"
        except ValueError:
            return f"{self.method} to something that is no address"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """Holds status, headers and the first part of the body (64 KiB by default)."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True  # the body was received to its end
    is_cut: bool = False  # the body is longer than the part that is kept

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class NotSent:
    """NotSent: nothing left this machine, or it was rejected before it could have any effect.

    `is_final`: the policy forbids the address, so a retry would fail the same way.
    """

    category: FailureCategory
    message: str
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Unanswered: the request may have arrived; its effect is unknown."""

    message: str


Reply: TypeAlias = HttpAnswer | NotSent | Unanswered


class ForbiddenAddress(Rejected):
    """ForbiddenAddress: the policy forbids a connection to a service that must be asked first."""


class _Forbidden(Exception):
    """Raised just before a request is sent, because it must not be sent."""


class _Passage:
    """Records whether one request has left this machine."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.has_left = False

    def leave(self) -> None:
        if self.has_left and self._request.once:
            raise _Forbidden("the connection broke after the request had been sent")
        if not self._request.may_send():
            raise _Forbidden("this worker may not send any more; another one will")
        self.has_left = True


async def _on_leaving(_session: aiohttp.ClientSession, context: SimpleNamespace, _headers: object) -> None:
    # aiohttp calls this once the connection is open and before the first byte; nothing else runs in between.
    cast("_Passage", context.trace_request_ctx).leave()


class HttpClient:
    """Sends requests to addresses the policy allows; a context manager that keeps connections for polls."""

    def __init__(self, policy: AddressPolicy, *, resolver: AbstractResolver | None = None) -> None:
        self._policy = policy
        self._guard = AddressGuard(policy, resolver)
        self._fresh = _session(self._guard, reuse=False)
        self._kept = _session(self._guard, reuse=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._fresh.close()
        await self._kept.close()
        await self._guard.close()  # the library does not close a resolver that it did not create

    async def addresses(self, host: str, port: int) -> list[str]:
        """Return the addresses that a connection to a host may use, for clients of other protocols.

        Raises `AddressRefused`, and `OSError` if the name is not found.
        """
        return [answer["host"] for answer in await self._guard.resolve(host, port, AF_UNSPEC)]

    async def send(self, request: Request) -> Reply:
        """Send a request and follow redirects, all within the request's timeout."""
        deadline = asyncio.get_running_loop().time() + request.timeout.total_seconds()
        for _ in range(REDIRECTS_MAX + 1):
            reply = await self._hop(request, deadline)
            location = _redirection(request, reply)
            if location is None:
                return reply
            following = onward(request, location)
            if isinstance(following, NotSent):
                return following
            request = following
        return NotSent(FailureCategory.PERMANENT, f"{request.target}: more than {REDIRECTS_MAX} redirects")

    async def _hop(self, request: Request, deadline: float) -> Reply:
        passage = _Passage(request)
        try:
            _check_headers(request.headers)
            self._policy.check_host(URL(request.url).host or "")
            async with asyncio.timeout_at(deadline):
                response = await self._open(request, passage)
        except (aiohttp.ClientError, OSError, ValueError, _Forbidden) as error:
            return _account(request, passage, error)
        async with response:
            return await _read(response, deadline, request)

    async def _open(self, request: Request, passage: _Passage) -> aiohttp.ClientResponse:
        session = self._fresh if request.once else self._kept
        return await session.request(
            request.method,
            URL(request.url),
            headers=request.headers,
            data=request.body or None,
            allow_redirects=False,
            trace_request_ctx=passage,
        )


def _session(guard: AddressGuard, *, reuse: bool) -> aiohttp.ClientSession:
    tracing = aiohttp.TraceConfig()
    tracing.on_request_headers_sent.append(_on_leaving)
    return aiohttp.ClientSession(
        connector=guarded_connector(guard, connections_max=CONNECTIONS_MAX, reuse=reuse),
        cookie_jar=aiohttp.DummyCookieJar(),
        # `send` enforces the total timeout; a connection that cannot be opened fails much earlier.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_S),
        # A compressed answer can be a thousand times larger than it appears; with this header servers do not compress.
        auto_decompress=False,
        headers={"Accept-Encoding": "identity", "User-Agent": "interlock"},
        trace_configs=[tracing],
    )


def _check_headers(headers: Mapping[str, str]) -> None:
    # The library rejects them too, but only once the connection is open, and its error quotes the value.
    for name, value in headers.items():
        if _LINE_BREAK.search(name + value):
            raise ValueError(f"the header {name!r} holds a line break")


def _account(request: Request, passage: _Passage, error: Exception) -> NotSent | Unanswered:
    message = f"{request.target}: {_reason(error)}"
    if passage.has_left:
        return Unanswered(message)
    return NotSent(_category(error), message, is_final=_refusal(error) is not None)


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if refusal := _refusal(error):
        return str(refusal)
    return str(error) or type(error).__name__


def _category(error: BaseException) -> FailureCategory:
    if isinstance(error, TimeoutError):
        return FailureCategory.TIMEOUT
    if isinstance(error, SSLError):  # a `ValueError`, too, if the certificate is expired or wrong: it is replaced
        return FailureCategory.TRANSIENT
    if _refusal(error) or isinstance(error, ValueError):  # an invalid URL or header stays invalid
        return FailureCategory.PERMANENT
    return FailureCategory.TRANSIENT


def _refusal(error: BaseException | None) -> AddressRefused | None:
    """Return the policy's refusal among the causes of an error; None if there is none."""
    while error and not isinstance(error, AddressRefused):
        error = error.__cause__
    return error


async def _read(response: aiohttp.ClientResponse, deadline: float, request: Request) -> HttpAnswer:
    """Read the first part of a body; read it to its end only if the job ends with the answer."""
    kept = bytearray()
    is_cut = False
    answer = HttpAnswer(status=response.status, headers=response.headers, body=b"")
    try:
        async with asyncio.timeout_at(deadline):
            while chunk := await response.content.read(_CHUNK_BYTES):
                is_cut = is_cut or len(kept) + len(chunk) > request.answer_bytes_max
                kept += chunk[: request.answer_bytes_max - len(kept)]
                if is_cut and not request.once:
                    # Closing skips the rest of the body. It also loses the connection, which is cheaper.
                    response.close()
                    break
    except (aiohttp.ClientError, OSError):
        return replace(answer, body=bytes(kept), is_whole=False, is_cut=is_cut)
    return replace(answer, body=bytes(kept), is_cut=is_cut)


def _redirection(request: Request, reply: Reply) -> str | None:
    """Return the location to follow; None if the reply is final.

    301, 302 and 303 would turn a POST into a GET, which starts nothing and looks like success, so only a GET
    follows them.
    """
    if not isinstance(reply, HttpAnswer):
        return None
    followed = _AS_IT_IS | _BY_GET if request.method == "GET" else _AS_IT_IS
    return reply.headers.get("Location") if reply.status in followed else None


def onward(request: Request, location: str) -> Request | NotSent:
    """Return the request that follows a redirect, or `NotSent` if the redirect is unsafe.

    It never leaves HTTPS, and it sends no credentials to another origin.
    """
    here = URL(request.url)
    try:
        there = here.join(URL(location))
        is_same_origin = here.origin() == there.origin()
    except ValueError:
        return NotSent(FailureCategory.PERMANENT, f"{request.target}: redirects to something that is no address")
    if there.scheme not in {"http", "https"} or (here.scheme == "https" and there.scheme != "https"):
        return NotSent(FailureCategory.PERMANENT, f"{request.target}: redirects to {there.scheme}, which is not safe")
    if is_same_origin:
        return replace(request, url=str(there))
    if request.has_secret_body:
        problem = "redirects to another origin, which must not see the secrets in its body; send it there directly"
        return NotSent(FailureCategory.PERMANENT, f"{request.target}: {problem}")
    kept = {name: value for name, value in request.headers.items() if name.lower() in _HARMLESS}
    return replace(request, url=str(there), headers=kept)
