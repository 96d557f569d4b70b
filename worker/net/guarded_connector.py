"""Guards HTTP connections against requests that a pipeline file aims at the operator's own network.

The guard checks the addresses that a name resolves to, and the connection uses exactly those addresses. So a name
cannot show one address to the guard and another to the connection. Every socket is checked again when it is opened,
which covers redirects and literal addresses.
"""

import socket
from collections import OrderedDict
from collections.abc import Iterable
from ipaddress import ip_address

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from worker.net.address_policy import AddressPolicy
from worker.net.resolver import OwnThreadsResolver
from worker.net.sockets import SocketInfo, open_socket

_VOUCHED_MAX = 1024


class AddressGuard(AbstractResolver):
    """Resolves names for a connector and opens its sockets, as far as the policy allows."""

    def __init__(self, policy: AddressPolicy, resolver: AbstractResolver | None = None) -> None:
        self._policy = policy
        self._resolver = resolver or OwnThreadsResolver()
        # Addresses that are allowed because a name on the list resolved to them. Only the newest are kept, since each
        # connection resolves its name again.
        self._vouched: OrderedDict[str, None] = OrderedDict()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a name. Raises `AddressRefused` if any answer is forbidden.

        A mixed answer is how an attacker tricks a guard, so one forbidden address forbids all.
        """
        self._policy.check_host(host)
        answers = await self._resolver.resolve(host, port, family)
        if self._policy.allows_name(host):
            self._vouch(answer["host"] for answer in answers)
            return answers
        for answer in answers:
            self._policy.check(ip_address(answer["host"]), host)
        return answers

    def open_socket(self, info: SocketInfo) -> socket.socket:
        """Open the socket for an address; this is the last check before the connection."""
        address = str(info[4][0])
        if address not in self._vouched:
            self._policy.check(ip_address(address), address)
        return open_socket(info)

    async def close(self) -> None:
        await self._resolver.close()

    def _vouch(self, addresses: Iterable[str]) -> None:
        for address in addresses:
            self._vouched[address] = None
            self._vouched.move_to_end(address)
        while len(self._vouched) > _VOUCHED_MAX:
            self._vouched.popitem(last=False)


def guarded_connector(guard: AddressGuard, *, connections_max: int, reuse: bool) -> aiohttp.TCPConnector:
    """Return a connector that connects only to addresses the guard allows."""
    return aiohttp.TCPConnector(
        resolver=guard,
        socket_factory=guard.open_socket,
        use_dns_cache=False,
        limit=connections_max,
        force_close=not reuse,
    )
