"""What is in the records of a Kinesis stream: one item each, or those of an aggregate."""

from binascii import a2b_base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from consumers.changes import delivered_change
from consumers.kpl import BadAggregate, Part, parts_of
from consumers.shardposition import Place, position_text
from consumers.source import Position
from worker.store.table import Change, TableName

DIGITS: Final = 64  # eight more than a sequence number has ever had


def arrived_millis(wire: Mapping[str, Any]) -> int:
    return round(wire["ApproximateArrivalTimestamp"] * 1000)


@dataclass(slots=True)  # not frozen, which would double what it costs to make one; there are thousands a second
class Item:
    """A record, or one of those in an aggregate."""

    sequence: str
    part: int | None  # None: the whole record, or the last one in an aggregate
    at_millis: int
    data: bytes
    problem: BadAggregate | None = None

    def position(self) -> Position:
        return position_text(self.sequence, self.at_millis, DIGITS, part=self.part)

    def change(self, tables: Mapping[str, TableName]) -> Change | None:
        """None for a change of a table that is not followed. Raises `Unreadable` or `BadAggregate`."""
        if self.problem is not None:
            raise self.problem
        return delivered_change(self.data, tables, int(self.sequence))


def items(wires: Sequence[Mapping[str, Any]], place: Place) -> Iterator[Item]:
    """What is in the records, without what lies before the place in an aggregate."""
    for wire in wires:
        sequence, at, data = wire["SequenceNumber"], arrived_millis(wire), a2b_base64(wire["Data"])
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
