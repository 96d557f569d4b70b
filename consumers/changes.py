"""Change records of DynamoDB, from its own stream or delivered to Kinesis, as the changes that consumers know.

A stream carries far more than is used of it: a change's key, kind and time are read at once, and of its image only
what somebody looks at.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import orjson

from consumers.shardposition import BEGINNING
from worker.core.errors import Rejected
from worker.store.dynamodb_values import Attribute, decode_value
from worker.store.table import Change, ChangeKind, Key, TableName, Value

_KINDS: Final = {kind.value: kind for kind in ChangeKind}
# How DynamoDB counts the time of a change that it delivers to Kinesis, by the precision that the record names.
_UNITS: Final = {
    "SECOND": timedelta(seconds=1),
    "MILLISECOND": timedelta(milliseconds=1),
    "MICROSECOND": timedelta(microseconds=1),
}
_MILLIS_LEAST: Final = 10**11  # fewer would be before DynamoDB was made, and as many seconds are 3,000 years


class Unreadable(Rejected):
    """A record that is no change of a row."""


class LazyRow(Mapping[str, Value]):
    """A row as the wire has it: an attribute is converted when it is first looked at."""

    __slots__ = ("_item", "_known")

    def __init__(self, item: Mapping[str, Attribute]) -> None:
        self._item = item
        self._known: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._known:
            self._known[name] = decode_value(self._item[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._item

    def __iter__(self) -> Iterator[str]:
        return iter(self._item)

    def __len__(self) -> int:
        return len(self._item)


def streamed_change(wire: Mapping[str, Any], table: TableName) -> Change:
    """Read a record of a table's stream, whose time is in whole seconds. Raises `Unreadable`."""
    try:
        said = wire["dynamodb"]
        at = since_1970(said["ApproximateCreationDateTime"])
        return _change(wire["eventName"], said, table, position=int(said["SequenceNumber"]), at=at)
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(_problem(error)) from error


def delivered_change(data: bytes, tables: Mapping[str, TableName], position: int) -> Change | None:
    """Read what DynamoDB has delivered to Kinesis; None for a change of a table we do not follow.

    Raises `Unreadable`. The order and number of deliveries mean nothing: the change's own time and row do.
    """
    try:
        record = orjson.loads(data)
        table = tables.get(record.get("tableName") or _table_in(record["eventSourceARN"]))
        if table is None:
            return None
        said = record["dynamodb"]
        return _change(record["eventName"], said, table, position=position, at=_delivered_at(said))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unreadable(_problem(error)) from error


def _delivered_at(said: Mapping[str, Any]) -> datetime:
    count = int(said["ApproximateCreationDateTime"])
    precision = said.get("ApproximateCreationDateTimePrecision")
    if precision is None:
        # Milliseconds, as before there was a choice; emulators count seconds, as a stream does.
        precision = "MILLISECOND" if count >= _MILLIS_LEAST else "SECOND"
    return BEGINNING + count * _UNITS[precision]


def _table_in(arn: str) -> str:
    """Emulators name the stream that a change comes from, and the table in it."""
    return arn.partition(":table/")[2].split("/")[0]


@lru_cache(maxsize=256)
def since_1970(seconds: float) -> datetime:
    """Neighbours in a stream were mostly made in the same second."""
    return BEGINNING + timedelta(seconds=seconds)


def _change(kind: str, said: Mapping[str, Any], table: TableName, *, position: int, at: datetime) -> Change:
    keys, change_kind = said["Keys"], _KINDS[kind]
    # A record without its image must not pass for a removal: the row is still there.
    image = None if change_kind is ChangeKind.REMOVE else LazyRow(said["NewImage"])
    key = Key(keys["PK"]["S"], keys["SK"]["S"])
    return Change(position=position, table=table, key=key, kind=change_kind, image=image, at=at)


def _problem(error: Exception) -> str:
    what = f"there is no {error}" if isinstance(error, KeyError) else str(error)
    return (
        f"it is no change of a row with PK and SK and its new image: {what}; let the stream carry new images, and "
        "nothing but changes of Interlock's tables"
    )
