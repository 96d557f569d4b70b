"""How requests to HTTP targets are authenticated; polls and stops are, exactly as starts are."""

import base64
import json
from dataclasses import dataclass
from datetime import timedelta
from typing import cast
from urllib.parse import urlencode

from worker.clock import Clock
from worker.core.errors import Rejected, RetryLater
from worker.jobs.http_client import Answer, HttpClient, Request
from worker.jobs.messages import tidy
from worker.jobs.secrets import Filling
from worker.jobs.specs import Auth

TOKEN_TIMEOUT = timedelta(seconds=10)
# A token is not used up to its last second: the request that carries it takes time too.
_MARGIN_S = 30.0
_LIFETIME_DEFAULT_S = 300.0
_TOKENS_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    text: str
    good_until_s: float


class Authenticator:
    """Makes `Authorization` headers, and keeps the tokens of OAuth clients until they expire or are refused."""

    def __init__(self, client: HttpClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[tuple[str, ...], _Token] = {}

    async def header(self, auth: Auth | None, filling: Filling) -> dict[str, str]:
        """The header for one request. Raises `Rejected` if it can never be made, `RetryLater` if not now."""
        if auth is None:
            return {}
        match auth.type:
            case "bearer":
                credential = f"Bearer {await filling.text(auth.token)}"
            case "basic":
                pair = f"{await filling.text(auth.username)}:{await filling.text(auth.password)}"
                credential = f"Basic {base64.b64encode(pair.encode()).decode()}"
            case "oauth":
                credential = f"Bearer {await self._oauth_token(auth, filling)}"
        filling.hide(credential.partition(" ")[2])
        return {"Authorization": credential}

    def forget(self, auth: Auth | None) -> bool:
        """Drop a token that was refused; True if there was one, so that a second try makes sense."""
        return auth is not None and self._tokens.pop(_name(auth), None) is not None

    async def _oauth_token(self, auth: Auth, filling: Filling) -> str:
        kept = self._tokens.get(_name(auth))
        if kept and self._clock.monotonic() < kept.good_until_s:
            return kept.text
        fetched = await self._fetch(auth, filling)
        if len(self._tokens) >= _TOKENS_MAX:
            self._tokens.clear()
        self._tokens[_name(auth)] = fetched
        return fetched.text

    async def _fetch(self, auth: Auth, filling: Filling) -> _Token:
        form = {
            "grant_type": "client_credentials",
            "client_id": await filling.text(auth.client_id),
            "client_secret": await filling.text(auth.client_secret),
            **({"scope": auth.scope} if auth.scope else {}),
        }
        request = Request(
            method="POST",
            url=auth.token_url,
            headers={"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"},
            body=urlencode(form).encode(),
            timeout=TOKEN_TIMEOUT,
        )
        reply = await self._client.send(request)
        if not isinstance(reply, Answer):
            raise RetryLater(tidy(f"no access token: {reply.message}", filling.secrets))
        if 400 <= reply.status < 500 and reply.status not in {408, 429}:
            raise Rejected(
                tidy(f"no access token: {request.target} answered {reply.status}: {reply.text}", filling.secrets)
            )
        return self._read(request, reply)

    def _read(self, request: Request, answer: Answer) -> _Token:
        members = _members(answer.body)
        text, lifetime_s = members.get("access_token"), members.get("expires_in")
        if not answer.is_success or not isinstance(text, str):
            # The answer is not quoted: it may hold the token in a place where nobody looks for it.
            raise RetryLater(f"no access token: {request.target} answered {answer.status} without one")
        seconds = float(lifetime_s) if isinstance(lifetime_s, int | float) else _LIFETIME_DEFAULT_S
        return _Token(text=text, good_until_s=self._clock.monotonic() + seconds - _MARGIN_S)


def _name(auth: Auth) -> tuple[str, ...]:
    return auth.token_url, auth.client_id, auth.client_secret, auth.scope


def _members(body: bytes) -> dict[str, object]:
    try:
        found = cast("object", json.loads(body))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", found) if isinstance(found, dict) else {}
