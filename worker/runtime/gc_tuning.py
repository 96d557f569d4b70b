"""Garbage collector tuning."""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# New objects, and collections of a generation, before the next collection. A worker's data has few reference cycles:
# with Python's defaults (700, 10, 10), collecting takes some 3 % of a busy worker's time and finds almost nothing.
_THRESHOLDS: Final = (10_000, 20, 20)


def freeze_startup_objects() -> None:
    """Exclude all objects made so far from garbage collection; call it once, when start-up is complete.

    Code, types and the descriptions of AWS services are hundreds of thousands of objects that live as long as the
    process. A full stream response creates so many new objects that the collector would scan all of them every few
    reads. Each scan would block the event loop for tens of milliseconds. Later collections are rarer than by default.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


def freeze_lasting_objects() -> None:
    """Exclude the objects made so far from collection, without collecting: for data without cycles."""
    gc.freeze()


def freeze_again() -> None:
    """Free what became garbage in cycles after a freeze, and freeze the rest again; this blocks the loop."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


class GrowthFreezer:
    """Freezes the objects of a collection as it grows beyond the largest size that it ever had.

    Garbage in cycles that exists at the moment of a freeze is only freed by `freeze_again`. A collection that shrinks
    and grows again causes no more freezes: there is at most one for each `step` of its largest size.
    """

    def __init__(self, step: int) -> None:
        self._step, self._frozen_at = step, 0

    def note(self, size: int) -> None:
        """Freeze the objects made so far if the collection has grown by a step since the last freeze."""
        if size - self._frozen_at >= self._step:
            self._frozen_at = size
            freeze_lasting_objects()


@contextmanager
def collector_paused() -> Generator[None]:
    """Pause the collector while a command makes many objects that all stay, such as 10,000 parsed files.

    It would search all of them again and again, for about half of the time, and find nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
