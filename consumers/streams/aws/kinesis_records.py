"""Split the records of a Kinesis stream into items: one per record, or several per aggregate."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NotRequired, TypedDict, cast

import msgspec

from consumers.streams.aws.change_records import delivered_change
from consumers.streams.aws.kpl import BadAggregate, Part, parts_of
from consumers.streams.positions import RecordPosition, position_text
from consumers.streams.source import Position
from worker.runtime.json_bytes import typed_decoder
from worker.store.table import Change, TableName

DIGITS: Final = 64  # eight more than any sequence number so far


class KinesisRecord(msgspec.Struct, gc=False):
    """KinesisRecord is a record of the service, already decoded from base64."""

    sequence: str = msgspec.field(name="SequenceNumber")
    arrived_s: float = msgspec.field(name="ApproximateArrivalTimestamp")
    data: bytes = msgspec.field(name="Data")

    @property
    def arrived_millis(self) -> int:
        return round(self.arrived_s * 1000)


class KinesisAnswer(TypedDict):
    """KinesisAnswer is the part of a `GetRecords` response that is used."""

    Records: list[KinesisRecord]
    NextShardIterator: NotRequired[str | None]
    MillisBehindLatest: NotRequired[int | None]
    ChildShards: NotRequired[list[dict[str, Any]] | None]


_decode: Final = typed_decoder(KinesisAnswer)


def decode_answer(body: bytes) -> dict[str, Any]:
    """Decode a `GetRecords` response. Raises `ValueError`."""
    return cast("dict[str, Any]", _decode(body))


class Item(msgspec.Struct):
    """Item is a record, or one record of an aggregate.

    A dataclass would take several times as long to create.
    """

    sequence: str
    part: int | None  # None: the whole record, or the last one of an aggregate
    at_millis: int
    data: bytes
    problem: BadAggregate | None = None

    def position(self) -> Position:
        return position_text(self.sequence, self.at_millis, DIGITS, part=self.part)

    def change(self, tables: Mapping[str, TableName]) -> Change | None:
        """Return the change, or None for a table that is not followed.

        Raises `UnreadableRecord` or `BadAggregate`.
        """
        if self.problem is not None:
            raise self.problem
        return delivered_change(self.data, tables, int(self.sequence))


def items(wires: Sequence[KinesisRecord], place: RecordPosition) -> Iterator[Item]:
    """Yield the items of records, without the parts of an aggregate before the given position."""
    for wire in wires:
        sequence, at, data = wire.sequence, wire.arrived_millis, wire.data
        parts = parts_of(data)
        if parts is None:
            yield Item(sequence, None, at, data)
        else:
            done = place.part if place.part is not None and place.sequence == sequence else -1
            yield from (item for item in _items_in(data, parts, sequence, at) if item.part is None or item.part > done)


def _items_in(data: bytes, parts: Iterator[Part], sequence: str, at: int) -> Iterator[Item]:
    """Yield the items of an aggregate. The last one has the position of the whole: nothing follows it."""
    number, last = 0, None
    try:
        for part in parts:
            if last is not None:
                yield Item(sequence, number, at, last.data)
                number += 1
            last = part
    except BadAggregate as problem:
        if last is not None:
            yield Item(sequence, number, at, last.data)
        yield Item(sequence, None, at, data, problem)
        return
    if last is not None:
        yield Item(sequence, None, at, last.data)
