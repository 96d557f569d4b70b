"""The low-water mark: how far everything is done, when things are done out of order."""

from collections import deque
from dataclasses import dataclass

from consumers.streams.source import Position


@dataclass(slots=True)
class _Taken:
    position: Position
    is_done: bool


class LowWaterMark:
    """Positions are taken in order and done in any order; the mark covers only what is done without a hole.

    A reader that goes on from the mark meets everything again that was not done, and perhaps some that was.
    """

    def __init__(self, position: Position) -> None:
        self.mark = position
        self._taken: deque[_Taken] = deque()
        self._open: dict[Position, _Taken] = {}

    def __len__(self) -> int:
        """How much would be met again, done or not."""
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
        """Everything up to here is taken, and there is nothing more to do about it than was taken so far."""
        if self._taken and self._taken[-1].is_done:
            self._taken[-1].position = position  # one entry for all that is done in a row
        else:
            self._taken.append(_Taken(position, is_done=True))
        self._advance()

    def _advance(self) -> None:
        while self._taken and self._taken[0].is_done:
            self.mark = self._taken.popleft().position
