"""Parse DynamoDB change records, from its own stream or delivered to Kinesis, into changes.

A stream carries far more than consumers use. The key, kind and time of a change are parsed at once, and an attribute of
its image when it is first read. The rest of a delivered record stays undecoded, because decoding is most of the cost of
reading.
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
# Units of the time of a change that DynamoDB delivers to Kinesis, by the precision that the record names.
_UNITS: Final = {
    "SECOND": timedelta(seconds=1),
    "MILLISECOND": timedelta(milliseconds=1),
    "MICROSECOND": timedelta(microseconds=1),
}
_MILLIS_LEAST: Final = 10**11  # fewer milliseconds would predate DynamoDB, and as many seconds are 3,000 years


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
    """_Origin is the table of a delivered record.

    Emulators give the ARN of the table's stream instead, which contains the table.
    """

    table: str | None = msgspec.field(name="tableName", default=None)
    stream: str | None = msgspec.field(name="eventSourceARN", default=None)


class _Delivered(_Origin, gc=False, kw_only=True):
    kind: ChangeKind = msgspec.field(name="eventName")
    said: _Said = msgspec.field(name="dynamodb")


_key: Final = lru_cache(maxsize=4_096)(Key)  # a row that changed once usually changes again
_origin: Final = msgspec.json.Decoder(_Origin)
_delivered: Final = msgspec.json.Decoder(_Delivered)


def streamed_change(wire: Mapping[str, Any], table: TableName) -> Change:
    """Parse a record of a table's stream, whose time is in whole seconds. Raises `UnreadableRecord`."""
    try:
        said = wire["dynamodb"]
        at = since_1970(said["ApproximateCreationDateTime"])
        keys, kind = said["Keys"], _KINDS[wire["eventName"]]
        # A record without its image must not count as a removal: the row still exists.
        image = None if kind is ChangeKind.REMOVE else LazyRow(said["NewImage"])
        key = _key(keys["PK"]["S"], keys["SK"]["S"])
        return Change(position=int(said["SequenceNumber"]), table=table, key=key, kind=kind, image=image, at=at)
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableRecord(_problem(error)) from error


def delivered_change(data: bytes, tables: Mapping[str, TableName], position: int) -> Change | None:
    """Parse a DynamoDB change from Kinesis; return None for a table that Interlock does not follow.

    Raises `UnreadableRecord`. The order and number of deliveries carry no meaning; the change's own time and row do.
    """
    try:
        str(data, "utf-8")  # the decoder does not check what it skips, and a consumer may read it later
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
            return None  # the keys of its table may differ
        raise UnreadableRecord(_problem(error)) from error


def table_named_in(data: bytes) -> str | None:
    """Return the table that a delivered record names, even if it is invalid; None if it names none."""
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
    # A record without its image must not count as a removal: the row still exists.
    if said.image is None:
        raise KeyError("NewImage")
    return said.image


def _delivered_at(said: _Said) -> datetime:
    count, precision = int(said.count), said.precision
    if precision is None:
        # Records without a precision count in milliseconds, as before it was configurable. Emulators count in seconds,
        # as a stream does.
        precision = "MILLISECOND" if count >= _MILLIS_LEAST else "SECOND"
    return BEGINNING + count * _UNITS[precision]


@lru_cache(maxsize=256)
def since_1970(seconds: float) -> datetime:
    """Convert seconds since 1970 to an instant. It is cached: neighbouring records mostly share a second."""
    return BEGINNING + timedelta(seconds=seconds)


def _problem(error: Exception) -> str:
    return (
        f"it is no change of a row with PK and SK and its new image: {said_of(error)}; let the stream carry new "
        "images, and nothing but changes of Interlock's tables"
    )
