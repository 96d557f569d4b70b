"""Track the position up to which everything is done, although records finish out of order."""

from collections import deque
from dataclasses import dataclass

from consumers.streams.source import Position


@dataclass(slots=True)
class _Taken:
    position: Position
    is_done: bool


class LowWaterMark:
    """Takes positions in order; they finish in any order. The mark covers no unfinished one.

    A reader that continues from the mark receives again every record that was not done, and perhaps some that were.
    """

    def __init__(self, position: Position) -> None:
        self.mark = position
        self._taken: deque[_Taken] = deque()
        self._open: dict[Position, _Taken] = {}

    def __len__(self) -> int:
        """Return how many records would be read again, done or not."""
        return len(self._taken)

    @property
    def in_flight(self) -> int:
        return len(self._open)

    def take(self, position: Position) -> None:
        taken = _Taken(position, is_done=False)
        self._taken.append(taken)
        self._open[position] = taken

    def done(self, position: Position) -> None:
        self._open.pop(position).is_done = True
        self._advance()

    def pass_to(self, position: Position) -> None:
        """Declare that every record up to this position has been taken or is skipped."""
        if self._taken and self._taken[-1].is_done:
            self._taken[-1].position = position  # one entry for all finished records in a row
        else:
            self._taken.append(_Taken(position, is_done=True))
        self._advance()

    def _advance(self) -> None:
        while self._taken and self._taken[0].is_done:
            self.mark = self._taken.popleft().position
