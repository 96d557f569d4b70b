"""A clock that begins at a chosen time and goes on as the real one does."""

from datetime import datetime

from worker.runtime.clock import SystemClock


class ShiftedClock(SystemClock):
    def __init__(self, begin: datetime) -> None:
        self._offset = begin - super().now()

    def now(self) -> datetime:
        return super().now() + self._offset
