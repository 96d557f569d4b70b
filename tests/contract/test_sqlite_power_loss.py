"""Power loss: what was acknowledged is on the disk, whatever the disk made of the rest; and disks that fail."""

import asyncio
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.disk import Acknowledged, Disk, Happening, Sync, after_power_loss, watched_disk
from tests.contract.portrows import CONTROL, a_row, stored
from tests.support.clock.manual import ManualClock
from worker.core.errors import RetryLater
from worker.store.sqlite.file import connect
from worker.store.sqlite.tables import SqliteTables, connections_on_file
from worker.store.table import Key, Put, TableName, Update

COMMITTERS, COMMITS = 4, 12
TORN_OUTCOMES = 4  # for each moment, besides the one in which nothing unsynced survives


async def record(path: Path) -> list[Happening]:
    """Let some callers commit at once, moving the WAL into the file every few pages, and keep what the disk saw."""
    lanes = connections_on_file(path)
    tables = SqliteTables(path, ManualClock(), lanes=lanes)
    with watched_disk() as disk:
        await tables.start()
        await lanes.writes.run(lambda connection: connection.execute("PRAGMA wal_autocheckpoint = 20").fetchall())
        async with asyncio.TaskGroup() as tasks:
            for number in range(COMMITTERS):
                tasks.create_task(commit_many(tables, disk, f"committer-{number}"))
        happenings = list(disk.happenings)
        await tables.stop()
    return happenings


async def commit_many(tables: SqliteTables, disk: Disk, pk: str) -> None:
    for n in range(1, COMMITS + 1):
        await tables.commit(
            Update(table=CONTROL, key=Key(pk, "COUNTER"), set={"n": n, "filler": "x" * 700}),
            Put(TableName.EVENTS, a_row(pk, f"{n}", filler="y" * 700)),
        )
        disk.acknowledge(f"{pk} {n}")


def moments(happenings: Sequence[Happening]) -> list[int]:
    """When to cut the power: around every sync, where the order of things matters, and after every answer."""
    decisive = [at for at, happening in enumerate(happenings) if isinstance(happening, Sync | Acknowledged)]
    return sorted({moment for at in decisive for moment in (at, at + 1)})


def loss(folder: Path, happenings: Sequence[Happening], chance: random.Random | None) -> str | None:
    """Cut the power after these happenings, open what is left, and say what is missing or half there."""
    folder.mkdir()
    for name, content in after_power_loss(happenings, chance).items():
        (folder / name).write_bytes(content)
    acknowledged = [happening.what.split() for happening in happenings if isinstance(happening, Acknowledged)]
    safe = {pk: max(int(n) for name, n in acknowledged if name == pk) for pk, _ in acknowledged}
    with closing(connect(folder / "store.db")) as connection:
        problems = [line for (line,) in connection.execute("PRAGMA integrity_check") if line != "ok"]
        counted = {pk: told(connection, pk) for pk in (f"committer-{number}" for number in range(COMMITTERS))}
    lost = [f"{pk}: {n} acknowledged, {counted[pk]} there" for pk, n in safe.items() if max(counted[pk]) < n]
    halves = [f"{pk}: counter, rows and changes disagree: {sizes}" for pk, sizes in counted.items() if len(sizes) > 1]
    return "; ".join([*problems, *lost, *halves]) or None


def told(connection: sqlite3.Connection, pk: str) -> set[int]:
    """How many commits of one committer are there, by each of four ways to tell."""
    counter = "SELECT coalesce(max(json_extract(body, '$.n')), 0) FROM row WHERE tbl = 'control' AND pk = ?"
    rows = "SELECT count(*) FROM row WHERE tbl = 'events' AND pk = ?"
    moves = "SELECT count(*) FROM change WHERE tbl = 'control' AND pk = ?"
    changes = "SELECT count(*) FROM change WHERE tbl = 'events' AND pk = ?"
    return {int(connection.execute(sql, (pk,)).fetchone()[0]) for sql in (counter, rows, moves, changes)}


async def test_every_acknowledged_commit_survives_a_power_loss_at_any_moment(tmp_path: Path) -> None:
    happenings, chance = await record(tmp_path / "store.db"), random.Random(20260303)
    files_synced = {happening.file for happening in happenings if isinstance(happening, Sync)}

    found = [
        problem
        for moment in moments(happenings)
        for outcome in range(1 + TORN_OUTCOMES)
        if (problem := loss(tmp_path / f"{moment}-{outcome}", happenings[:moment], chance if outcome else None))
    ]

    assert found == []
    assert files_synced >= {"store.db", "store.db-wal"}  # the WAL was moved into the file meanwhile
    assert sum(isinstance(happening, Acknowledged) for happening in happenings) == COMMITTERS * COMMITS


async def test_a_store_that_did_not_wait_for_the_disk_would_be_found_out(tmp_path: Path) -> None:
    happenings = await record(tmp_path / "store.db")
    impatient = [it for it in happenings if not isinstance(it, Sync) or it.with_folder or it.file != "store.db-wal"]

    found = [loss(tmp_path / f"{moment}", impatient[:moment], None) for moment in moments(impatient)]

    assert any(problem and "acknowledged" in problem for problem in found)


async def test_a_full_disk_refuses_commits_whole_and_takes_them_again_later(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path / "store.db", ManualClock())
    with watched_disk() as disk:
        await tables.start()
        await tables.commit(Put(CONTROL, a_row("p", "before")))

        disk.is_full = True
        with pytest.raises(RetryLater, match="full"):
            await tables.commit(Put(CONTROL, a_row("p", "meanwhile")), Put(TableName.EVENTS, a_row("p", "meanwhile")))
        assert await stored(tables, "p", "before") is not None
        assert await stored(tables, "p", "meanwhile") is None

        disk.is_full = False
        await tables.commit(Put(CONTROL, a_row("p", "after")))
        assert [row["SK"] for row in (await tables.query(CONTROL, "p")).rows] == ["after", "before"]
        assert (await tables.query(TableName.EVENTS, "p")).rows == []
        assert [change.key.sk for change in await tables.changes(CONTROL, 0)] == ["before", "after"]
        await tables.stop()


async def test_a_disk_that_cannot_sync_gets_no_commit_acknowledged(tmp_path: Path) -> None:
    tables = SqliteTables(tmp_path / "store.db", ManualClock())
    with watched_disk() as disk:
        await tables.start()

        disk.sync_fails = True
        with pytest.raises(RetryLater, match="I/O"):
            await tables.commit(Put(CONTROL, a_row("p")))

        disk.sync_fails = False
        await tables.commit(Put(CONTROL, a_row("p", "after")))
        assert await stored(tables, "p", "after") is not None
        await tables.stop()
