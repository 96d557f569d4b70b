"""Writes lines to a stream that may be full, slow or closed; the caller never waits and never fails.

A separate thread writes, because a pipe whose reader has stopped, or a disk that hangs, blocks the writing thread. The
queue is bounded. The writer counts every line that it cannot keep or write, and reports the count in the stream itself
once the stream works again.
"""

import asyncio
import errno
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TextIO, TypeAlias

from worker.runtime.shown_text import ESCAPED

WAITING_BYTES_MAX: Final = 8_000_000
REPORT_EVERY_S: Final = 5.0  # how often a failed stream is retried while there is nothing to write
CLOSE_MAX_S: Final = 2.0
GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ESHUTDOWN})
TOO_MUCH: Final = "more was written than its reader takes"

# Writes some of the bytes and returns how many. Raises `OSError`.
Write: TypeAlias = Callable[[bytes], int]
# Formats a line that states how many lines were lost, and why.
DescribeLoss: TypeAlias = Callable[[int, str], str]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Holds the content of one call. Without `settle`, no caller waits for the result."""

    content: bytes
    settle: Callable[[OSError | None], None] | None = None


class LineWriter:
    """Writes to one stream in the background. Any thread may call `write`."""

    def __init__(
        self,
        write: Write,
        *,
        name: str = "the stream",
        is_terminal: bool = False,
        encoding: str = "utf-8",
        waiting_bytes_max: int = WAITING_BYTES_MAX,
        report_every_s: float = REPORT_EVERY_S,
    ) -> None:
        self.name, self.encoding = name, encoding
        self.describe_loss: DescribeLoss | None = None  # None: lost lines are only counted
        self.on_broken: Callable[[], None] = lambda: None  # called once, in the writing thread
        self.lost = 0  # number of pieces since the start
        self.is_broken = False  # the stream's reader is gone for good
        self._write, self._is_terminal = write, is_terminal
        self._waiting_bytes_max, self._report_every_s = waiting_bytes_max, report_every_s
        self._changed = threading.Condition()
        self._waiting: deque[_Piece] = deque()
        self._waiting_bytes = 0
        self._unreported, self._reason = 0, ""
        self._is_closing = self._is_over = False
        self._is_within_line = False
        self._thread = threading.Thread(target=self._serve, name=f"write:{name}", daemon=True)
        self._thread.start()

    # --- called by writers --------------------------------------------------------------------------------------------

    def write(self, text: str) -> int:
        """Queue a text that ends a line. A text that cannot be queued is counted as lost."""
        self._put(_Piece(text.encode(self.encoding, ESCAPED)))
        return len(text)

    def flush(self) -> None:
        """Do nothing: the thread writes as soon as the stream accepts bytes."""

    def isatty(self) -> bool:
        return self._is_terminal

    async def deliver(self, text: str) -> None:
        """Write a text and return once the stream has accepted it. Raises `OSError` if it did not."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[OSError | None] = loop.create_future()

        def settle(error: OSError | None) -> None:
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(_settle, ended, error)

        if not self._put(_Piece(text.encode(self.encoding, ESCAPED), settle)):
            raise OSError(errno.EAGAIN, TOO_MUCH)
        error = await ended
        if error is not None:
            raise error

    async def confirmed(self, write: Callable[[], None]) -> None:
        """Call `write` and return once its lines are written. Raises `OSError` if a line was lost meanwhile."""
        before = self.lost
        write()
        await self.deliver("")
        if self.lost != before:
            raise OSError(errno.EIO, self._reason)

    def close(self, timeout_s: float = CLOSE_MAX_S) -> None:
        """Write the queued lines and stop, within `timeout_s`: a stopped reader must not block the exit."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _put(self, piece: _Piece) -> bool:
        with self._changed:
            is_hopeless = self._is_over or (self.is_broken and piece.settle is None)
            if is_hopeless or self._waiting_bytes + len(piece.content) > self._waiting_bytes_max:
                self._count_lost(TOO_MUCH)
                return False
            self._waiting.append(piece)
            self._waiting_bytes += len(piece.content)
            self._changed.notify()
        return True

    def _count_lost(self, reason: str) -> None:
        self.lost += 1
        self._unreported += 1
        self._reason = self._reason if self.is_broken else reason

    # --- in the thread ------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (piece := self._next()) is not None:
            try:
                self._report_loss()
                self._write_whole(piece.content)
            except (OSError, ValueError) as error:  # ValueError: the stream was closed
                self._failed(piece, error if isinstance(error, OSError) else OSError(errno.EBADF, str(error)))
            else:
                if piece.settle is not None:
                    piece.settle(None)
        with suppress(OSError, ValueError):
            self._report_loss()

    def _next(self) -> _Piece | None:
        """Wait for the next piece. An empty piece means: try to report a loss. None means: stop."""
        with self._changed:
            while not self._waiting:
                if self._is_closing:
                    self._is_over = True
                    return None
                owes_report = self._unreported and self.describe_loss is not None and not self.is_broken
                if not self._changed.wait(self._report_every_s if owes_report else None):
                    return _Piece(b"")
            piece = self._waiting.popleft()
            self._waiting_bytes -= len(piece.content)
            return piece

    def _report_loss(self) -> None:
        with self._changed:
            lost, reason = self._unreported, self._reason
        if lost and self.describe_loss is not None:
            self._write_whole(f"{self.describe_loss(lost, reason)}\n".encode(self.encoding, ESCAPED))
            with self._changed:
                self._unreported -= lost

    def _write_whole(self, content: bytes) -> None:
        if content and self._is_within_line:
            content = b"\n" + content  # only part of the previous line was written
        while content:
            written = self._write(content)
            content = content[written:]
            self._is_within_line = bool(content)

    def _failed(self, piece: _Piece, error: OSError) -> None:
        breaks = error.errno in GONE and not self.is_broken
        with self._changed:
            self._reason = error.strerror or str(error)
            self.is_broken = self.is_broken or breaks
            if piece.content and piece.settle is None:
                self._count_lost(self._reason)
        if piece.settle is not None:
            piece.settle(error)
        if breaks:
            self.on_broken()


def line_writer(stream: TextIO | None, name: str) -> LineWriter:
    """Return a writer for a stream of this process.

    None means that the stream was closed before the process began. Its writer fails as one on a full disk does: who
    waits for a line to be written, as alerts do, is told that it was not.
    """
    if stream is None:
        return LineWriter(_closed(name), name=name)
    encoding, is_terminal = getattr(stream, "encoding", None) or "utf-8", stream.isatty()
    try:
        # A duplicated descriptor: the number of a closed stream may be reused for a file, such as the store.
        write = _to_descriptor(os.dup(stream.fileno()))
    except (OSError, ValueError):  # an in-memory stream
        write = _to_stream(stream, encoding)
    return LineWriter(write, name=name, is_terminal=is_terminal, encoding=encoding)


def _closed(name: str) -> Write:
    def write(_content: bytes) -> int:
        raise OSError(errno.EBADF, f"{name} was closed before the process began")

    return write


def _to_descriptor(number: int) -> Write:
    def write(content: bytes) -> int:
        while True:
            try:
                return os.write(number, content)
            except BlockingIOError:  # another process that shares the stream made it non-blocking
                waiting = select.poll()
                waiting.register(number, select.POLLOUT)
                waiting.poll()

    return write


def _to_stream(stream: TextIO, encoding: str) -> Write:
    def write(content: bytes) -> int:
        stream.write(content.decode(encoding, "replace"))
        stream.flush()
        return len(content)

    return write


def _settle(future: "asyncio.Future[OSError | None]", error: OSError | None) -> None:
    if not future.done():
        future.set_result(error)
