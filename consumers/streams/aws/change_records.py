"""Change records of DynamoDB, from its own stream or delivered to Kinesis, as the changes that consumers know.

A stream carries far more than is used of it: a change's key, kind and time are read at once, and of its image only
what somebody looks at. The rest of a delivered record is passed over as bytes, which is most of what it costs to read.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from consumers.streams.lazy_row import UNDECODABLE, LazyRow, UnreadableRecord, said_of
from consumers.streams.positions import BEGINNING
from worker.store.table import Change, ChangeKind, Key, TableName

_KINDS: Final = {kind.value: kind for kind in ChangeKind}
# How DynamoDB counts the time of a change that it delivers to Kinesis, by the precision that the record names.
_UNITS: Final = {
    "SECOND": timedelta(seconds=1),
    "MILLISECOND": timedelta(milliseconds=1),
    "MICROSECOND": timedelta(microseconds=1),
}
_MILLIS_LEAST: Final = 10**11  # fewer would be before DynamoDB was made, and as many seconds are 3,000 years


class _Text(msgspec.Struct, gc=False):
    S: str


class _Keys(msgspec.Struct, gc=False):
    PK: _Text
    SK: _Text


class _Said(msgspec.Struct, gc=False):
    count: int | float = msgspec.field(name="ApproximateCreationDateTime")
    keys: _Keys = msgspec.field(name="Keys")
    precision: str | None = msgspec.field(name="ApproximateCreationDateTimePrecision", default=None)
    image: dict[str, msgspec.Raw] | None = msgspec.field(name="NewImage", default=None)


class _Origin(msgspec.Struct, gc=False):
    """Which table a delivered record is about. Emulators name the table's stream, and the table in it."""

    table: str | None = msgspec.field(name="tableName", default=None)
    stream: str | None = msgspec.field(name="eventSourceARN", default=None)


class _Delivered(_Origin, gc=False, kw_only=True):
    kind: ChangeKind = msgspec.field(name="eventName")
    said: _Said = msgspec.field(name="dynamodb")


_key: Final = lru_cache(maxsize=4_096)(Key)  # a row that changed once mostly changes again
_origin: Final = msgspec.json.Decoder(_Origin)
_delivered: Final = msgspec.json.Decoder(_Delivered)


def streamed_change(wire: Mapping[str, Any], table: TableName) -> Change:
    """Read a record of a table's stream, whose time is in whole seconds. Raises `UnreadableRecord`."""
    try:
        said = wire["dynamodb"]
        at = since_1970(said["ApproximateCreationDateTime"])
        keys, kind = said["Keys"], _KINDS[wire["eventName"]]
        # A record without its image must not pass for a removal: the row is still there.
        image = None if kind is ChangeKind.REMOVE else LazyRow(said["NewImage"])
        key = _key(keys["PK"]["S"], keys["SK"]["S"])
        return Change(position=int(said["SequenceNumber"]), table=table, key=key, kind=kind, image=image, at=at)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(_problem(error)) from error


def delivered_change(data: bytes, tables: Mapping[str, TableName], position: int) -> Change | None:
    """Read what DynamoDB has delivered to Kinesis; None for a change of a table we do not follow.

    Raises `UnreadableRecord`. The order and number of deliveries mean nothing: the change's own time and row do.
    """
    try:
        str(data, "utf-8")  # what the decoder passes over it does not check, and somebody may look at it later
        record = _delivered.decode(data)
        table = tables.get(record.table or _table_in(record))
        if table is None:
            return None
        said, keys = record.said, record.said.keys
        return Change(
            position=position,
            table=table,
            key=_key(keys.PK.S, keys.SK.S),
            kind=record.kind,
            image=None if record.kind is ChangeKind.REMOVE else LazyRow(_image_in(said)),
            at=_delivered_at(said),
        )
    except (*UNDECODABLE, KeyError, OverflowError) as error:
        if (named := table_named_in(data)) is not None and named not in tables:
            return None  # its keys may be others
        raise UnreadableRecord(_problem(error)) from error


def table_named_in(data: bytes) -> str | None:
    """Which table a delivered record tells of, whatever else is wrong with it; None if it does not say."""
    try:
        origin = _origin.decode(data)
        return origin.table or _table_in(origin)
    except (*UNDECODABLE, KeyError):
        return None


def _table_in(origin: _Origin) -> str:
    if origin.stream is None:
        raise KeyError("tableName")
    return origin.stream.partition(":table/")[2].split("/")[0]


def _image_in(said: _Said) -> Mapping[str, msgspec.Raw]:
    # A record without its image must not pass for a removal: the row is still there.
    if said.image is None:
        raise KeyError("NewImage")
    return said.image


def _delivered_at(said: _Said) -> datetime:
    count, precision = int(said.count), said.precision
    if precision is None:
        # Milliseconds, as before there was a choice; emulators count seconds, as a stream does.
        precision = "MILLISECOND" if count >= _MILLIS_LEAST else "SECOND"
    return BEGINNING + count * _UNITS[precision]


@lru_cache(maxsize=256)
def since_1970(seconds: float) -> datetime:
    """Neighbours in a stream were mostly made in the same second."""
    return BEGINNING + timedelta(seconds=seconds)


def _problem(error: Exception) -> str:
    return (
        f"it is no change of a row with PK and SK and its new image: {said_of(error)}; let the stream carry new "
        "images, and nothing but changes of Interlock's tables"
    )
