"""The events of a SQLite file: a write by any connection is announced, and nothing else is."""

from pathlib import Path

from tests.support.clock.manual import NOON
from worker.runtime.clock import SystemClock
from worker.store.sqlite.file_events import file_events
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Key, Put, TableName

ROW = {"PK": "P", "SK": "S", "at": NOON.isoformat()}


async def test_a_commit_of_another_connection_is_announced(tmp_path: Path) -> None:
    path, clock = tmp_path / "interlock.db", SystemClock()
    other = SqliteTables(path, clock)
    async with file_events(path, clock) as events:
        assert events
        await other.start()  # it creates the log: a folder is watched, not a file
        while await events.wait(0.05):
            pass

        await other.commit(Put(TableName.CONTROL, ROW))

        assert await events.wait(30)
        assert await other.get(TableName.CONTROL, Key("P", "S"))
        await other.stop()


async def test_other_files_of_the_folder_wake_nobody(tmp_path: Path) -> None:
    async with file_events(tmp_path / "interlock.db", SystemClock()) as events:
        assert events
        (tmp_path / "interlock.log").write_text("a line")

        assert not await events.wait(0.1)


async def test_a_folder_that_cannot_be_watched_gives_no_events(tmp_path: Path) -> None:
    async with file_events(tmp_path / "missing" / "interlock.db", SystemClock()) as events:
        assert events is None
