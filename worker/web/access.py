"""Access to the web server: who calls, in which role, and from which site.

`local` is for loopback addresses: every program that reaches the port may read. `token` is for every other address:
each request names a token, of which the settings hold only the hash. With `alb` and `proxy`, whatever stands in front
of the server signs people in, and programs use tokens. Changes need the role operator everywhere; a producer may write
sensors, compare and save records of ledgers, and nothing else.
"""

import hashlib
import hmac
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from worker.core.errors import ConfigError
from worker.web.addresses import Address, is_loopback_name
from worker.web.asgi import Scope, header
from worker.web.problems import ProblemType, WebProblem

TOKENS: Final = "INTERLOCK_WEB_TOKENS"
READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES: Final = frozenset({"same-origin", "none"})
CREDENTIAL_MAX: Final = 1_024
SIGN_IN, SIGN_OUT, STATIC = "/signin", "/signout", "/static/"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_HOST: Final = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?")


class AccessMode(StrEnum):
    LOCAL = "local"
    TOKEN = "token"  # noqa: S105  the name of a mode
    ALB = "alb"
    PROXY = "proxy"


class AccessRole(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    PRODUCER = "producer"  # writes sensors, records of ledgers and summaries, and reads nothing else


@dataclass(frozen=True, slots=True)
class Caller:
    """Caller is who sends a request, as the token's name says, and what they may do."""

    name: str
    role: AccessRole


ANYONE: Final = Caller("local", AccessRole.VIEWER)
# Somebody who is about to sign in: the form is all that they get.
NOBODY: Final = Caller("", AccessRole.VIEWER)
# A job that reports its end has no token of ours: the address that it was given is its permission.
JOB: Final = Caller("job", AccessRole.VIEWER)
CALLBACKS: Final = "/api/v1/jobs/"
SENSORS: Final = "/api/v1/sensors"
# What a job calls while it runs, besides writing sensors.
JOB_CALLS: Final = re.compile(r"/api/v1/(ledgers/[^/]+/(diff|commit|seed)|runs/[^/]+/[^/]+/[^/]+/summary)")

# Returns who was signed in before a request came here. Raises `WebProblem`, and `RetryLater` if it cannot tell.
Identify: TypeAlias = Callable[[Scope], Awaitable[Caller]]


@dataclass(frozen=True, slots=True, repr=False)
class AccessToken:
    """AccessToken holds the hash of one token, and whom it stands for."""

    caller: Caller
    sha256: str


def parse_tokens(text: str) -> tuple[AccessToken, ...]:
    """Parse `NAME:ROLE:SHA256`, separated by commas. Raises `ConfigError`, which never shows a hash."""
    given = [part.strip() for part in text.split(",") if part.strip()]
    tokens = tuple(_token(number, part) for number, part in enumerate(given, start=1))
    if len({token.sha256 for token in tokens}) < len(tokens):
        raise ConfigError(f"{TOKENS} has the same token twice; give each name a token of its own")
    return tokens


def _token(number: int, text: str) -> AccessToken:
    match text.split(":"):
        case [name, role, sha256] if _NAME.fullmatch(name) and role in set(AccessRole) and _HASH.fullmatch(sha256):
            return AccessToken(Caller(name, AccessRole(role)), sha256)
        case _:
            raise ConfigError(
                f"entry {number} of {TOKENS} is not NAME:ROLE:SHA256; the role is {' or '.join(AccessRole)}, and "
                "`printf %s TOKEN | sha256sum` prints the hash in hex"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRules:
    """AccessRules decide about requests. `public_url` is "" if the server has no public name.

    `identify` is who knows the caller in the modes `alb` and `proxy`, `session` who knows the browsers that signed in.
    """

    address: Address
    mode: AccessMode = AccessMode.LOCAL
    tokens: Sequence[AccessToken] = ()
    public_url: str = ""
    is_read_only: bool = False
    identify: Identify | None = None
    session: Callable[[Scope], Caller | None] | None = None

    def __post_init__(self) -> None:
        if self.mode is AccessMode.LOCAL and not self.address.is_loopback:
            raise ConfigError(
                f"{self.address} can be reached from other machines, so requests must be authenticated; "
                f"set INTERLOCK_WEB_AUTH=token and {TOKENS}, or serve on 127.0.0.1"
            )
        if self.mode in {AccessMode.ALB, AccessMode.PROXY} and self.identify is None:
            raise ConfigError(f"INTERLOCK_WEB_AUTH is {self.mode}, and nothing says who signs people in")
        if self.mode is AccessMode.TOKEN and not self.tokens:
            raise ConfigError(f"INTERLOCK_WEB_AUTH is token and there is no token; set {TOKENS}")

    async def admit(self, scope: Scope) -> Caller:
        """Return who calls. Raises `WebProblem` for a request that must not reach a handler, and `RetryLater`."""
        self.check_host(scope)
        if str(scope["path"]).startswith(CALLBACKS):
            self._check_writable()
            return JOB
        if self.session is not None and scope["path"] in {SIGN_IN, SIGN_OUT}:
            return await self._about_to_sign_in(scope)
        if self.session is not None and scope["method"] in READS and str(scope["path"]).startswith(STATIC):
            return NOBODY  # the form's style and scripts, which are in every copy of Interlock
        caller = await self._caller(scope)
        if caller.role is AccessRole.PRODUCER and not _is_for_producers(scope):
            raise WebProblem(
                ProblemType.FORBIDDEN, "the role producer may write sensors and use ledgers, and nothing else"
            )
        if scope["method"] not in READS:
            self._check_site(scope)
            self._check_writable()
            if caller.role is AccessRole.VIEWER:
                raise WebProblem(ProblemType.FORBIDDEN, "changes need the role operator")
        return caller

    async def _about_to_sign_in(self, scope: Scope) -> Caller:
        """Admit anyone to the form, from our own pages only: another site must not sign a browser in or out."""
        if scope["method"] not in READS:
            self._check_site(scope)
        try:
            return await self._caller(scope)
        except WebProblem:
            return NOBODY

    def _check_writable(self) -> None:
        if self.is_read_only:
            raise WebProblem(ProblemType.READ_ONLY, "this server changes nothing; use another, or a command")

    def check_host(self, scope: Scope) -> None:
        """Reject a host that is not ours: a foreign name may have been made to resolve to this machine."""
        host = _host_of(scope)
        if host is None:
            raise WebProblem(ProblemType.BAD_REQUEST, "the request needs exactly one valid Host header")
        if is_loopback_name(host) or host == self._public_host:
            return
        if self.address.is_loopback or self._public_host:
            raise WebProblem(ProblemType.WRONG_HOST, "use the name of INTERLOCK_PUBLIC_URL, or a loopback address")

    @property
    def _public_host(self) -> str:
        return (urlsplit(self.public_url).hostname or "") if self.public_url else ""

    # --- who ----------------------------------------------------------------------------------------------------------

    async def _caller(self, scope: Scope) -> Caller:
        if any(key == b"authorization" for key, _ in scope["headers"]):
            return self._named(header(scope, b"authorization") or "")
        if self.session is not None and (caller := self.session(scope)) is not None:
            return caller
        if self.mode is AccessMode.LOCAL:
            return ANYONE
        if self.identify is not None:
            return await self.identify(scope)
        raise unauthenticated("the request has no token; send it as `Authorization: Bearer TOKEN`")

    def _named(self, authorization: str) -> Caller:
        scheme, _, credential = authorization.partition(" ")
        credential = credential.strip()
        if scheme.lower() == "basic":
            credential = _password(credential)
        elif scheme.lower() != "bearer":
            raise unauthenticated("the scheme is not known; use `Authorization: Bearer TOKEN`")
        if not 0 < len(credential) <= CREDENTIAL_MAX:
            raise unauthenticated("the token is not valid")
        token = matching_token(self.tokens, credential)
        if token is None:
            raise unauthenticated("the token is not valid")
        return token.caller

    # --- from where ---------------------------------------------------------------------------------------------------

    def _check_site(self, scope: Scope) -> None:
        """Reject a change that another site's page sent through a browser."""
        names = {key for key, _ in scope["headers"]}
        if b"sec-fetch-site" in names:
            if header(scope, b"sec-fetch-site") not in OWN_SITES:
                raise WebProblem(ProblemType.CROSS_SITE, "the browser says that another site sent this request")
        elif b"origin" in names:
            if header(scope, b"origin") not in self._origins(scope):
                raise WebProblem(ProblemType.CROSS_SITE, "the Origin is not this server's")
        elif b"authorization" not in names:
            raise unauthenticated("changes need a token; send it as `Authorization: Bearer TOKEN`")
        elif not (header(scope, b"authorization") or "").lower().startswith("bearer "):
            # A browser says where a request comes from. What does not is a program, and a program has a token.
            raise WebProblem(ProblemType.CROSS_SITE, "a program must send `Authorization: Bearer TOKEN`")

    def _origins(self, scope: Scope) -> set[str]:
        if self.public_url:
            parts = urlsplit(self.public_url)
            return {f"{parts.scheme}://{parts.netloc}".lower()}
        return {f"http://{header(scope, b'host')}".lower()}


def matching_token(tokens: Sequence[AccessToken], text: str) -> AccessToken | None:
    """Return the token with this text; None if there is none."""
    found = hashlib.sha256(text.encode()).hexdigest()
    # Every token is compared, so that the time says nothing about which one was close.
    matching = [token for token in tokens if hmac.compare_digest(token.sha256, found)]
    return matching[0] if matching else None


def _is_for_producers(scope: Scope) -> bool:
    path = str(scope["path"])
    is_sensor = path == SENSORS or path.startswith(f"{SENSORS}/")
    return scope["method"] == "POST" and (is_sensor or JOB_CALLS.fullmatch(path) is not None)


def _host_of(scope: Scope) -> str | None:
    given = [value for key, value in scope["headers"] if key == b"host"]
    found = _HOST.fullmatch(given[0].decode("latin-1")) if len(given) == 1 else None
    return None if found is None else found["name"].strip("[]").lower().removesuffix(".")


def _password(credential: str) -> str:
    try:
        return b64decode(credential, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def unauthenticated(detail: str) -> WebProblem:
    """Return the problem of a request whose sender is not known."""
    return WebProblem(ProblemType.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": 'Bearer realm="interlock"'})
