"""Cursors: where a query stopped, as text that means nothing to whoever carries it."""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import cast

import orjson

from worker.core.errors import Rejected
from worker.store.dynamodb_values import Item


def cursor_from_key(key: Item | None) -> str | None:
    return urlsafe_b64encode(orjson.dumps(key)).decode() if key else None


def key_from_cursor(cursor: str) -> Item:
    """Read a cursor back. Raises `Rejected` for text that is none."""
    try:
        key = orjson.loads(urlsafe_b64decode(cursor))
    except (binascii.Error, ValueError) as error:
        raise Rejected(f"{cursor[:60]!r} is not a cursor of this store; begin again without one") from error
    if not isinstance(key, dict):
        raise Rejected(f"{cursor[:60]!r} is not a cursor of this store; begin again without one")
    return cast("Item", key)
