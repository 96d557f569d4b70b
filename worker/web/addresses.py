"""Addresses to serve on: `HOST:PORT`, and whether only this machine can reach one."""

from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from worker.core.errors import ConfigError

DEFAULT_LISTEN: Final = "127.0.0.1:8040"


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Return whether only this machine can reach the address."""
        return is_loopback_name(self.host)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(setting: str, text: str) -> Address:
    """Parse `HOST:PORT`; port 0 means any free port. Raises `ConfigError`, which names the setting."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal()) or int(port) > 65_535:
        raise ConfigError(f"{setting} is {text!r}, which is no address to serve on; use HOST:PORT, as in 0.0.0.0:8080")
    return Address(host.strip("[]"), int(port))


def is_loopback_name(host: str) -> bool:
    """Return whether a host's name always means this machine, whatever a name server answers."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
