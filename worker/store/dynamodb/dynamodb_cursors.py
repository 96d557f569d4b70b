"""Cursors: where a query stopped, as text that means nothing to whoever carries it."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TypeGuard, cast

from worker.core.errors import Rejected
from worker.runtime.json_bytes import from_json, to_json
from worker.store.dynamodb.values import Item


def cursor_from_key(key: Item | None) -> str | None:
    return urlsafe_b64encode(to_json(key)).decode() if key else None


def key_from_cursor(cursor: str) -> Item:
    """Read a cursor back. Raises `Rejected` for text that is none."""
    try:
        key: object = from_json(urlsafe_b64decode(cursor))
    except ValueError:
        key = None
    if not _is_key(key):
        raise Rejected(f"{cursor[:60]!r} is not a cursor of this store; begin again without one")
    return key


def _is_key(found: object) -> TypeGuard[Item]:
    if not isinstance(found, dict):
        return False
    key = cast("dict[str, object]", found)
    return {"PK", "SK"} <= key.keys() and all(
        isinstance(part, dict) and cast("Item", part).keys() <= {"S", "N"} for part in key.values()
    )
