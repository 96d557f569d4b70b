"""Who holds a record ledger: the run that may save what it processed.

A run takes a ledger when it asks which records changed. From then on an older attempt of the same run, and every run
that held the ledger before, can save nothing: what they processed may be older than what is saved by now.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from worker.core.errors import Rejected


@dataclass(frozen=True, slots=True)
class LedgerHolder:
    """LedgerHolder is one attempt of a run. A run outside Interlock has a name of its choice."""

    run: str
    attempt: int = 1

    def __str__(self) -> str:
        return f"{self.run} (attempt {self.attempt})"


class LedgerHeld(Rejected):
    """Reports that a run does not hold the ledger, or no longer does."""

    def __init__(self, ledger: str, by: LedgerHolder, why: str) -> None:
        super().__init__(
            f"{by} cannot save to the ledger {ledger}: {why}; nothing was saved. Stop this attempt, or begin again "
            "with `ledger diff`"
        )


def hold(ledger: str, held_by: LedgerHolder | None, by: LedgerHolder, *, takes: bool) -> LedgerHolder:
    """Return who holds the ledger after a request. Raises `LedgerHeld`.

    With `takes`, another run takes it over. Without, only the holder, a newer attempt of it, or the first run goes on.
    """
    if held_by is None or held_by == by:
        return by
    if held_by.run == by.run:
        if by.attempt < held_by.attempt:
            raise LedgerHeld(ledger, by, f"attempt {held_by.attempt} has taken it over")
        return by
    if not takes:
        raise LedgerHeld(ledger, by, f"{held_by} has taken it over")
    return by


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """LedgerRecord is one record by its id, and the hash of the content that was processed."""

    id: str
    hash: str


@dataclass(frozen=True, slots=True)
class RecordChanges:
    """RecordChanges counts how records compare with the ledger."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0

    @property
    def seen(self) -> int:
        return self.new + self.changed + self.unchanged

    def plus(self, other: "RecordChanges") -> "RecordChanges":
        return RecordChanges(self.new + other.new, self.changed + other.changed, self.unchanged + other.unchanged)


def compare(records: Iterable[LedgerRecord], known: Mapping[str, str]) -> tuple[list[bool], RecordChanges]:
    """Return for each record whether it is new or changed, and the counts. An id is new once."""
    seen = dict(known)
    flags: list[bool] = []
    new = changed = unchanged = 0
    for record in records:
        before = seen.get(record.id)
        is_changed = before != record.hash
        flags.append(is_changed)
        new += before is None
        changed += is_changed and before is not None
        unchanged += not is_changed
        seen[record.id] = record.hash
    return flags, RecordChanges(new, changed, unchanged)
