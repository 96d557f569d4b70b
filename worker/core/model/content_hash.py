"""Content hash: one canonical text per content, however it was written, for every stored hash."""

import hashlib
import json
from collections.abc import Mapping
from decimal import Decimal

from worker.core.model.values import Json


def content_hash(value: Json) -> str:
    """Return 32 hex digits for a content; permanently the same in every process and on every store."""
    return hash_and_size(value)[0]


def hash_and_size(value: Json) -> tuple[str, int]:
    """Return the content hash, and how many bytes the content takes as canonical JSON."""
    text = canonical_json(value).encode()
    return hashlib.sha256(text).hexdigest()[:32], len(text)


def canonical_json(value: Json) -> str:
    """Write JSON with sorted keys and one spelling per number: 10, 10.0 and 1e1 give the same text.

    Values are no deeper than a row can hold, which bounds the recursion.
    """
    match value:
        case None | bool() | str():
            return json.dumps(value)
        case int() | Decimal():
            return _number(Decimal(value))
        case float():
            # The shortest decimal that equals this float, as the store writes it.
            return _number(Decimal(repr(value)))
        case Mapping():
            members = (f"{json.dumps(name)}:{canonical_json(value[name])}" for name in sorted(value))
            return "{" + ",".join(members) + "}"
        case _:
            return "[" + ",".join(canonical_json(member) for member in value) + "]"


def _number(value: Decimal) -> str:
    """Write a number as digits and exponent: exact, and short even for 1e125."""
    if not value.is_finite():
        raise ValueError(f"{value} is not a number that JSON knows; sensors and events cannot hold it")
    if not value:
        return "0"
    sign, digits, exponent = value.as_tuple()
    text = "".join(map(str, digits)).lstrip("0")
    kept = text.rstrip("0")
    return f"{'-' if sign else ''}{kept}e{int(exponent) + len(text) - len(kept)}"
