"""Write alerts to the console: one line each, and a periodic digest line for successes."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from consumers.alerts.recent_ids import RecentIds
from consumers.alerts.retrying_writer import RetryingWriter
from consumers.outbox.severities import Severity, severity_of
from worker.core.model.events import Event, shown_type
from worker.runtime.clock import Clock

LINE_MAX: Final = 500
DIGEST_EVERY: Final = timedelta(minutes=15)
NAMED_MAX: Final = 5
LAST_DIGEST_S: Final = 1.0  # limit for the last digest: a console that is not read must not block the worker

# Returns once the line is written. Raises `OSError`.
WriteLine: TypeAlias = Callable[[Severity, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ConsoleLine:
    severity: Severity
    text: str


# Returns the line of an event; None: the event gets none.
LineOf: TypeAlias = Callable[[Event], Awaitable[ConsoleLine | None]]


async def plain_line(event: Event) -> ConsoleLine:
    return ConsoleLine(severity_of(event.type, event.detail), alert_line(event))


class ConsoleAlerts:
    """Writes each event once. If `digest_every` is None, each success gets a line of its own.

    While the console cannot be written, alerts wait without limit; `line` knows whether they do. A success is delivered
    when it is counted: a crash of the process loses its digest, but not the event.
    """

    def __init__(
        self,
        write: WriteLine,
        clock: Clock,
        digest_every: timedelta | None = DIGEST_EVERY,
        line_of: LineOf = plain_line,
    ) -> None:
        self._write, self._clock, self._digest_every, self._line_of = write, clock, digest_every, line_of
        self.line = RetryingWriter("standard output", clock)
        self._told = RecentIds()
        self._successes: Counter[str] = Counter()
        self._pipelines: Counter[str] = Counter()

    async def deliver(self, event: Event) -> None:
        if event.id in self._told:
            return
        severity = severity_of(event.type, event.detail)
        if severity is Severity.SUCCESS and self._digest_every is not None:
            self._successes[event.type] += 1
            self._pipelines[event.pipeline] += 1
        elif (line := await self._line_of(event)) is not None:
            await self._say(line.severity, line.text)
        self._told.add(event.id)  # last: an event that was cancelled while it waited is written when it arrives again

    async def run(self) -> None:
        """Write digests until cancelled, then write a last one."""
        if self._digest_every is None:
            return
        try:
            while True:
                await self._clock.sleep(self._digest_every.total_seconds())
                await self.write_digest()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_DIGEST_S):
                    await self.write_digest()

    async def write_digest(self) -> None:
        """Write the successes since the last digest. Write nothing if there were none."""
        if not self._successes:
            return
        counts = ", ".join(f"{number} {name}" for name, number in sorted(self._successes.items()))
        names = [f"{name} {number}" for name, number in self._pipelines.most_common(NAMED_MAX)]
        more = len(self._pipelines) - len(names)
        where = ", ".join(names) + (f" and {more} more" if more else "")
        at = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        told = self._successes.copy(), self._pipelines.copy()
        await self._say(Severity.SUCCESS, _cut(f"{at}  {Severity.SUCCESS:<7}  digest  {counts}  ({where})"))
        # Successes that arrived during the write belong to the next digest.
        self._successes, self._pipelines = self._successes - told[0], self._pipelines - told[1]

    async def _say(self, severity: Severity, line: str) -> None:
        await self.line.write(lambda: self._write(severity, line))


def alert_line(event: Event) -> str:
    """Return one line: time, severity, run, event type, message and what to do.

    All lines about a run have the same prefix after the severity, so a search for it finds them.
    """
    thread = "/".join(part for part in (event.pipeline, event.schedule, event.period) if part) or "interlock"
    at = event.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    hint = event.detail.get("actionHint")
    parts = [f"{at}  {severity_of(event.type, event.detail):<7}  {thread}  {shown_type(event.type)}"]
    parts.extend([_without_thread(event.message, thread)] if event.message else [])
    parts.extend([f"-> {hint}"] if isinstance(hint, str) and hint else [])
    return _cut("  ".join(parts))


def _without_thread(message: str, thread: str) -> str:
    """Remove the run from the start of a message, because the line names it already."""
    return message.removeprefix(thread).lstrip(": ") or message


def _cut(line: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in line)
    return shown if len(shown) <= LINE_MAX else shown[: LINE_MAX - 1] + "…"
