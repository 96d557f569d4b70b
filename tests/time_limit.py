"""The hard limit of a test, watched by one thread for all tests.

pytest-timeout starts a thread for each test and waits for its end: on a busy machine, longer than most tests take.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

LOOK_EVERY_S: Final = 1.0


class TimeLimit:
    """Calls `end` if a test goes on for longer than it may: up to a look later, which is early enough."""

    def __init__(self, look_every_s: float = LOOK_EVERY_S) -> None:
        self._look_every_s = look_every_s
        self._due: tuple[float, Callable[[], None]] | None = None
        self._watching: threading.Thread | None = None

    def begin(self, seconds: float, end: Callable[[], None]) -> None:
        self._due = time.monotonic() + seconds, end
        if self._watching is None:
            self._watching = threading.Thread(target=self._watch, name="time limit", daemon=True)
            self._watching.start()

    def cancel(self) -> None:
        self._due = None

    def _watch(self) -> None:
        while True:
            time.sleep(self._look_every_s)
            due = self._due
            if due is not None and time.monotonic() > due[0]:
                self._due = None
                due[1]()
