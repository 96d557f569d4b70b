"""Values of sensors: what is a number, when two values are equal, and how a message shows one."""

import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from math import isfinite
from types import NoneType
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | Decimal | str | Sequence[Json] | Mapping[str, Json] | None"

# The two types compare exactly with each other; a float does not, so floats are converted first.
Number: TypeAlias = int | Decimal

_NUMERIC_TEXT = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?0*\d{1,4})?", re.ASCII)
_NUMERIC_TEXT_MAX = 512  # the largest double, written out, has 309 digits
_DOUBLE_MAX = Decimal((2**53 - 1) * 2**971)  # exactly: 53 bits of precision, the largest exponent
_DOUBLE_BITS_MAX = 1024

_SCALARS = (str, int, float, Decimal, NoneType)
_FLAGS = {"true": True, "false": False}

_SHOWN_CHARS_MAX = 80
_SHOWN_ITEMS_MAX = 5
_SHOWN_DEPTH_MAX = 3
_SHOWN_BITS_MAX = 200


def read_number(value: Json) -> Number | None:
    """Return the exact number that a number or a numeric text stands for; None if it is neither.

    A float stands for its shortest text, so 0.1 is `Decimal("0.1")`. Infinities, NaN, values beyond the range of a
    double, and booleans are not numbers.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value.bit_length() <= _DOUBLE_BITS_MAX else None
    if isinstance(value, float):
        return _read_float(value) if isfinite(value) else None
    if isinstance(value, str):
        return _read_numeric_text(value)
    return _within_double_range(value) if isinstance(value, Decimal) else None


@lru_cache(maxsize=4096)  # a rule's bounds recur in every evaluation
def _read_float(value: float) -> Decimal:
    return Decimal(float.__repr__(value))


def _read_numeric_text(text: str) -> Decimal | None:
    return _read_short_text(text) if len(text) <= _NUMERIC_TEXT_MAX else None


@lru_cache(maxsize=1024)  # one text may be compared with many numbers
def _read_short_text(text: str) -> Decimal | None:
    return _within_double_range(Decimal(text)) if _NUMERIC_TEXT.fullmatch(text) else None


def _within_double_range(number: Decimal) -> Decimal | None:
    return number if number.is_finite() and -_DOUBLE_MAX <= number <= _DOUBLE_MAX else None


def is_same(left: Json, right: Json) -> bool:
    """Return whether two values are equal, by the rules below.

    Numbers compare as numbers, also with numeric text; booleans also with `true`/`false`; other values as they are.
    Lists and maps compare member by member, by the same rules, at any depth.
    """
    return _is_same_scalar(left, right) if isinstance(left, _SCALARS) else _is_same_tree(left, right)


def _is_same_tree(left: Json, right: Json) -> bool:
    pairs = [(left, right)]  # an explicit stack: hostile nesting must not exhaust the interpreter's
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            if left.keys() != right.keys():
                return False
            pairs.extend((member, right[name]) for name, member in left.items())
        elif isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
            if len(left) != len(right):
                return False
            pairs.extend(zip(left, right, strict=True))
        elif not _is_same_scalar(left, right):
            return False
    return True


def _is_same_scalar(left: Json, right: Json) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if left is None or right is None:
        return left is right
    if isinstance(left, bool) or isinstance(right, bool):
        flag = _read_flag(left)
        return flag is not None and flag is _read_flag(right)
    number = read_number(left)
    return number is not None and number == read_number(right)


def _read_flag(value: Json) -> bool | None:
    if isinstance(value, bool):
        return value
    return _FLAGS.get(value) if isinstance(value, str) else None


def show(value: Json) -> str:
    """Return a value as a message shows it: like JSON, on one line, and short for any value."""
    text = _render(value, _SHOWN_DEPTH_MAX)
    if len(text) > _SHOWN_CHARS_MAX:
        text = text[: _SHOWN_CHARS_MAX - 1] + "…"
    # JSON can contain half of a surrogate pair, which no log or table accepts.
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _render(value: Json, depth: int) -> str:
    if value is None or isinstance(value, bool | float):
        return json.dumps(value)
    if isinstance(value, str):
        return json.dumps(value[:_SHOWN_CHARS_MAX], ensure_ascii=False)
    if isinstance(value, int):
        bits = value.bit_length()
        return str(value) if bits <= _SHOWN_BITS_MAX else f"a whole number of {bits} bits"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        pairs = islice(value.items(), _SHOWN_ITEMS_MAX)
        return "{" + _join([f"{_render(name, 1)}: {_inner(member, depth)}" for name, member in pairs], len(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + _join([_inner(member, depth) for member in value[:_SHOWN_ITEMS_MAX]], len(value)) + "]"
    return f"a {type(value).__name__}"  # no JSON type, for example a store's own type


def _inner(value: Json, depth: int) -> str:
    if depth == 1 and isinstance(value, Mapping | list | tuple):
        return "…"
    return _render(value, depth - 1)


def _join(shown: list[str], total: int) -> str:
    return ", ".join([*shown, "…"] if total > len(shown) else shown)
