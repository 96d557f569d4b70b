"""Visit all pipelines in turn, a few per pass, so that the cost does not grow with their number."""

from collections.abc import Iterable, Sequence
from typing import Final

from worker.core.model.ids import PipelineId

SLICE: Final = 50
ONCE: Final = 1_000  # if there is no next pass


class RoundRobin:
    def __init__(self, size: int = SLICE) -> None:
        self._size = size
        self._last: PipelineId | None = None
        self.left = 0  # how many pipelines the last slice left to later ones

    def next_slice(self, pipelines: Iterable[PipelineId]) -> Sequence[PipelineId]:
        """Return the next pipelines in id order; start again after the last one. Each comes once per cycle."""
        ahead = sorted(pipelines)
        after = [each for each in ahead if self._last is None or each > self._last]
        chosen = (after or ahead)[: self._size]
        self._last = chosen[-1] if len(after) > self._size else None
        self.left = len(ahead) - len(chosen)
        return chosen
