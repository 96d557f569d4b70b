"""Authenticates requests to HTTP targets: starts, polls and stops in the same way."""

import asyncio
import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode
from weakref import WeakValueDictionary

from worker.core.errors import Rejected, RetryLater
from worker.jobs.http.requests import address
from worker.jobs.http.responses import read_object
from worker.jobs.messages import tidy
from worker.jobs.secrets import Filling
from worker.jobs.specs import Auth
from worker.net.http_client import ForbiddenAddress, HttpAnswer, HttpClient, NotSent, Request
from worker.runtime.clock import Clock

TOKEN_TIMEOUT = timedelta(seconds=10)
# A token is not used until its last second, because the request that carries it takes time too.
_MARGIN_S = 30.0
_LIFETIME_DEFAULT_S = 300.0
_LIFETIME_MAX_S = 86_400.0  # a longer lifetime, however large, is cut to one day
_TOKENS_MAX = 256
_JSON = "application/json"


@dataclass(frozen=True, slots=True)
class TargetAccess:
    """Says how to authenticate to a target; a `login_url` exchanges name and password for a token."""

    auth: Auth | None
    login_url: str = ""

    @property
    def fetches_tokens(self) -> bool:
        if self.auth is None:
            return False
        return self.auth.type == "oauth" or (self.auth.type == "basic" and bool(self.login_url))


@dataclass(frozen=True, slots=True)
class Credentials:
    headers: Mapping[str, str]
    token: str = ""  # the token that was fetched for them, if any
    are_kept: bool = False  # cached from an earlier request, so that new ones may be accepted instead


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    text: str
    good_until_s: float


class Authenticator:
    """Makes `Authorization` headers, and caches fetched tokens until they expire or are rejected."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[TargetAccess, _Token] = {}
        # A lock exists only while a task uses it.
        self._fetching: WeakValueDictionary[TargetAccess, asyncio.Lock] = WeakValueDictionary()

    async def credentials(self, access: TargetAccess, filling: Filling) -> Credentials:
        """Return the credentials for one request.

        Raises `Rejected` if there can never be any, `RetryLater` if there are none now.
        """
        auth = access.auth
        if auth is None:
            return Credentials({})
        if access.fetches_tokens:
            return await self._by_token(access, auth, filling)
        if auth.type == "bearer":
            return Credentials(_bearer(await filling.text(auth.token), filling))
        return Credentials(await _basic(auth.username, auth.password, filling))

    def forget(self, access: TargetAccess, refused: Credentials) -> None:
        """Drop a token that the target rejected; a newer token that another task fetched meanwhile stays."""
        kept = self._tokens.get(access)
        if kept and kept.text == refused.token:
            del self._tokens[access]

    async def _by_token(self, access: TargetAccess, auth: Auth, filling: Filling) -> Credentials:
        # Concurrent starts wait here and find the token that the first one fetched: a hundred runs cause one request.
        lock = self._fetching.setdefault(access, asyncio.Lock())
        async with lock:
            kept = self._tokens.get(access)
            if kept and self._clock.monotonic() < kept.good_until_s:
                return Credentials(_bearer(kept.text, filling), kept.text, are_kept=True)
            fetched = await self._fetch(access, auth, filling)
            if len(self._tokens) >= _TOKENS_MAX:
                self._tokens.clear()
            self._tokens[access] = fetched
            return Credentials(_bearer(fetched.text, filling), fetched.text)

    async def _fetch(self, access: TargetAccess, auth: Auth, filling: Filling) -> _Token:
        request = await _token_request(access, auth, filling)
        reply = await self._client.send(request)
        if isinstance(reply, HttpAnswer) and reply.status in {400, 401, 403} and filling.forget():
            reply = await self._client.send(await _token_request(access, auth, filling))
        if isinstance(reply, NotSent) and reply.is_final:
            raise ForbiddenAddress(tidy(f"no access token: {reply.message}", filling.secrets))
        if not isinstance(reply, HttpAnswer):
            raise RetryLater(tidy(f"no access token: {reply.message}", filling.secrets))
        if 400 <= reply.status < 500 and reply.status not in {408, 429}:
            raise Rejected(
                tidy(f"no access token: {request.target} answered {reply.status}: {reply.text}", filling.secrets)
            )
        return self._read(request, reply)

    def _read(self, request: Request, answer: HttpAnswer) -> _Token:
        members = read_object(answer.body) or {}
        text, lifetime_s = members.get("access_token"), members.get("expires_in")
        if not answer.is_success or not isinstance(text, str):
            # Do not quote the response: it may contain the token under an unexpected key.
            raise RetryLater(f"no access token: {request.target} answered {answer.status} without one")
        seconds = min(lifetime_s, _LIFETIME_MAX_S) if isinstance(lifetime_s, int | float) else _LIFETIME_DEFAULT_S
        return _Token(text=text, good_until_s=self._clock.monotonic() + seconds - _MARGIN_S)


async def _token_request(access: TargetAccess, auth: Auth, filling: Filling) -> Request:
    return await (_grant(auth, filling) if auth.type == "oauth" else _login(access.login_url, auth, filling))


async def _grant(auth: Auth, filling: Filling) -> Request:
    """Return the request for a token with OAuth client credentials."""
    client = {"client_id": await filling.text(auth.client_id), "client_secret": await filling.text(auth.client_secret)}
    is_in_header = auth.client_in == "header"
    credentials = await _basic(auth.client_id, auth.client_secret, filling) if is_in_header else {}
    form = {
        "grant_type": "client_credentials",
        **({} if is_in_header else client),
        **({"scope": auth.scope} if auth.scope else {}),
    }
    return Request(
        method="POST",
        url=await address(auth.token_url, filling),
        headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": _JSON, **credentials},
        body=urlencode(form).encode(),
        timeout=TOKEN_TIMEOUT,
        has_secret_body=not is_in_header,
    )


async def _login(url: str, auth: Auth, filling: Filling) -> Request:
    """Return the request for a token with a name and a password."""
    form = {"username": await filling.text(auth.username), "password": await filling.text(auth.password)}
    return Request(
        method="POST",
        url=url,
        headers={"Content-Type": _JSON, "Accept": _JSON},
        body=json.dumps(form).encode(),
        timeout=TOKEN_TIMEOUT,
        has_secret_body=True,
    )


def _bearer(token: str, filling: Filling) -> dict[str, str]:
    filling.hide(token)
    return {"Authorization": f"Bearer {token}"}


async def _basic(username: str, password: str, filling: Filling) -> dict[str, str]:
    pair = f"{await filling.text(username)}:{await filling.text(password)}"
    encoded = base64.b64encode(pair.encode()).decode()
    filling.hide(encoded)
    return {"Authorization": f"Basic {encoded}"}
