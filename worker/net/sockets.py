"""Sockets for answers that take long: whoever forwards them must not forget the connection meanwhile.

NAT gateways and endpoints of AWS drop a connection without a word after 350 s in which nothing was sent on it, and a
job whose answer is waited for may take 900 s. The kernel asks by itself only after two hours.
"""

import socket
from typing import Final, TypeAlias

# Family, kind, protocol, canonical name, and the address itself in front of its port.
SocketInfo: TypeAlias = tuple[int, int, int, str, tuple[object, ...]]

_SILENCE_S: Final = 60
_AGAIN_S: Final = 20
_UNANSWERED_MAX: Final = 6
# macOS has it under another name.
_SILENCE_OPTION: Final[int] = getattr(socket, "TCP_KEEPIDLE", 0) or getattr(socket, "TCP_KEEPALIVE", 0)


def open_socket(info: SocketInfo) -> socket.socket:
    """Open a socket that asks, in silence, whether the other side is still there."""
    family, kind, protocol, *_ = info
    opened = socket.socket(family=family, type=kind, proto=protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, _SILENCE_OPTION, _SILENCE_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _AGAIN_S)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _UNANSWERED_MAX)
    return opened
