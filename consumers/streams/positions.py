"""Write positions in a shard, so that text order is the order of the shard.

    000…0049@1772539200000            a record, and when it was made
    000…0049.0000003@1772539200000    a record inside an aggregate: it sorts before the end of the whole
    000…0049~1772539200000            the same position once the loss of the records after it is reported
    000…0000@1772539200000            before the first record that was made at that time or later
    000…0049@1772539200000/21         a record whose number the service writes with leading zeros, in 21 digits

A position has a time because a sequence number says nothing once its record is gone. A sequence number is the service's
own text and is sent back exactly as it came.
"""

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from consumers.streams.source import Position
from worker.core.errors import ConfigError
from worker.core.model.keys import instant, millis

BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
PART_DIGITS: Final = 7
_TEXT: Final = re.compile(rf"(\d+)(?:\.(\d{{{PART_DIGITS}}}))?([@~])(\d{{13}})(?:/(\d{{1,3}}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordPosition:
    """RecordPosition is the position just after a record, or just after one of its parts."""

    sequence: str  # empty: before the first record
    at: datetime
    part: int | None = None  # of an aggregate; None: all of it
    is_bridged: bool = False  # the loss of the records behind it is reported

    def text(self, digits: int) -> Position:
        return position_text(
            self.sequence, millis(self.at), digits, part=self.part, mark="~" if self.is_bridged else "@"
        )

    @property
    def is_start(self) -> bool:
        return not self.sequence

    def bridged(self, now: datetime) -> "RecordPosition":
        """Return where to continue after a gap: after every position here, before all records that are left."""
        return replace(self, at=now, is_bridged=True)


OLDEST: Final = RecordPosition(sequence="", at=BEGINNING)


def position_text(sequence: str, at_millis: int, digits: int, *, part: int | None = None, mark: str = "@") -> Position:
    """Format a position without creating an object: there are thousands a second."""
    inside = "" if part is None else f".{part:0{PART_DIGITS}d}"
    zeros = f"/{len(sequence)}" if sequence[:1] == "0" else ""
    return Position(f"{sequence.zfill(digits)}{inside}{mark}{str(at_millis).zfill(13)}{zeros}")


def parse_place(text: str, digits: int) -> RecordPosition:
    found = _TEXT.fullmatch(text)
    if found is None or len(found[1]) != digits:
        raise ConfigError(
            f"{text!r} is no position in a shard of this kind of stream; delete the lease that holds it, and the "
            "stream is read from its beginning"
        )
    number, part, mark, at, width = found.groups()
    return RecordPosition(
        sequence=number[-int(width) :] if width else number.lstrip("0"),
        at=instant(int(at)),
        part=None if part is None else int(part),
        is_bridged=mark == "~",
    )


def time_of(text: str) -> datetime | None:
    """Return the time of a position of any kind of stream; None if it has none, as at the beginning."""
    found = _TEXT.fullmatch(text)
    at = BEGINNING if found is None else instant(int(found[4]))
    return None if at == BEGINNING else at
