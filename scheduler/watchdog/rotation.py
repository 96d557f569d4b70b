"""Visit all pipelines in turn, a few per pass, so that the cost does not grow with their number."""

from collections.abc import Iterable, Sequence
from typing import Final

from worker.core.model.ids import PipelineId

SLICE: Final = 50
ONCE: Final = 1_000  # if there is no next pass


class RoundRobin:
    """`passes`: a cycle over all pipelines takes at least so many passes, if there are so many pipelines."""

    def __init__(self, size: int = SLICE, *, passes: int = 1) -> None:
        self._size, self._passes = size, passes
        self._last: PipelineId | None = None
        self.left = 0  # how many pipelines the last slice left to later ones

    def next_slice(self, pipelines: Iterable[PipelineId]) -> Sequence[PipelineId]:
        """Return the next pipelines in id order; start again after the last one. Each comes once per cycle."""
        ahead = sorted(pipelines)
        after = [each for each in ahead if self._last is None or each > self._last]
        size = min(self._size, -(-len(ahead) // self._passes))
        chosen = (after or ahead)[:size]
        self._last = chosen[-1] if len(after or ahead) > size else None
        self.left = len(ahead) - len(chosen)
        return chosen
