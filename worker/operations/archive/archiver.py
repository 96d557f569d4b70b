"""Archives events and ended runs as compressed NDJSON, so that history outlives the store's retention.

The archive is written window by window: first the objects, durably, then the progress, conditionally. A process that
dies in between repeats the window, and a repeat with the same content has the same names. Readers deduplicate by `id`.
"""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from worker.core.errors import RetryLater
from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.operations.archive.history import History
from worker.operations.archive.target import ArchiveTarget
from worker.operations.archive.windows import SHORTEST, SIZES, ArchiveWindow, aligned, next_window
from worker.runtime.clock import Clock
from worker.runtime.json_bytes import to_json
from worker.store import retention
from worker.store.repos.delivery.archive_progress import ArchiveProgress, ArchiveProgresses

RECORDS_MAX: Final = 5_000  # in one object
BYTES_MAX: Final = 4_000_000  # of one object, before compression; one record may exceed it
STALLED_AFTER: Final = timedelta(hours=6)

_DIGEST_CHARS: Final = 12
_AT_ONCE: Final = 100  # records between two turns of the event loop


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReport:
    """Counts what one reading of a window wrote. `is_again`: it was the second reading."""

    window: ArchiveWindow
    events: int
    runs: int
    objects: int
    is_again: bool


class Archiver:
    """Writes one archive. Several processes may do so at once: one of them saves its progress."""

    def __init__(
        self, history: History, target: ArchiveTarget, progresses: ArchiveProgresses, clock: Clock, *, name: str
    ) -> None:
        self._history, self._target, self._progresses, self._clock = history, target, progresses, clock
        self.name = name
        self._lag: timedelta | None = None

    @property
    def lag_s(self) -> float | None:
        """Return how far behind the archive was at the last step, beyond a window's length; None before it."""
        return None if self._lag is None else max(0.0, (self._lag - SHORTEST).total_seconds())

    async def step(self, may_act: Callable[[], bool]) -> WindowReport | None:
        """Archive one window; None if none is due. Raises `RetryLater`; the next step then repeats it."""
        now = self._clock.now()
        progress = await self._progresses.load() or await self._begin(now)
        self._lag = now - progress.up_to
        if not may_act():
            return None
        if (opened := _due_again(progress, now)) is not None:
            return await self._read_again(progress, opened, now)
        window = next_window(progress.up_to, now)
        return None if window is None else await self._archive(progress, window, now)

    async def problem(self, now: datetime) -> str | None:
        """Return why history may be lost, for people; None if the archive progresses."""
        progress = await self._progresses.load()
        if progress is None or now - progress.moved_at < STALLED_AFTER:
            return None
        behind = format_duration(timedelta(hours=(now - progress.up_to) // timedelta(hours=1)))
        lost_at = progress.up_to + retention.EVENTS
        when = "events are being lost" if now >= lost_at else f"events are lost from {format_rfc3339(lost_at)} on"
        return f"the archive {self.name} is {behind} behind, and {when}; `interlock archive` says why"

    async def _begin(self, now: datetime) -> ArchiveProgress:
        """Begin with the oldest rows that the store may still have."""
        midnight = aligned(now - retention.RUNS).replace(hour=0, minute=0)
        first = ArchiveProgress(up_to=midnight, began_at=now, moved_at=now)
        saved = await self._progresses.save(first) or await self._progresses.load()
        if saved is None:
            raise RetryLater("the progress of the archive was deleted while it was written; it begins again")
        return saved

    async def _archive(self, progress: ArchiveProgress, window: ArchiveWindow, now: datetime) -> WindowReport:
        written = _Written()
        await self._write(window, written, reading=0, known=frozenset())
        still_open = {} if window.is_final(now) else {_label(window): tuple(written.digests)}
        await self._progresses.save(
            replace(progress, up_to=window.end, moved_at=self._clock.now(), open={**progress.open, **still_open})
        )
        return _report(window, written, is_again=False)

    async def _read_again(self, progress: ArchiveProgress, label: str, now: datetime) -> WindowReport:
        """Read a window a second time; write only the objects whose content differs from the first time."""
        window, written = _window(label), _Written()
        if window is not None:
            await self._write(window, written, reading=1, known=frozenset(progress.open[label]))
        rest = {name: digests for name, digests in progress.open.items() if name != label}
        await self._progresses.save(replace(progress, open=rest, moved_at=self._clock.now()))
        return _report(window or ArchiveWindow(aligned(now), SIZES[-1][0]), written, is_again=True)

    async def _write(self, window: ArchiveWindow, written: "_Written", *, reading: int, known: frozenset[str]) -> None:
        kinds = {"events": self._history.events(window), "runs": self._history.runs(window)}
        if window.end < self._clock.now() - retention.EVENTS:
            del kinds["events"]  # they have expired, and asking for each type of each old day would take long
        for kind, records in kinds.items():
            number = 0
            async for lines in _parts(records, written, kind):
                digest = sha256(lines).hexdigest()[:_DIGEST_CHARS]
                written.digests.append(digest)
                if digest not in known:
                    file = f"{window.name}-{reading}-{number:05d}-{digest}.ndjson.gz"
                    name = f"{kind}/day={window.start:%Y-%m-%d}/{file}"
                    await self._target.put(name, await asyncio.to_thread(gzip.compress, lines, mtime=0))
                    written.objects += 1
                number += 1


@dataclass(slots=True)
class _Written:
    events: int = 0
    runs: int = 0
    objects: int = 0
    digests: list[str] = field(default_factory=list[str])


async def _parts(records: AsyncIterator[Mapping[str, Json]], written: _Written, kind: str) -> AsyncIterator[bytes]:
    """Yield the lines of objects, each within its bounds, and count the records."""
    lines, count = bytearray(), 0
    async for record in records:
        lines += to_json(record, is_sorted=True) + b"\n"
        count += 1
        if kind == "events":
            written.events += 1
        else:
            written.runs += 1
        if count % _AT_ONCE == 0:
            await asyncio.sleep(0)
        if count >= RECORDS_MAX or len(lines) >= BYTES_MAX:
            yield bytes(lines)
            lines, count = bytearray(), 0
    if lines:
        yield bytes(lines)


def _report(window: ArchiveWindow, written: _Written, *, is_again: bool) -> WindowReport:
    return WindowReport(
        window=window, events=written.events, runs=written.runs, objects=written.objects, is_again=is_again
    )


def _label(window: ArchiveWindow) -> str:
    return f"{format_rfc3339(window.start)} {window.size}"


def _window(label: str) -> ArchiveWindow | None:
    text, _, size = label.partition(" ")
    start = parse_rfc3339(text)
    return None if start is None or size not in dict(SIZES) else ArchiveWindow(start, size)


def _due_again(progress: ArchiveProgress, now: datetime) -> str | None:
    """Return a window whose second reading is due; one that cannot be understood is due at once."""
    for label in sorted(progress.open):
        window = _window(label)
        if window is None or window.is_final(now):
            return label
    return None
