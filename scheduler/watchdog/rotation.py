"""Looking at all pipelines in turn, a few in each pass: a safety net whose cost does not grow with their number."""

from collections.abc import Iterable, Sequence
from typing import Final

from worker.core.model.pipeline import PipelineId

SLICE: Final = 50
ONCE: Final = 1_000  # where there is no next pass


class RoundRobin:
    def __init__(self, size: int = SLICE) -> None:
        self._size = size
        self._last: PipelineId | None = None
        self.left = 0  # how many pipelines the last slice left to later ones

    def next_slice(self, pipelines: Iterable[PipelineId]) -> Sequence[PipelineId]:
        """The next ones in order of their ids, from the beginning again after the last; each once in a round."""
        ahead = sorted(pipelines)
        after = [each for each in ahead if self._last is None or each > self._last]
        chosen = (after or ahead)[: self._size]
        self._last = chosen[-1] if len(after) > self._size else None
        self.left = len(ahead) - len(chosen)
        return chosen
