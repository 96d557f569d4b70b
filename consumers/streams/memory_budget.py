"""How much may be in hand at once, in bytes: what all readers of a process hold together."""

from typing import Final

MEBIBYTE: Final = 1024 * 1024
RECORD_MIN: Final = 1024  # what a record costs in memory however short it is


class MemoryBudget:
    """A reader sets a permit aside before it reads, and keeps what it really read until that is done."""

    def __init__(self, total: int = 64 * MEBIBYTE, permit: int = MEBIBYTE) -> None:
        self._total, self._permit, self._used = total, permit, 0

    @property
    def used(self) -> int:
        return self._used

    def open(self) -> "Account":
        return Account(self)

    def has_room(self) -> bool:
        return self._used + self._permit <= self._total

    def use(self, size: int) -> None:
        self._used += size

    @property
    def permit(self) -> int:
        return self._permit


class Account:
    """What one reader holds. Closing it gives all of it back, whatever became of the reader."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._held = budget, 0

    def reserve(self) -> bool:
        """Set a permit aside for one read; False if there is no room: then do not read."""
        if not self._budget.has_room():
            return False
        self._add(self._budget.permit)
        return True

    def settle(self) -> None:
        """The read has answered, and what came is counted record by record."""
        self._add(-self._budget.permit)

    def take(self, size: int) -> None:
        self._add(max(size, RECORD_MIN))

    def free(self, size: int) -> None:
        self._add(-max(size, RECORD_MIN))

    def close(self) -> None:
        self._add(-self._held)

    def _add(self, size: int) -> None:
        self._held += size
        self._budget.use(size)
