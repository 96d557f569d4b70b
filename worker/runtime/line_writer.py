"""Lines to a stream that may be full, slow or gone: whoever writes them never waits for it, and never fails.

A thread of its own writes, because a pipe whose reader has stopped, or a disk that hangs, blocks whoever writes to it.
What waits is bounded; what cannot be kept or written is counted, and reported in the stream itself once that works.
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

WAITING_BYTES_MAX: Final = 8_000_000
REPORT_EVERY_S: Final = 5.0  # how often a stream that failed is tried again while nothing is written to it
CLOSE_MAX_S: Final = 2.0
GONE: Final = frozenset({errno.EPIPE, errno.ECONNRESET, errno.ESHUTDOWN})
TOO_MUCH: Final = "more was written than its reader takes"

# Writes some of the bytes and says how many. Raises `OSError`.
Write: TypeAlias = Callable[[bytes], int]
# Makes a line of how many lines were lost, and why.
DescribeLoss: TypeAlias = Callable[[int, str], str]


@dataclass(frozen=True, slots=True)
class _Piece:
    """What one call wrote. Without `settle`, nobody waits to learn what became of it."""

    content: bytes
    settle: Callable[[OSError | None], None] | None = None


class LineWriter:
    """Writes to one stream in the background. `write` may be called from any thread."""

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
        self.describe_loss: DescribeLoss | None = None  # None: what is lost is counted only
        self.on_broken: Callable[[], None] = lambda: None  # called once, in the writing thread
        self.lost = 0  # pieces, ever
        self.is_broken = False  # nobody reads the stream any more, nor ever will
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

    # --- for those who write ------------------------------------------------------------------------------------------

    def write(self, text: str) -> int:
        """Have a text written, which ends a line. One that cannot be is counted as lost."""
        self._put(_Piece(text.encode(self.encoding, "backslashreplace")))
        return len(text)

    def flush(self) -> None:
        """Nothing: the thread writes as soon as the stream lets it."""

    def isatty(self) -> bool:
        return self._is_terminal

    async def deliver(self, text: str) -> None:
        """Write a text and return once the stream has it. Raises `OSError` if it was not taken."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[OSError | None] = loop.create_future()

        def settle(error: OSError | None) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(_settle, ended, error)

        if not self._put(_Piece(text.encode(self.encoding, "backslashreplace"), settle)):
            raise OSError(errno.EAGAIN, TOO_MUCH)
        error = await ended
        if error is not None:
            raise error

    async def confirmed(self, write: Callable[[], None]) -> None:
        """Call what writes here, and return once that is written. Raises `OSError` if a line was lost meanwhile."""
        before = self.lost
        write()
        await self.deliver("")
        if self.lost != before:
            raise OSError(errno.EIO, self._reason)

    def close(self, timeout_s: float = CLOSE_MAX_S) -> None:
        """Write what waits and end, within a time: a reader that has stopped must not keep the process."""
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
            except (OSError, ValueError) as error:  # ValueError: a stream that was closed
                self._failed(piece, error if isinstance(error, OSError) else OSError(errno.EBADF, str(error)))
            else:
                if piece.settle is not None:
                    piece.settle(None)
        with suppress(OSError, ValueError):
            self._report_loss()

    def _next(self) -> _Piece | None:
        """Wait for something to write. An empty piece: see whether a loss can be reported. None: this is the end."""
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
            self._write_whole(f"{self.describe_loss(lost, reason)}\n".encode(self.encoding, "backslashreplace"))
            with self._changed:
                self._unreported -= lost

    def _write_whole(self, content: bytes) -> None:
        if content and self._is_within_line:
            content = b"\n" + content  # half a line was all that fitted
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
    """Write to a stream of this process; None, where it was closed before the process began, takes everything."""
    if stream is None:
        return LineWriter(len, name=name)
    encoding, is_terminal = getattr(stream, "encoding", None) or "utf-8", stream.isatty()
    try:
        # Its own number: that of a stream which is closed may be given to a file, such as the store.
        write = _to_descriptor(os.dup(stream.fileno()))
    except (OSError, ValueError):  # a stream in memory
        write = _to_stream(stream, encoding)
    return LineWriter(write, name=name, is_terminal=is_terminal, encoding=encoding)


def _to_descriptor(number: int) -> Write:
    def write(content: bytes) -> int:
        while True:
            try:
                return os.write(number, content)
            except BlockingIOError:  # whoever shares the stream has made it one that does not wait
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
