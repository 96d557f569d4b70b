"""Cursors: where a list continues, as text that callers pass back unchanged.

A cursor is valid only for the list that made it. It carries no secret: a caller who makes one up can only begin
elsewhere in a list that it may read anyway.
"""

import base64
import hashlib
from collections.abc import Mapping
from typing import Final, cast

from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.runtime.json_bytes import from_json, to_json

_CHECK_CHARS: Final = 16
_LENGTH_MAX: Final = 4_096


class BadCursor(Rejected):
    """BadCursor: a cursor that was changed, or is of a list with another filter."""

    def __init__(self, text: str) -> None:
        super().__init__(f"{text[:40]!r} is no cursor of this list; begin the list again without a cursor")


def write_cursor(bound_to: str, position: Mapping[str, Json]) -> str:
    """Return the cursor of a position in the list that `bound_to` describes."""
    body = to_json(position, is_sorted=True)
    return base64.urlsafe_b64encode(_check(bound_to, body).encode() + body).decode().rstrip("=")


def read_cursor(text: str, bound_to: str) -> Mapping[str, Json]:
    """Return the position. Raises `BadCursor` unless `write_cursor` made the text for the same list."""
    if len(text) > _LENGTH_MAX:
        raise BadCursor(text)
    try:
        content = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        check, body = content[:_CHECK_CHARS].decode("ascii"), content[_CHECK_CHARS:]
        position = from_json(body)
    except ValueError as error:
        raise BadCursor(text) from error
    if check != _check(bound_to, body) or not isinstance(position, dict):
        raise BadCursor(text)
    return cast("Mapping[str, Json]", position)


def _check(bound_to: str, body: bytes) -> str:
    return hashlib.sha256(bound_to.encode() + b"\0" + body).hexdigest()[:_CHECK_CHARS]
