"""Random ids, from the operating system's own source, drawn many at a time: asking it costs more than a decision."""

import os
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

DRAWN: Final = 4096  # bytes


class _Pool:
    """Randomness in stock, each byte of which is given out once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes, self._given = b"", 0

    def take(self, count: int) -> bytes:
        with self._lock:
            if self._given + count > len(self._bytes):
                self._bytes, self._given = os.urandom(DRAWN), 0
            self._given += count
            return self._bytes[self._given - count : self._given]

    def begin_anew(self) -> None:
        """In a forked process: what is in stock is also the parent's, whose lock may be taken for ever."""
        self._lock = threading.Lock()
        self._bytes, self._given = b"", 0


_pool: Final = _Pool()
os.register_at_fork(after_in_child=_pool.begin_anew)


def random_id() -> str:
    """For an event, a row or a request."""
    return _pool.take(8).hex()


def random_long_id() -> str:
    """For what there are very many of."""
    return _pool.take(16).hex()


NewId: TypeAlias = Callable[[], str]
