"""Progress: long work tells its reader that it goes on, however many calls lie between them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeAlias

Report: TypeAlias = Callable[[], None]

_report: Final[ContextVar[Report | None]] = ContextVar("progress", default=None)


@contextmanager
def watched(report: Report) -> Generator[None]:
    """Call `report` whenever the work inside the block makes progress."""
    before = _report.set(report)
    try:
        yield
    finally:
        _report.reset(before)


def made_progress() -> None:
    """Record that a part of long work is done; without a watcher, do nothing."""
    report = _report.get()
    if report is not None:
        report()
