"""Sessions of browsers: a signed cookie stands for a token, which is entered once in 12 hours.

The cookie holds the token's name and when the session ends, never the token. Its signature covers the token's hash, so
a token that is removed or replaced ends its sessions.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from starlette.requests import cookie_parser

from worker.runtime.clock import Clock
from worker.web.access import AccessToken, Caller, matching_token
from worker.web.asgi import Scope, header

COOKIE: Final = "interlock-session"
KEPT: Final = timedelta(hours=12)
COOKIE_MAX: Final = 256
TRIES_MAX: Final = 10  # that fail, from one address in a minute
ADDRESSES_MAX: Final = 1_000
_MINUTE_S: Final = 60.0


class BrowserSessions:
    """Begins sessions and knows whose a request is. Processes that share `key` know each other's."""

    def __init__(self, tokens: Sequence[AccessToken], clock: Clock, key: bytes) -> None:
        self._tokens, self._clock = tokens, clock
        self._key = hashlib.sha256(b"interlock browser session\n" + key).digest()
        self.tries = FailedTries(clock)

    def token_of(self, text: str) -> AccessToken | None:
        """Return the token that a person entered; None if it is none."""
        return matching_token(self._tokens, text)

    def begin(self, token: AccessToken) -> str:
        """Return the value of the cookie."""
        ends = int((self._clock.now() + KEPT).timestamp())
        return f"{token.caller.name}:{ends}:{self._signature(token, ends)}"

    def caller(self, scope: Scope) -> Caller | None:
        """Return whose session a request belongs to; None without one, or if it is over."""
        value = cookie_parser(header(scope, b"cookie") or "").get(COOKIE, "")
        name, _, rest = value.partition(":")
        end, _, signature = rest.partition(":")
        if len(value) > COOKIE_MAX or not (end.isascii() and end.isdecimal() and signature.isascii()):
            return None
        if int(end) <= self._clock.now().timestamp():
            return None
        of_name = [token for token in self._tokens if token.caller.name == name]
        found = [token for token in of_name if hmac.compare_digest(self._signature(token, int(end)), signature)]
        return found[0].caller if found else None

    def _signature(self, token: AccessToken, ends: int) -> str:
        text = f"{token.caller.name}\n{token.sha256}\n{ends}"
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


class FailedTries:
    """Counts the tries that failed in the last minute, by address, of the addresses seen last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, list[float]] = OrderedDict()

    def are_too_many(self, address: str) -> bool:
        return len(self._recent(address)) >= TRIES_MAX

    def note(self, address: str) -> None:
        self._tries[address] = [*self._recent(address), self._clock.monotonic()]
        self._tries.move_to_end(address)
        if len(self._tries) > ADDRESSES_MAX:
            self._tries.popitem(last=False)

    def _recent(self, address: str) -> list[float]:
        since = self._clock.monotonic() - _MINUTE_S
        return [at for at in self._tries.get(address, ()) if at > since]
