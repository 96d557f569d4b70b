"""Address policy: which addresses a job may be sent to. It resolves nothing and connects to nothing."""

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import inet_aton
from typing import Final, Self, TypeAlias

from worker.core.errors import ConfigError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

# The IANA registries of special-purpose addresses, and the one public address that clouds use for their own services.
SPECIAL_RANGES: tuple[tuple[Network, str], ...] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "shared by a carrier"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud platform"),
        ("169.254.0.0/16", "link-local, where clouds keep their credentials"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved for protocols"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmark"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved or broadcast"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
        ("2001::/23", "reserved for protocols, or a Teredo tunnel"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
    )
)
_PUBLIC_IPV6 = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE = IPv6Network("::/96")

ALLOWING: Final = "to allow it all the same, name it in the worker's INTERLOCK_HTTP_ALLOW"
_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})


class AddressRefused(OSError):
    """AddressRefused: the policy forbids a connection.

    It is an `OSError`, so that it passes through aiohttp as a failed connect.
    """


def special_kind(address: Address) -> str | None:
    """Return the kind of an address that is not public; None if it is public.

    An IPv6 address that only wraps an IPv4 address (mapped, compatible, 6to4, NAT64) counts as the address it wraps.
    """
    for network, kind in SPECIAL_RANGES:
        if address in network:
            return kind
    if isinstance(address, IPv4Address):
        return None
    if wrapped := _wrapped(address):
        return special_kind(wrapped)
    return None if address in _PUBLIC_IPV6 else "not public"


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    if address in _NAT64 or address in _IPV4_COMPATIBLE:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Allows public addresses, and the names, `*.suffixes`, addresses and networks an operator lists."""

    names: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def parse(cls, entries: Iterable[str]) -> Self:
        """Parse an allow list. Raises `ConfigError` for an invalid entry.

        An invalid entry would allow nothing, or everything by accident.
        """
        names, networks = set[str](), list[Network]()
        for entry in filter(None, map(str.strip, entries)):
            try:
                networks.append(ip_network(entry))
            except ValueError:
                names.add(_checked_name(entry))
        return cls(frozenset(names), tuple(networks))

    def allows_name(self, host: str) -> bool:
        """Return whether a name is on the list, no matter what it resolves to."""
        name = _canonical(host)
        parents = (name[place:] for place, character in enumerate(name) if character == ".")
        return name in self.names or any(f"*{parent}" in self.names for parent in parents)

    def check(self, address: Address, host: str) -> None:
        """Raise `AddressRefused` unless the policy allows a connection to the address."""
        kind = special_kind(address)
        if kind is None or any(address in network or _wrapped_in(address, network) for network in self.networks):
            return
        shown = host if host == str(address) else f"{host} ({address})"
        raise AddressRefused(f"{shown} is {kind}; {ALLOWING}")

    def check_host(self, host: str) -> None:
        """Check a host before resolution. Raises `AddressRefused`.

        This covers a literal address and the names of this machine.
        """
        address = _written_out(host)
        if address is None:
            name = _canonical(host)
            is_local = name in _LOCAL_NAMES or name.endswith(".localhost")
            if is_local and not self.allows_name(host):
                raise AddressRefused(f"{host} is this machine; {ALLOWING}")
            return
        self.check(address, host)


def _written_out(host: str) -> Address | None:
    """Parse an address as resolvers do, including short and numeric forms; None if it is a name.

    Examples of such forms: 127.1, 0x7f000001, 2852039166.
    """
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(inet_aton(host))
    except (OSError, ValueError):
        return None


def _wrapped_in(address: Address, network: Network) -> bool:
    wrapped = _wrapped(address) if isinstance(address, IPv6Address) else None
    return wrapped is not None and wrapped in network


def _canonical(host: str) -> str:
    return host.lower().rstrip(".")


def _checked_name(entry: str) -> str:
    name = _canonical(entry)
    labels = name.removeprefix("*.").split(".")
    if not all(label and label.replace("-", "").replace("_", "").isalnum() for label in labels):
        raise ConfigError(
            f"INTERLOCK_HTTP_ALLOW: {entry!r} is neither a host name, nor *.suffix, nor an address, nor a network "
            "such as 10.1.0.0/16 (whose host bits must be zero); correct or remove it"
        )
    return name
