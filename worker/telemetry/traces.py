"""Traces for an OpenTelemetry collector: one for each run.

A worker sends the spans of an attempt when the attempt ends, and the span of a job's start when the job was started:
the row of a running job does not say any more when its start was decided. It makes them from the run's row, also if
another worker held the run before. They are lost if the worker dies within seconds: the store, the events and the log
have everything that they show.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from worker.core.errors import RetryLater
from worker.core.model.keys import RunKey
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

SENT_EVERY_S: Final = 5.0
WAITING_MAX: Final = 2_000  # attempts, of up to four spans each, and starts; the oldest are dropped
SENT_MAX: Final = 150  # attempts and starts of one request

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedJob:
    """StartedJob is a job that is known to be started, and when Interlock decided to start it."""

    key: RunKey
    run_id: str
    number: int  # of its attempt
    began_at: datetime  # the attempt
    decided_at: datetime
    started_at: datetime
    job_type: str
    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAttempt:
    """FinishedAttempt is an attempt that will not change any more."""

    key: RunKey
    run_id: str
    number: int
    began_at: datetime
    started_at: datetime | None  # None: no job was started
    stop_asked_at: datetime | None = None  # None: it ended without a stop, or the stop was never confirmed
    ended_at: datetime
    outcome: str
    has_failed: bool
    reason: str
    job_type: str
    job: str


Traced: TypeAlias = StartedJob | FinishedAttempt


# Sends the spans of attempts and starts in one request. Raises `RetryLater`.
SendSpans: TypeAlias = Callable[[Sequence[Traced]], Awaitable[None]]


class RunTraces:
    """Keeps attempts and starts until their spans are sent, within bounds."""

    def __init__(self, clock: Clock, send: SendSpans) -> None:
        self._clock, self._send = clock, send
        self._waiting: deque[Traced] = deque()
        self._dropped = 0
        self._is_refused = False

    def add(self, traced: Traced) -> None:
        """Keep an attempt or a start until its spans are sent."""
        if len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(traced)

    async def run(self) -> None:
        """Send spans every few seconds, until cancelled."""
        while True:
            await self._clock.sleep(SENT_EVERY_S)
            await self.send()

    async def send(self) -> None:
        """Send what waits. What the collector does not accept is tried again, and reported once."""
        while self._waiting:
            attempts = [self._waiting[number] for number in range(min(SENT_MAX, len(self._waiting)))]
            dropped_before = self._dropped
            try:
                await self._send(attempts)
            except RetryLater as error:
                if not self._is_refused:
                    _log.warning("traces.unsent", reason=str(error), attempts=len(self._waiting))
                self._is_refused = True
                return
            # Those that were dropped meanwhile were the first of those that were sent.
            for _ in range(max(0, len(attempts) - (self._dropped - dropped_before))):
                self._waiting.popleft()
            if self._is_refused:
                _log.info("traces.sent", dropped=self._dropped)
                self._is_refused, self._dropped = False, 0
