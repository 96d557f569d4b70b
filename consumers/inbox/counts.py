"""Count notifications by their fate, and log a summary at intervals."""

from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Final

from worker.runtime.clock import Clock
from worker.runtime.logs import logger

EVERY_S: Final = 60.0

_log = logger()


class Fate(IntEnum):
    """Fate is the result of one notification. If several rules apply, the highest value counts."""

    UNMATCHED = auto()  # no rule matches it
    SKIPPED = auto()  # unchanged, older than the known content, or not about content
    USED = auto()  # a sensor was written
    FAILED = auto()  # no sensor can be made from it


@dataclass(slots=True)
class InboxCounts:
    """Counts notifications, of which a message may have several. A repeat is counted again."""

    used: int = 0
    skipped: int = 0
    unmatched: int = 0
    failed: int = 0

    def add(self, fate: Fate) -> None:
        match fate:
            case Fate.UNMATCHED:
                self.unmatched += 1
            case Fate.SKIPPED:
                self.skipped += 1
            case Fate.USED:
                self.used += 1
            case Fate.FAILED:
                self.failed += 1

    @property
    def seen(self) -> int:
        return self.used + self.skipped + self.unmatched + self.failed

    def since(self, earlier: "InboxCounts") -> "InboxCounts":
        return InboxCounts(
            used=self.used - earlier.used,
            skipped=self.skipped - earlier.skipped,
            unmatched=self.unmatched - earlier.unmatched,
            failed=self.failed - earlier.failed,
        )


class InboxSummary:
    """Logs a line per minute while notifications arrive, and a last line at the end.

    Run `run` for as long as the inbox is open.
    """

    def __init__(self, counts: InboxCounts, clock: Clock) -> None:
        self._counts, self._clock = counts, clock
        self._told = replace(counts)

    async def run(self) -> None:
        try:
            while True:
                await self._clock.sleep(EVERY_S)
                self.tell()
        finally:
            self.tell()

    def tell(self) -> None:
        new = self._counts.since(self._told)
        if new.seen:
            _log.info(
                "inbox.summary",
                seen=new.seen,
                used=new.used,
                skipped=new.skipped,
                unmatched=new.unmatched,
                failed=new.failed,
            )
            self._told = replace(self._counts)
