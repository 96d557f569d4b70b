"""Access behind a proxy that signs users in: trusted by its address and by a shared secret."""

import hashlib
import hmac
import re
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

from worker.core.errors import ConfigError
from worker.web.access import Caller, unauthenticated
from worker.web.asgi import Scope, header
from worker.web.operators import GROUPS_MAX, WebOperators, is_name

PROXIES: Final = "INTERLOCK_WEB_PROXIES"
PROXY_SECRET: Final = "INTERLOCK_WEB_PROXY_SECRET"  # noqa: S105  the name of a variable
SECRET_MAX: Final = 1_024

Network: TypeAlias = IPv4Network | IPv6Network

_HASH: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, repr=False)
class ProxyAccess:
    """Reads who calls from the headers of a trusted proxy; `sha256` is the hash of its secret."""

    networks: tuple[Network, ...]
    sha256: str
    operators: WebOperators

    async def identify(self, scope: Scope) -> Caller:
        """Return who calls. Raises `WebProblem` for a request that no trusted proxy sent."""
        if not self._is_from_proxy(scope):
            raise unauthenticated("requests must come through the proxy")
        given = header(scope, b"x-interlock-proxy") or ""
        found = hashlib.sha256(given[:SECRET_MAX].encode("latin-1")).hexdigest()
        if not given or len(given) > SECRET_MAX or not hmac.compare_digest(found, self.sha256):
            raise unauthenticated("the proxy did not send its secret in X-Interlock-Proxy")
        user = header(scope, b"x-forwarded-user") or ""
        if not is_name(user):
            raise unauthenticated("the proxy named no user in X-Forwarded-User")
        groups = [part.strip() for part in (header(scope, b"x-forwarded-groups") or "").split(",")]
        return self.operators.caller(user, groups[:GROUPS_MAX])

    def _is_from_proxy(self, scope: Scope) -> bool:
        client = scope.get("client")
        try:
            address = ip_address(str(client[0])) if client else None
        except ValueError:
            return False
        return address is not None and any(address in network for network in self.networks)


def parse_proxy_access(networks: tuple[str, ...], sha256: str, operators: WebOperators) -> ProxyAccess:
    """Make the access of a proxy from its settings. Raises `ConfigError`, which never shows the hash."""
    if not networks:
        raise ConfigError(f"INTERLOCK_WEB_AUTH is proxy and no proxy is named; set {PROXIES} to its networks")
    if not _HASH.fullmatch(sha256):
        raise ConfigError(
            f"{PROXY_SECRET} is not the SHA-256 of a secret in hex; `printf %s SECRET | sha256sum` prints it"
        )
    try:
        parsed = tuple(ip_network(each) for each in networks)
    except ValueError as error:
        raise ConfigError(f"{PROXIES}: {error}; write networks such as 10.0.1.0/24") from error
    if too_wide := next((each for each in parsed if each.prefixlen == 0), None):
        raise ConfigError(f"{PROXIES} has {too_wide}, which trusts every address; name the proxy's own network")
    return ProxyAccess(parsed, sha256, operators)
