"""ASGI as this package uses it: the types of an application, and one way to send a whole response."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
WebApp: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

JSON: Final = "application/json"


async def respond(
    send: Send, status: int, body: bytes, content_type: str = JSON, headers: Sequence[Header] = ()
) -> None:
    """Send one whole response."""
    fixed = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def header(scope: Scope, name: bytes) -> str | None:
    """Return a header's value; None if it is absent or is given more than once with different values."""
    found: set[bytes] = {value for key, value in scope["headers"] if key == name}
    return found.pop().decode("latin-1").strip() if len(found) == 1 else None
