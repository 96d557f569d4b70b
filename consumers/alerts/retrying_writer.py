"""Make alerts wait while their stream cannot be written, as alerts for a chat wait for the chat."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from worker.core.errors import RetryLater
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

WHILE_DOWN: Final = Backoff(attempts_max=7, first_s=1.0, longest_s=30.0)
SILENT_AFTER_S: Final = 5.0  # nobody reads a stream on which a write takes longer

_log = logger()


class RetryingWriter:
    """Makes one write at a time and retries it until it succeeds or its caller is cancelled."""

    def __init__(self, stream: str, clock: Clock, while_down: Backoff = WHILE_DOWN) -> None:
        self._stream, self._clock, self._while_down = stream, clock, while_down
        self._turns = asyncio.Lock()
        self._failures = 0  # consecutive
        self._reason, self._down_since = "", 0.0
        self.failed_tries = 0  # total

    def is_down(self) -> bool:
        return bool(self._reason)

    async def reach(self) -> None:
        """Raise `RetryLater` if the stream cannot be written now."""
        if self._reason:
            raise RetryLater(f"{self._stream} cannot be written: {self._reason}; alerts wait until it can")

    async def write(self, act: Callable[[], Awaitable[None]]) -> None:
        """Call `act` until it raises no `OSError`. Each retry is a new call of `act`."""
        async with self._turns:
            while True:
                silence = self._clock.call_later(SILENT_AFTER_S, lambda: self._went_down("nobody reads it"))
                try:
                    await act()
                except OSError as error:
                    self._went_down(error.strerror or str(error))
                else:
                    self._came_back()
                    return
                finally:
                    silence.cancel()
                self._failures = min(self._failures + 1, self._while_down.attempts_max)
                await self._clock.sleep(self._while_down.wait_s(self._failures))

    def _went_down(self, reason: str) -> None:
        self.failed_tries += 1
        if not self._reason:
            self._down_since = self._clock.monotonic()
            _log.error("console.down", stream=self._stream, reason=reason)
        self._reason = reason

    def _came_back(self) -> None:
        if self._reason:
            self._reason, self._failures = "", 0
            after_s = round(self._clock.monotonic() - self._down_since)
            _log.info("console.back", stream=self._stream, after_s=after_s)
