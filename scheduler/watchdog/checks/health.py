"""Check Interlock itself: dead letters, readers that fall behind, slices of cron without a worker."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from scheduler.watchdog.check import Finding, Impaired
from worker.core.time.durations import format_duration
from worker.store.repos.delivery.dead_letters import DeadLetters

LETTERS_MAX: Final = 100  # counted per source
BEHIND_MAX: Final = timedelta(minutes=5)

# Returns how far the readers of each stream are behind, by stream. Raises `RetryLater`.
Lags: TypeAlias = Callable[[], Awaitable[Mapping[str, timedelta]]]

# Returns why history may be lost; None if the archive progresses. Raises `RetryLater`.
ArchiveProblem: TypeAlias = Callable[[datetime], Awaitable[str | None]]
ARCHIVE: Final = "archive"

# Returns the slices of cron that no live worker holds. Raises `RetryLater`.
UnheldSlices: TypeAlias = Callable[[], Awaitable[Sequence[str]]]
CRON_SLICES: Final = "cron-slices"

# Takes how many dead letters each source has, counted to `LETTERS_MAX`; also that a source has none any more.
NoteDeadLetters: TypeAlias = Callable[[Mapping[str, int]], None]


def unnoted(_held: Mapping[str, int]) -> None:
    pass


_NOTHING: Final[Sequence[Finding]] = ()


class DeadLetterCheck:
    """Reports each source that has dead letters, until a person drops or replays them."""

    def __init__(self, letters: DeadLetters, note: NoteDeadLetters) -> None:
        self._letters, self._note = letters, note

    async def depth(self, now: datetime) -> Sequence[Finding]:  # noqa: ARG002  every check gets the time
        parts: dict[str, str] = {}
        held: dict[str, int] = {}
        for source in await self._letters.sources():
            count = held[source] = len(await self._letters.list(source, LETTERS_MAX))
            if count:
                more = " or more" if count == LETTERS_MAX else ""
                parts[f"dead-letters {source}"] = f"{count}{more} could not be handled; `interlock dlq list`"
        self._note(held)
        if parts:
            raise Impaired(parts)
        return _NOTHING


class LagCheck:
    """Reports readers that are behind in two passes in a row, under `name`.

    The relay has a check of its own, because it carries alerts. A reader that has just started has not stored its
    position yet, so one pass is not enough.
    """

    def __init__(self, name: str, lags: Lags, behind_max: timedelta = BEHIND_MAX) -> None:
        self._name, self._lags, self._behind_max = name, lags, behind_max
        self._late_before: set[str] = set()

    async def lag(self, now: datetime) -> Sequence[Finding]:  # noqa: ARG002  every check gets the time
        late = {stream: behind for stream, behind in (await self._lags()).items() if behind > self._behind_max}
        again, self._late_before = late.keys() & self._late_before, set(late)
        if again:
            raise Impaired({f"{self._name} {stream}": _said(stream, late[stream]) for stream in sorted(again)})
        return _NOTHING


class ArchiveCheck:
    """Reports an archive that makes no progress, before the store deletes what it has not written."""

    def __init__(self, problem: ArchiveProblem) -> None:
        self._problem = problem

    async def look(self, now: datetime) -> Sequence[Finding]:
        if (problem := await self._problem(now)) is not None:
            raise Impaired({ARCHIVE: problem})
        return _NOTHING


class CronSliceCheck:
    """Reports slices of cron that no worker holds in two passes in a row.

    Their cron times start nothing. A slice changes hands within seconds, so one pass is not enough.
    """

    def __init__(self, unheld: UnheldSlices) -> None:
        self._unheld = unheld
        self._unheld_before: set[str] = set()

    async def look(self, now: datetime) -> Sequence[Finding]:  # noqa: ARG002  every check gets the time
        unheld = set(await self._unheld())
        again, self._unheld_before = sorted(unheld & self._unheld_before), unheld
        if again:
            said = f"no worker starts the cron times of slices {', '.join(again)}; see `interlock leases cron`"
            raise Impaired({CRON_SLICES: said})
        return _NOTHING


def _said(stream: str, behind: timedelta) -> str:
    rounded = timedelta(seconds=int(behind.total_seconds()))
    return f"{stream} is {format_duration(rounded)} behind; see whether its reader is alive and what it waits for"
