"""What is in the records of a Kinesis stream: one item each, or those of an aggregate."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NotRequired, TypedDict, cast

import msgspec

from consumers.streams.aws.change_records import delivered_change
from consumers.streams.aws.kpl import BadAggregate, Part, parts_of
from consumers.streams.positions import RecordPosition, position_text
from consumers.streams.source import Position
from worker.store.table import Change, TableName

DIGITS: Final = 64  # eight more than a sequence number has ever had


class KinesisRecord(msgspec.Struct, gc=False):
    """A record as the service gives it, out of its base64 already."""

    sequence: str = msgspec.field(name="SequenceNumber")
    arrived_s: float = msgspec.field(name="ApproximateArrivalTimestamp")
    data: bytes = msgspec.field(name="Data")

    @property
    def arrived_millis(self) -> int:
        return round(self.arrived_s * 1000)


class KinesisAnswer(TypedDict):
    """What `GetRecords` answers, as far as anybody looks at it."""

    Records: list[KinesisRecord]
    NextShardIterator: NotRequired[str | None]
    MillisBehindLatest: NotRequired[int | None]
    ChildShards: NotRequired[list[dict[str, Any]] | None]


_answer: Final = msgspec.json.Decoder(KinesisAnswer)


def decode_answer(body: bytes) -> dict[str, Any]:
    """Read an answer of `GetRecords`. Raises `ValueError`."""
    return cast("dict[str, Any]", _answer.decode(body))


class Item(msgspec.Struct):
    """A record, or one of those in an aggregate. A dataclass would take several times as long to make."""

    sequence: str
    part: int | None  # None: the whole record, or the last one in an aggregate
    at_millis: int
    data: bytes
    problem: BadAggregate | None = None

    def position(self) -> Position:
        return position_text(self.sequence, self.at_millis, DIGITS, part=self.part)

    def change(self, tables: Mapping[str, TableName]) -> Change | None:
        """None for a change of a table that is not followed. Raises `UnreadableRecord` or `BadAggregate`."""
        if self.problem is not None:
            raise self.problem
        return delivered_change(self.data, tables, int(self.sequence))


def items(wires: Sequence[KinesisRecord], place: RecordPosition) -> Iterator[Item]:
    """What is in the records, without what lies before the place in an aggregate."""
    for wire in wires:
        sequence, at, data = wire.sequence, wire.arrived_millis, wire.data
        parts = parts_of(data)
        if parts is None:
            yield Item(sequence, None, at, data)
        else:
            done = place.part if place.part is not None and place.sequence == sequence else -1
            yield from (item for item in _items_in(data, parts, sequence, at) if item.part is None or item.part > done)


def _items_in(data: bytes, parts: Iterator[Part], sequence: str, at: int) -> Iterator[Item]:
    """Those in an aggregate. The position of the last one is that of the whole: nothing of it is left then."""
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
