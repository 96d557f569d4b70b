"""Garbage collector tuning."""

import gc
from collections.abc import Generator
from contextlib import contextmanager


def freeze_startup_objects() -> None:
    """Exclude all objects made so far from garbage collection; call it once, when start-up is complete.

    Code, types and the descriptions of AWS services are hundreds of thousands of objects that live as long as the
    process. A full stream response creates so many new objects that the collector would scan all of them every few
    reads. Each scan would block the event loop for tens of milliseconds.
    """
    gc.collect()
    gc.freeze()


def freeze_lasting_objects() -> None:
    """Exclude the objects made so far from collection, without collecting: for data without cycles."""
    gc.freeze()


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
