"""Row codec: rows as bytes, in JSON where JSON is exact and tagged where it is not.

The encoding is canonical: two rows are equal exactly if their bytes are. So comparing bytes shows whether a write
changes anything, and `True` is never mistaken for `1` as in Python.
"""

import base64
from collections.abc import Callable, Mapping, Sequence, Set
from decimal import Decimal
from typing import Final, TypeAlias, cast

from worker.core.errors import ConfigError, Rejected
from worker.runtime.json_bytes import from_json, to_json
from worker.store.limits import number_from_text, number_to_text
from worker.store.table import Row, TooLarge, Value

Encodable: TypeAlias = "str | int | bool | Sequence[Encodable] | Mapping[str, Encodable] | None"

# A map with one of these as its only key represents a value that JSON cannot express.
NUMBER, BYTES, MAP = "$n", "$b", "$m"
TEXT_SET, NUMBER_SET, BYTES_SET = "$ss", "$ns", "$bs"
TAG_MARK: Final = b'"$'  # a row without this has no tag anywhere, so the parsed JSON is the row
JSON_INT_MAX: Final = 2**63
SETS: Final = (frozenset, set)  # a view of a dict is a `Set` too, and no other backend takes it for one
# What bytes of another program raise: no JSON, a tag with other content, nesting without end.
UNREADABLE: Final = (ValueError, ArithmeticError, TypeError, AttributeError, RecursionError)


def encode(value: Value) -> bytes:
    """Encode a row or value canonically. Raises `Rejected` or `TooLarge` for what cannot be stored."""
    try:
        return to_json(_tagged(value), is_sorted=True)
    except RecursionError as error:
        raise TooLarge("a value is nested too deeply; flatten it or store it as text") from error
    except ValueError as error:
        raise Rejected(f"a value cannot be stored: {error}; fix the program that wrote it") from error


def decode_row(body: bytes) -> Row:
    """Decode exactly what `encode` was given; numbers are `int` if whole and `Decimal` otherwise.

    Raises `ConfigError` for bytes that `encode` has not written, or that are no row.
    """
    row = decode(body)
    if type(row) is not dict:
        raise _damaged(body, f"a {type(row).__name__} is no row")
    return cast("dict[str, Value]", row)


def decode(body: bytes) -> Value:
    """Decode a row or value. Raises `ConfigError` for bytes that `encode` has not written."""
    try:
        parsed = cast("Encodable", from_json(body))
        if TAG_MARK not in body:
            return parsed
        return _untagged(parsed)
    except UNREADABLE as error:
        raise _damaged(body, f"{type(error).__name__}: {error}") from error


def _damaged(body: object, problem: str) -> ConfigError:
    # Another program may have stored text or a number: SQLite returns what is there.
    begin = body[:60] if isinstance(body, bytes | str) else body
    return ConfigError(
        f"a stored row is damaged ({problem}): it begins with {begin!r}; restore the store from a backup, or remove "
        "the row as `interlock store check` says"
    )


def _tagged(value: Value) -> Encodable:
    # Fast path for the types of nearly all values, because every row passes here.
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return cast("Encodable", value)
    if kind is dict:
        return _tagged_map(cast("Mapping[str, Value]", value))
    match value:
        case bool() | str():
            return value
        case int() if -JSON_INT_MAX <= value < JSON_INT_MAX:
            return value
        case int() | float() | Decimal():
            return _tagged_number(value)
        case bytes():
            return {BYTES: _base64(value)}
        case Mapping():
            return _tagged_map(value)
        case Set() if issubclass(kind, SETS):
            return _tagged_set(cast("Set[Value]", value))
        case list() | tuple():
            return [_tagged(member) for member in cast("Sequence[Value]", value)]
        case _:
            raise Rejected(f"a value of type {type(value).__name__} cannot be stored; convert it to text or a number")


def _tagged_number(value: float | Decimal) -> Encodable:
    text = number_to_text(value)
    number = number_from_text(text)
    if isinstance(number, int) and -JSON_INT_MAX <= number < JSON_INT_MAX:
        return number
    return {NUMBER: text}


def _tagged_map(value: Mapping[str, Value]) -> Encodable:
    # Fast path for texts: nearly every member is one, and every row passes here.
    members = {name: member if type(member) is str else _tagged(member) for name, member in value.items()}
    # A map that looks like a tag is wrapped in one, so that decoding returns the same map.
    is_like_tag = "$" in "".join(members) and any(name[:1] == "$" for name in members)
    return {MAP: members} if is_like_tag else members


def _tagged_set(value: Set[Value]) -> Encodable:
    kinds = {_kind_of_member(member) for member in value}
    if len(kinds) != 1:
        raise Rejected(
            "a set must hold texts, or numbers, or bytes, of one kind and at least one; leave out an empty set"
        )
    [tag] = kinds
    return {tag: sorted({_SET_MEMBER[tag](member) for member in value})}


def _kind_of_member(member: Value) -> str:
    match member:
        case str():
            return TEXT_SET
        case bytes():
            return BYTES_SET
        case int() | float() | Decimal() if not isinstance(member, bool):
            return NUMBER_SET
        case _:
            raise Rejected(f"a set cannot hold a {type(member).__name__}; it holds texts, or numbers, or bytes")


def _untagged(value: Encodable) -> Value:
    match value:
        case dict():
            if len(value) == 1:
                [(tag, content)] = value.items()
                if tag in _UNTAG:
                    return _UNTAG[tag](content)
            return _untagged_members(value)
        case list():
            return [_untagged(member) for member in value]
        case _:
            return value


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _unwrapped_map(content: Encodable) -> Value:
    return _untagged_members(cast("dict[str, Encodable]", content))


def _untagged_members(members: Mapping[str, Encodable]) -> dict[str, Value]:
    # Fast path for texts, as in `_tagged_map`.
    return {name: member if type(member) is str else _untagged(member) for name, member in members.items()}


def _texts(content: Encodable) -> list[str]:
    return cast("list[str]", content)


_SET_MEMBER: Final[Mapping[str, Callable[..., str]]] = {
    TEXT_SET: str,
    NUMBER_SET: number_to_text,
    BYTES_SET: _base64,
}
_UNTAG: Final[Mapping[str, Callable[[Encodable], Value]]] = {
    NUMBER: lambda content: number_from_text(str(content)),
    BYTES: lambda content: base64.b64decode(str(content), validate=True),
    MAP: _unwrapped_map,
    TEXT_SET: lambda content: frozenset(_texts(content)),
    NUMBER_SET: lambda content: frozenset(number_from_text(text) for text in _texts(content)),
    BYTES_SET: lambda content: frozenset(base64.b64decode(text, validate=True) for text in _texts(content)),
}
