"""Checks of ourselves: records that could not be handled, and readers that fall behind."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from scheduler.watchdog.check import Finding, Impaired
from worker.core.time.durations import format_duration
from worker.store.repos.delivery.dead_letters import DeadLetters

LETTERS_MAX: Final = 100  # counted of each source
BEHIND_MAX: Final = timedelta(minutes=5)

# How far each stream's readers are behind, by its name. Raises `RetryLater`.
Lags: TypeAlias = Callable[[], Awaitable[Mapping[str, timedelta]]]

_NOTHING: Final[Sequence[Finding]] = ()


class DeadLetterCheck:
    """A letter waits until a person drops or replays it; that the first of a source came is told."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters

    async def depth(self, now: datetime) -> Sequence[Finding]:  # noqa: ARG002  every check is told the time
        parts: dict[str, str] = {}
        for source in await self._letters.sources():
            count = len(await self._letters.list(source, LETTERS_MAX))
            if count:
                more = " or more" if count == LETTERS_MAX else ""
                parts[f"dead-letters {source}"] = f"{count}{more} could not be handled; `interlock dlq list`"
        if parts:
            raise Impaired(parts)
        return _NOTHING


class LagCheck:
    """`name` is what a reader that is behind is called; the check of the relay is apart, because it carries alerts.

    Behind is who is seen behind twice in a row: a reader that has just begun has not said yet where it is.
    """

    def __init__(self, name: str, lags: Lags, behind_max: timedelta = BEHIND_MAX) -> None:
        self._name, self._lags, self._behind_max = name, lags, behind_max
        self._late_before: set[str] = set()

    async def lag(self, now: datetime) -> Sequence[Finding]:  # noqa: ARG002  every check is told the time
        late = {stream: behind for stream, behind in (await self._lags()).items() if behind > self._behind_max}
        again, self._late_before = late.keys() & self._late_before, set(late)
        if again:
            raise Impaired({f"{self._name} {stream}": _said(stream, late[stream]) for stream in sorted(again)})
        return _NOTHING


def _said(stream: str, behind: timedelta) -> str:
    rounded = timedelta(seconds=int(behind.total_seconds()))
    return f"{stream} is {format_duration(rounded)} behind; see whether its reader is alive and what it waits for"
