"""Convert the attributes of a change record's row when they are first read."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from worker.core.errors import Rejected
from worker.store.dynamodb.values import Attribute, decode_value
from worker.store.row_codec import encode
from worker.store.table import Value

UNDECODABLE: Final = (ValueError, RecursionError)  # errors of the decoder for invalid bytes


class UnreadableRecord(Rejected):
    """Reports a record that is not a change of a row, or an attribute that is not a value."""


class LazyRow(Mapping[str, Value]):
    """LazyRow is a row in wire format or in bytes. It converts an attribute when it is first read.

    Reading an attribute may raise `UnreadableRecord`.
    """

    __slots__ = ("_item", "_known")

    def __init__(self, item: Mapping[str, Attribute] | Mapping[str, msgspec.Raw]) -> None:
        self._item = item
        self._known: dict[str, Value] | None = None  # most rows are never read

    def __getitem__(self, name: str) -> Value:
        if self._known is None:
            self._known = {}
        if name not in self._known:
            self._known[name] = _value(name, self._item[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._item

    def __iter__(self) -> Iterator[str]:
        return iter(self._item)

    def __len__(self) -> int:
        return len(self._item)

    def parted(self) -> tuple[dict[str, Value], dict[str, bytes]]:
        """Split a row into the values that a row of ours can hold, and the other attributes in wire format.

        Unreadable attributes are kept whole as well.
        """
        values: dict[str, Value] = {}
        rest: dict[str, bytes] = {}
        for name, attribute in self._item.items():
            try:
                value = self[name]
                encode(value)  # a foreign producer may write numbers that no row of ours can hold
            except Rejected:
                rest[name] = msgspec.json.encode(attribute)
            else:
                values[name] = value
        return values, rest

    @classmethod
    def joined(cls, values: Mapping[str, Value], rest: Mapping[str, bytes]) -> "LazyRow":
        """Return the row from its parts. An attribute that was unreadable at `parted` may be readable now."""
        row = cls({name: msgspec.Raw(rest.get(name, b"null")) for name in (*values, *rest)})
        row._known = dict(values)
        return row


def _value(name: str, attribute: Attribute | msgspec.Raw) -> Value:
    try:
        return decode_value(msgspec.json.decode(attribute) if isinstance(attribute, msgspec.Raw) else attribute)
    except (*UNDECODABLE, ArithmeticError, AttributeError, KeyError, TypeError) as error:
        raise UnreadableRecord(
            f"attribute {name!r} is no value of a row: {said_of(error)}; look at its producer"
        ) from error


def said_of(error: Exception) -> str:
    return f"there is no {error}" if isinstance(error, KeyError) else str(error)
