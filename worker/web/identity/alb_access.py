"""Access behind an AWS load balancer that signs users in with OIDC.

The load balancer sends what it knows of the user in `x-amzn-oidc-data`, a JSON Web Token that it signs. Every request
is checked: the algorithm, the signature by the key of the region, that *our* load balancer signed it, for our client,
and that it has not expired. `x-amzn-oidc-identity` is not signed, and is never read.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import jwt

from worker.core.errors import ConfigError
from worker.runtime.clock import Clock
from worker.web.access import Caller, unauthenticated
from worker.web.asgi import Scope, header
from worker.web.identity.key_source import KeySource
from worker.web.operators import GROUPS_MAX, WebOperators, is_name
from worker.web.problems import WebProblem

TOKEN_MAX: Final = 16_384
LEEWAY_S: Final = 5.0  # clocks differ
LIFETIME_MAX_S: Final = 3_600.0  # a load balancer's tokens live for two minutes
ALGORITHM: Final = "ES256"

_KID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GROUPS: Final = ("groups", "cognito:groups")


@dataclass(frozen=True, slots=True)
class AlbAccess:
    """Reads who calls from the signed token of one load balancer. `client` is our OIDC client's id."""

    arn: str
    client: str
    keys: KeySource
    operators: WebOperators
    clock: Clock

    def __post_init__(self) -> None:
        if not self.client:
            raise ConfigError("INTERLOCK_WEB_AUTH is alb; set INTERLOCK_WEB_ALB_CLIENT to the id of the OIDC client")

    async def identify(self, scope: Scope) -> Caller:
        """Return who calls. Raises `WebProblem` for a bad token, and `RetryLater` without its key."""
        token = header(scope, b"x-amzn-oidc-data") or ""
        if not 0 < len(token) <= TOKEN_MAX:
            raise unauthenticated("requests must come through the load balancer, signed in")
        head = self._checked_head(token)
        key = await self.keys.key(str(head["kid"]))
        if key is None:
            raise _rejected()
        try:
            # The times are checked below, on the injected clock; the library would read the machine's.
            options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False, "verify_aud": False}
            claims = cast("Mapping[str, Any]", jwt.decode(token, key, algorithms=[ALGORITHM], options=options))
        except (jwt.PyJWTError, ValueError, TypeError):
            raise _rejected() from None
        if "exp" in claims:
            self._check_time(claims["exp"])
        return self._caller(claims)

    def _checked_head(self, token: str) -> Mapping[str, Any]:
        try:
            head = cast("Mapping[str, Any]", jwt.get_unverified_header(token))
        except (jwt.PyJWTError, ValueError, TypeError):
            raise _rejected() from None
        is_ours = head.get("signer") == self.arn and head.get("client") == self.client
        kid = head.get("kid")
        if head.get("alg") != ALGORITHM or not is_ours or not isinstance(kid, str) or not _KID.fullmatch(kid):
            raise _rejected()
        self._check_time(head.get("exp"))
        return head

    def _check_time(self, expires: object) -> None:
        now_s = self.clock.now().timestamp()
        if isinstance(expires, bool) or not isinstance(expires, int | float):
            raise _rejected()
        if not now_s - LEEWAY_S < expires < now_s + LIFETIME_MAX_S:
            raise unauthenticated("the load balancer's token has expired; load the page again")

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        # An address that nobody verified may be anyone's, so it names nobody.
        is_verified = claims.get("email_verified") in (True, "true")
        user: object = (claims.get("email") if is_verified else None) or claims.get("sub")
        if not isinstance(user, str) or not is_name(user):
            raise _rejected()
        groups: list[str] = []
        for name in _GROUPS:
            given: object = claims.get(name)
            listed = given.split(",") if isinstance(given, str) else given
            if isinstance(listed, list):
                groups += [each.strip() for each in cast("list[object]", listed)[:GROUPS_MAX] if isinstance(each, str)]
        return self.operators.caller(user, groups)


def _rejected() -> WebProblem:
    # One answer for every flaw: what exactly is wrong helps only somebody who forges tokens.
    return unauthenticated("the load balancer's token is not valid")
