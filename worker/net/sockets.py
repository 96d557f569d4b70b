"""Sockets with TCP keep-alive, so that intermediaries keep the connection of a slow answer.

AWS NAT gateways and endpoints silently drop a connection after 350 s without traffic, and a job's answer may take 900
s. By default the kernel sends its first keep-alive only after two hours.
"""

import socket
from typing import Final, TypeAlias

# Family, kind, protocol, canonical name, and the address followed by its port.
SocketInfo: TypeAlias = tuple[int, int, int, str, tuple[object, ...]]

_SILENCE_S: Final = 60
_AGAIN_S: Final = 20
_UNANSWERED_MAX: Final = 6
# macOS uses another name.
_SILENCE_OPTION: Final[int] = getattr(socket, "TCP_KEEPIDLE", 0) or getattr(socket, "TCP_KEEPALIVE", 0)


def open_socket(info: SocketInfo) -> socket.socket:
    """Open a socket that sends keep-alives after 60 s of silence."""
    family, kind, protocol, *_ = info
    opened = socket.socket(family=family, type=kind, proto=protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, _SILENCE_OPTION, _SILENCE_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _AGAIN_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _UNANSWERED_MAX)
    return opened
