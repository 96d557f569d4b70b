"""Bound the bytes that all readers of a process hold together."""

from typing import Final

MEBIBYTE: Final = 1024 * 1024
RECORD_MIN: Final = 1024  # the memory of a record, however short it is


class MemoryBudget:
    """Grants a permit before a read and counts the records that were read until they are done."""

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
    """Counts what one reader holds. Closing it returns everything, however the reader ended."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self._held = budget, 0

    def reserve(self) -> bool:
        """Reserve a permit for one read; return False if there is no room, so that the caller does not read."""
        if not self._budget.has_room():
            return False
        self._add(self._budget.permit)
        return True

    def settle(self) -> None:
        """Return the permit of a read that has ended. Its records are counted one by one."""
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
