"""Progress of an archive: up to which time it is written, and which windows it will read again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, cast

from worker.core.model import keys
from worker.runtime.json_bytes import from_json, to_json
from worker.store.rows import loose_text
from worker.store.table import Absent, Equals, Key, Put, Row, StaleWrite, TableName, Tables

OBJECTS_MAX: Final = 2_000  # names that one row holds; windows beyond are written again as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveProgress:
    """Holds up to which time everything was written.

    `began_at` is when the archive was first written, `moved_at` when the progress last changed. `open` has the windows
    that are read again, each with the names of its objects.
    """

    up_to: datetime
    began_at: datetime
    moved_at: datetime
    open: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    version: int = 0


class ArchiveProgresses:
    """Keeps one row for each target: another target is another archive, which begins with the oldest rows."""

    def __init__(self, tables: Tables, target: str) -> None:
        self._tables = tables
        self._key = Key(keys.ARCHIVE, keys.archive_sk(sha256(target.encode()).hexdigest()[:16]))
        self._target = target

    async def load(self) -> ArchiveProgress | None:
        row = await self._tables.get(TableName.CONTROL, self._key)
        return None if row is None else _progress(row)

    async def save(self, progress: ArchiveProgress) -> ArchiveProgress | None:
        """Write the progress over the version it is based on; None if another process was first."""
        row = {
            "PK": self._key.pk,
            "SK": self._key.sk,
            "target": self._target,
            "upTo": keys.millis(progress.up_to),
            "beganAt": keys.millis(progress.began_at),
            "movedAt": keys.millis(progress.moved_at),
            "open": to_json(_bounded(progress.open)).decode(),
            "version": progress.version + 1,
        }
        condition = Equals("version", progress.version) if progress.version else Absent()
        try:
            await self._tables.commit(Put(TableName.CONTROL, row, condition))
        except StaleWrite:
            return None
        return ArchiveProgress(
            up_to=progress.up_to,
            began_at=progress.began_at,
            moved_at=progress.moved_at,
            open=_bounded(progress.open),
            version=progress.version + 1,
        )


def _bounded(windows: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the windows with as many names as a row may hold. Without names, a window is written twice."""
    bounded: dict[str, tuple[str, ...]] = {}
    left = OBJECTS_MAX
    for name, objects in windows.items():
        bounded[name] = objects if len(objects) <= left else ()
        left -= len(bounded[name])
    return bounded


def _progress(row: Row) -> ArchiveProgress:
    return ArchiveProgress(
        up_to=_time(row, "upTo"),
        began_at=_time(row, "beganAt"),
        moved_at=_time(row, "movedAt"),
        open=_windows(loose_text(row, "open")),
        version=_whole(row, "version"),
    )


def _windows(text: str) -> dict[str, tuple[str, ...]]:
    try:
        found = from_json(text)
    except ValueError:
        return {}  # damaged: the windows are not read again
    members = cast("dict[str, list[str]]", found) if isinstance(found, dict) else {}
    return {name: tuple(objects) for name, objects in members.items()}


def _time(row: Row, attribute: str) -> datetime:
    return keys.instant(_whole(row, attribute))


def _whole(row: Row, attribute: str) -> int:
    value = row.get(attribute)
    return value if isinstance(value, int) else 0
