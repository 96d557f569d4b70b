"""Copies an installation from one store to another, resumes where it stopped, and verifies every row."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from worker.core.errors import ConfigError
from worker.core.model import keys
from worker.core.model.keys import SessionId
from worker.runtime.clock import Clock
from worker.store.repos.events import event_of
from worker.store.repos.sessions import Sessions
from worker.store.rows import optional_text, text, whole
from worker.store.table import (
    COMMIT_ID,
    ROW_BYTES_MAX,
    Key,
    Put,
    Row,
    TableName,
    Tables,
    Update,
    Value,
    is_visible,
)
from worker.store.whole_store import WholeStore

PROGRESS: Final = Key("STORE_COPY", "PROGRESS")
OUT: Final = "out"
COMMIT_ROWS: Final = 25
COMMIT_BYTES: Final = ROW_BYTES_MAX  # far below what a commit may have: rows of the largest size go one by one
SHOWN_MAX: Final = 5
RESENT: Final = timedelta(hours=1)

COPYING, DONE = "copying", "done"


class CopyFailed(ConfigError):
    """CopyFailed: the target differs from the source; a person must look at both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyProgress:
    """Holds how far a copy is; the target keeps it, so that a repeated command continues there."""

    source: str
    state: str = COPYING
    table: TableName = TableName.CONTROL
    cursor: str | None = None
    rows: int = 0  # written, some perhaps twice
    resent_since: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySummary:
    rows: Mapping[TableName, int]  # verified, by table
    expired: int
    is_repeat: bool = False  # there was nothing left to do


@dataclass(slots=True, kw_only=True)
class StoreCopy:
    """Copies from `source` to `target`; `groups` are the sessions of both, which must stay silent."""

    source_name: str
    source: WholeStore
    target_rows: WholeStore
    target: Tables
    groups: Sequence[Sessions]
    clock: Clock
    resent: timedelta = RESENT
    report: Callable[[CopyProgress], None] = lambda _: None
    _silent: dict[SessionId, int] = field(default_factory=dict[SessionId, int])

    async def run(self, kill_s: float) -> CopySummary:
        """Copy and verify. Raises `ConfigError` if a worker is alive or the target holds something else."""
        await self._require_silence(kill_s)
        progress = await self._progress()
        is_repeat = progress.state == DONE
        while progress.state != DONE:
            progress = await self._copy_page(progress)
            self.report(progress)
        summary = await self._verify()
        return replace(summary, is_repeat=is_repeat)

    # --- workers must not run -----------------------------------------------------------------------------------------

    async def _require_silence(self, kill_s: float) -> None:
        """Watch sessions for as long as a worker may be silent. Raises `ConfigError` if one has a heartbeat."""
        self._silent = await self._beats()
        if self._silent:
            await self.clock.sleep(kill_s)
            await self._require_still_silent()

    async def _require_still_silent(self) -> None:
        alive = [session for session, beat in (await self._beats()).items() if self._silent.get(session) != beat]
        if alive:
            raise ConfigError(
                f"worker {alive[0]} runs on one of the two stores, and would change rows during the copy; stop all "
                "workers, then run the same command again: it continues where it stopped"
            )

    async def _beats(self) -> dict[SessionId, int]:
        return {session.id: session.beat for group in self.groups for session in await group.list() if session.is_alive}

    # --- copying ------------------------------------------------------------------------------------------------------

    async def _progress(self) -> CopyProgress:
        row = await self.target.get(TableName.CONTROL, PROGRESS)
        if row is None:
            await self._require_empty()
            since = self.clock.now() - self.resent
            progress = CopyProgress(source=self.source_name, resent_since=keys.millis_text(since))
            await self._save(progress)
            return progress
        progress = _progress_of(row)
        if progress.source != self.source_name:
            raise ConfigError(
                f"the target holds a copy of {progress.source}, not of {self.source_name}; name an empty target"
            )
        return progress

    async def _require_empty(self) -> None:
        for table in TableName:
            async for rows in _pages(self.target_rows, table):
                if any(_is_copied(row) for row in rows):
                    raise ConfigError("the target holds rows of another installation; name an empty target")

    async def _copy_page(self, progress: CopyProgress) -> CopyProgress:
        await self._require_still_silent()
        page = await self.source.rows(progress.table, progress.cursor)
        now = self.clock.now()
        rows = [row for row in page.rows if _is_copied(row) and is_visible(row, now)]
        for batch in _batches(progress.table, rows):
            await self._write(progress, batch)
        moved = replace(progress, cursor=page.cursor, rows=progress.rows + len(rows))
        if page.cursor is None:
            moved = _next_table(moved)
        await self._save(moved)
        return moved

    async def _write(self, progress: CopyProgress, rows: Sequence[Row]) -> None:
        """Write rows; a relay must not send old events again.

        So they are inserted as not to be sent, and marked afterwards: a relay sends only what is inserted.
        """
        table = progress.table
        sent = [row for row in rows if table is TableName.EVENTS and _was_sent(row, progress.resent_since)]
        hidden = {_key(row) for row in sent}
        await self.target.commit(*(Put(table, _without(row, OUT) if _key(row) in hidden else row) for row in rows))
        if sent:
            await self.target.commit(*(Update(table=table, key=_key(row), set={OUT: True}) for row in sent))

    async def _save(self, progress: CopyProgress) -> None:
        row: dict[str, Value] = {
            "PK": PROGRESS.pk,
            "SK": PROGRESS.sk,
            "source": progress.source,
            "state": progress.state,
            "table": progress.table.value,
            "cursor": progress.cursor,
            "rows": progress.rows,
            "resentSince": progress.resent_since,
        }
        await self.target.commit(Put(TableName.CONTROL, row))

    # --- verifying ----------------------------------------------------------------------------------------------------

    async def _verify(self) -> CopySummary:
        """Compare each row of the source with the target's, and count the target's. Raises `CopyFailed`."""
        now = self.clock.now()
        counts: dict[TableName, int] = {}
        expired = 0
        for table in TableName:
            seen: set[Key] = set()
            async for rows in _pages(self.source, table):
                kept = [row for row in rows if _is_copied(row)]
                visible = [row for row in kept if is_visible(row, now)]
                expired += len(kept) - len(visible)
                seen |= {_key(row) for row in visible}
                await self._compare(table, visible)
            await self._require_nothing_else(table, seen, now)
            counts[table] = len(seen)
        await self._require_still_silent()
        return CopySummary(rows=counts, expired=expired)

    async def _compare(self, table: TableName, rows: Sequence[Row]) -> None:
        found = await self.target.get_many(table, [_key(row) for row in rows])
        now = self.clock.now()
        wrong = [key for row in rows if is_visible(row, now) and _content(found.get(key := _key(row))) != _content(row)]
        _require_none(wrong, table, "differ from the source, or are missing")

    async def _require_nothing_else(self, table: TableName, seen: set[Key], now: datetime) -> None:
        async for rows in _pages(self.target_rows, table):
            others = [_key(row) for row in rows if _is_copied(row) and is_visible(row, now) and _key(row) not in seen]
            _require_none(others, table, "are not in the source")


def _require_none(keys_found: Sequence[Key], table: TableName, what: str) -> None:
    if keys_found:
        shown = ", ".join(f"{key.pk} {key.sk}" for key in keys_found[:SHOWN_MAX])
        more = f" and {len(keys_found) - SHOWN_MAX} more" if len(keys_found) > SHOWN_MAX else ""
        raise CopyFailed(
            f"rows of {table} {what}: {shown}{more}; something writes to one of the stores: stop it, empty the target "
            "and copy again"
        )


async def _pages(store: WholeStore, table: TableName) -> AsyncIterator[Sequence[Row]]:
    cursor = None
    while True:
        page = await store.rows(table, cursor)
        yield page.rows
        cursor = page.cursor
        if cursor is None:
            return


def _batches(table: TableName, rows: Sequence[Row]) -> list[list[Row]]:
    """Divide rows into commits. Rows that producers write go alone, as everywhere."""
    batches: list[list[Row]] = []
    size = 0
    for row in rows:
        # An estimate that is never too low: a text has at most as many characters as bytes.
        weight = len(repr(row))
        is_alone = table is TableName.CONTROL and _is_producers(row)
        if not batches or is_alone or size + weight > COMMIT_BYTES or len(batches[-1]) == COMMIT_ROWS:
            batches.append([])
            size = 0
        batches[-1].append(row)
        size = COMMIT_BYTES if is_alone else size + weight
    return batches


def _is_producers(row: Row) -> bool:
    return row["SK"] == keys.CONFIG or str(row["SK"]).startswith("SENSOR#")


def _is_copied(row: Row) -> bool:
    """Return False for rows that mean nothing elsewhere: sessions, leases, the progress."""
    pk, sk = str(row["PK"]), str(row["SK"])
    if pk == PROGRESS.pk:
        return False
    return not (pk.startswith("GROUP#") and sk.startswith((keys.SESSION, keys.LEASE)))


def _was_sent(row: Row, since: str) -> bool:
    stored = event_of(row)
    return row.get(OUT) is True and (stored is None or keys.millis_text(stored.event.at) < since)


def _next_table(progress: CopyProgress) -> CopyProgress:
    tables = list(TableName)
    following = tables[tables.index(progress.table) + 1 :]
    return replace(progress, table=following[0]) if following else replace(progress, state=DONE)


def _progress_of(row: Row) -> CopyProgress:
    return CopyProgress(
        source=text(row, "source"),
        state=text(row, "state"),
        table=TableName(text(row, "table")),
        cursor=optional_text(row, "cursor"),
        rows=whole(row, "rows"),
        resent_since=text(row, "resentSince"),
    )


def _key(row: Row) -> Key:
    return Key(str(row["PK"]), str(row["SK"]))


def _without(row: Row, attribute: str) -> Row:
    return {name: value for name, value in row.items() if name != attribute}


def _content(row: Row | None) -> Row | None:
    """Return what counts of a row: the commit id is of the store that wrote it."""
    return None if row is None else _without(row, COMMIT_ID)
