"""Random ids from the operating system's source of randomness.

A pool draws many bytes at a time, because one system call costs more than a decision.
"""

import os
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

DRAWN: Final = 4096  # bytes


class _Pool:
    """Holds random bytes and returns each byte only once."""

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
        """Reset the pool in a forked process.

        The parent uses the same bytes, and the copied lock may stay locked for ever.
        """
        self._lock = threading.Lock()
        self._bytes, self._given = b"", 0


_pool: Final = _Pool()
os.register_at_fork(after_in_child=_pool.begin_anew)


def random_id() -> str:
    """Return a random id of 8 bytes in hex, for an event, a row or a request."""
    return _pool.take(8).hex()


def random_long_id() -> str:
    """Return a random id of 16 bytes in hex, for objects that exist in very large numbers."""
    return _pool.take(16).hex()


NewId: TypeAlias = Callable[[], str]
