"""Alerts on the console: a line for each, and successes gathered into one line now and then."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final, TypeAlias

from consumers.alerts.recent_ids import RecentIds
from consumers.alerts.retrying_writer import RetryingWriter
from consumers.outbox.severities import Severity, severity_of
from worker.core.model.events import Event
from worker.runtime.clock import Clock

LINE_MAX: Final = 500
DIGEST_EVERY: Final = timedelta(minutes=15)
NAMED_MAX: Final = 5
LAST_DIGEST_S: Final = 1.0  # for the digest at the end: a console that is not read must not keep the worker

# Returns once the line is written. Raises `OSError`.
WriteLine: TypeAlias = Callable[[Severity, str], Awaitable[None]]


class ConsoleAlerts:
    """Writes each event once. `digest_every` None: successes get lines of their own, like everything else.

    While the console cannot be written, alerts wait for it, however long that takes; `line` knows whether they do.
    A success is delivered when it is counted: the digest it is in is lost with the process, the event is not.
    """

    def __init__(self, write: WriteLine, clock: Clock, digest_every: timedelta | None = DIGEST_EVERY) -> None:
        self._write, self._clock, self._digest_every = write, clock, digest_every
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
        else:
            await self._say(severity, alert_line(event))
        self._told.add(event.id)  # last: what was cancelled while it waited is said when it comes again

    async def run(self) -> None:
        """Write digests until cancelled, and a last one then."""
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
        """Say what went well since the last digest; nothing if nothing did."""
        if not self._successes:
            return
        counts = ", ".join(f"{number} {name}" for name, number in sorted(self._successes.items()))
        names = [f"{name} {number}" for name, number in self._pipelines.most_common(NAMED_MAX)]
        more = len(self._pipelines) - len(names)
        where = ", ".join(names) + (f" and {more} more" if more else "")
        at = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        told = self._successes.copy(), self._pipelines.copy()
        await self._say(Severity.SUCCESS, _cut(f"{at}  {Severity.SUCCESS:<7}  digest  {counts}  ({where})"))
        # Those that came while it was written are of the next one.
        self._successes, self._pipelines = self._successes - told[0], self._pipelines - told[1]

    async def _say(self, severity: Severity, line: str) -> None:
        await self.line.write(lambda: self._write(severity, line))


def alert_line(event: Event) -> str:
    """One line: when, how bad, about which run, what, and what to do.

    The run is the thread: all lines about one begin alike, so they can be found by it.
    """
    thread = "/".join(part for part in (event.pipeline, event.schedule, event.period) if part) or "interlock"
    at = event.at.strftime("%Y-%m-%dT%H:%M:%SZ")
    hint = event.detail.get("actionHint")
    parts = [f"{at}  {severity_of(event.type, event.detail):<7}  {thread}  {event.type}"]
    parts.extend([_without_thread(event.message, thread)] if event.message else [])
    parts.extend([f"-> {hint}"] if isinstance(hint, str) and hint else [])
    return _cut("  ".join(parts))


def _without_thread(message: str, thread: str) -> str:
    """Most messages name their run first; the line has done so already."""
    return message.removeprefix(thread).lstrip(": ") or message


def _cut(line: str) -> str:
    shown = "".join(char if char.isprintable() else " " for char in line)
    return shown if len(shown) <= LINE_MAX else shown[: LINE_MAX - 1] + "…"
