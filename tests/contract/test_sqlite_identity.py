"""A SQLite file that is deleted, replaced or has two names: nobody writes to a file that others do not see."""

import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.contract.portrows import CONTROL, a_row
from tests.support.builders.command_line import interlock
from tests.support.clock.manual import ManualClock
from tests.support.worlds import live_worker
from worker.core.errors import ConfigError
from worker.store.sqlite import file as sqlite_file
from worker.store.sqlite.file import connect
from worker.store.sqlite.identity import ChangesLost, StoreFile, StoreReplaced
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Key, Put
from worker.store.url import SqlitePlace, locate


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(f"{path.name}{suffix}")


def delete(path: Path) -> None:
    path.unlink()


def delete_all(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        beside(path, suffix).unlink()


def replace_with_a_copy(path: Path) -> None:
    shutil.copy(path, beside(path, ".copy"))
    beside(path, ".copy").replace(path)


def replace_with_a_new_store(path: Path) -> None:
    delete_all(path)
    connect(path).close()


def delete_log(path: Path) -> None:
    beside(path, "-wal").unlink()


def delete_index(path: Path) -> None:
    beside(path, "-shm").unlink()


def delete_log_and_index(path: Path) -> None:
    delete_log(path)
    delete_index(path)


def rename_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


def exchange_folder(path: Path) -> None:
    rename_folder(path)
    path.parent.mkdir()
    connect(path).close()


FAULTS = (
    delete,
    delete_all,
    replace_with_a_copy,
    replace_with_a_new_store,
    delete_log,
    delete_index,
    delete_log_and_index,
    rename_folder,
    exchange_folder,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder / "store.db"


@asynccontextmanager
async def started(path: Path, file: StoreFile | None = None) -> AsyncGenerator[SqliteTables]:
    tables = SqliteTables(path, ManualClock(), file=file)
    await tables.start()
    try:
        yield tables
    finally:
        await tables.stop()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("commits_before", [0, 1, 30])
async def test_nothing_is_committed_to_a_file_that_was_replaced(
    path: Path, fault: Callable[[Path], None], commits_before: int
) -> None:
    async with started(path) as tables:
        for number in range(commits_before):
            await tables.commit(Put(CONTROL, a_row("p", str(number))))
        position = await tables.last_position()

        fault(path)

        with pytest.raises(StoreReplaced, match=r"store\.db.* (is gone|is another file)"):
            await tables.commit(Put(CONTROL, a_row("p", "unseen")))
        assert await tables.last_position() == position


@pytest.mark.parametrize("fault", FAULTS)
async def test_all_connections_of_a_process_are_to_one_file(path: Path, fault: Callable[[Path], None]) -> None:
    file = StoreFile(path)
    async with started(path, file) as tables:
        await tables.commit(Put(CONTROL, a_row("p")))
        fault(path)

        with pytest.raises(StoreReplaced):  # the heart's own connection, for instance
            await SqliteTables(path, ManualClock(), file=file).start()


def delete_log_and_index_and_accept_it(path: Path) -> None:
    delete_log_and_index(path)
    beside(path, "-position").unlink()


# With the log gone and its index in use, SQLite itself refuses to open the file.
CODES: dict[Callable[[Path], None], int] = {
    delete_log: 3,
    delete_index: 0,
    delete_log_and_index: 2,
    delete_log_and_index_and_accept_it: 0,
    replace_with_a_new_store: 0,
}


@pytest.mark.parametrize("fault", CODES)
async def test_what_another_process_was_told_is_stored_outlives_the_one_that_lost_its_file(
    path: Path, fault: Callable[[Path], None]
) -> None:
    async with started(path) as tables:
        await tables.commit(Put(CONTROL, a_row("p", "before")))
        fault(path)
        put = on_store(path, "sensor", "put", "p", "acknowledged", "rows=1")
        with pytest.raises(StoreReplaced):
            await tables.commit(Put(CONTROL, a_row("p", "unseen")))

    assert put.returncode == CODES[fault], put.stderr
    found = on_store(path, "sensor", "get", "p", "acknowledged")
    assert found.returncode == put.returncode, found.stderr


def on_store(path: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in another process: connections of one process share what they know of a file."""
    return live_worker.interlock(*words, "--store", f"sqlite:///{path}", at=path.parent)


async def test_upkeep_of_the_file_itself_is_no_replacement(path: Path) -> None:
    async with started(path) as tables:
        for number in range(3):
            await tables.commit(Put(CONTROL, a_row("p", str(number))))
            async with started(path) as other:
                await other.commit(Put(CONTROL, a_row("q", str(number))))
            connection = connect(path)
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.execute("VACUUM")
            connection.close()

        await tables.commit(Put(CONTROL, a_row("p", "last")))


# --- links and other names --------------------------------------------------------------------------------------------


def test_links_are_resolved_where_the_url_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").symlink_to("real")
    (tmp_path / "link.db").symlink_to("real/store.db")
    file = tmp_path / "real" / "store.db"

    for named in (file, tmp_path / "linked" / "store.db", tmp_path / "link.db"):
        place = locate(f"sqlite:///{named}")
        assert isinstance(place, SqlitePlace)
        assert (place.path, place.named) == (file, named)


def test_a_path_without_links_stays_as_it_was_written(here: Path) -> None:
    assert locate("sqlite:///interlock.db") == SqlitePlace(Path("interlock.db"), Path("interlock.db"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.db").symlink_to("b.db")
    (tmp_path / "b.db").symlink_to("a.db")

    with pytest.raises(ConfigError, match="leads back to itself"):
        locate(f"sqlite:///{tmp_path}/a.db")


async def test_a_link_that_comes_to_point_elsewhere_is_noticed(tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to("first.db")
    place = locate(f"sqlite:///{link}")
    assert isinstance(place, SqlitePlace)
    async with started(place.path, StoreFile(place.path, place.named)) as tables:
        await tables.commit(Put(CONTROL, a_row("p")))

        link.unlink()
        link.symlink_to("second.db")
        connect(tmp_path / "second.db").close()

        with pytest.raises(StoreReplaced, match="another file"):
            await tables.commit(Put(CONTROL, a_row("p", "unseen")))


def test_a_file_with_two_names_is_refused(path: Path) -> None:
    connect(path).close()
    os.link(path, beside(path, ".other"))

    with pytest.raises(ConfigError, match="2 names"):
        connect(path)

    beside(path, ".other").unlink()
    connect(path).close()


def test_a_file_that_is_mounted_without_its_folder_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(path).close()
    mounts = path.with_name("mounts")
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\n/dev/vda {path} ext4 rw 0 0\n")
    monkeypatch.setattr(sqlite_file, "MOUNTS", mounts)

    with pytest.raises(ConfigError, match="mount the folder"):
        connect(path)


# --- changes that are missing -----------------------------------------------------------------------------------------


async def crashed(path: Path, commits: int) -> None:
    """Leave a file as a killed worker does: much of what was committed is in the write-ahead log alone."""
    async with started(path) as tables:
        for number in range(commits):
            await tables.commit(Put(CONTROL, a_row("p", str(number))))
        for suffix in ("", "-wal", "-position"):
            shutil.copy(beside(path, suffix), beside(path, f".kept{suffix}"))
    for suffix in ("", "-wal", "-position"):
        beside(path, f".kept{suffix}").replace(beside(path, suffix))
    beside(path, "-shm").unlink(missing_ok=True)


async def is_whole(path: Path) -> bool:
    """Say whether a worker starts on it."""
    try:
        async with started(path, StoreFile(path)):
            return True
    except ChangesLost:
        return False


@pytest.mark.parametrize("commits", [1, 5, 200])
async def test_a_file_whose_log_was_removed_after_a_crash_is_not_whole(path: Path, commits: int) -> None:
    await crashed(path, commits)
    assert await is_whole(path)

    await crashed(path, commits)
    beside(path, "-wal").unlink()

    assert not await is_whole(path)


async def test_an_older_copy_is_not_whole_until_that_is_accepted(path: Path) -> None:
    async with started(path) as tables:
        await tables.commit(Put(CONTROL, a_row("p", "1")))
    shutil.copy(path, beside(path, ".backup"))
    async with started(path) as tables:
        await tables.commit(Put(CONTROL, a_row("p", "2")))

    shutil.copy(beside(path, ".backup"), path)
    assert not await is_whole(path)

    beside(path, "-position").unlink()
    assert await is_whole(path)


async def test_nothing_is_written_to_a_file_that_is_not_whole(path: Path) -> None:
    """A command's writes would count as the lost ones, and the worker that comes after it would find all in order."""
    await crashed(path, 1)
    assert await is_whole(path)
    await crashed(path, 2)
    beside(path, "-wal").unlink()

    async with started(path) as tables:
        for number in range(3):
            with pytest.raises(ChangesLost):
                await tables.commit(Put(CONTROL, a_row("p", f"sensor{number}")))
        assert await tables.get(CONTROL, Key("p", "0")) is not None

    assert not await is_whole(path)


async def test_a_store_that_lost_all_it_had_is_not_taken_for_a_new_one(path: Path) -> None:
    """In its first session, its tables too are in the write-ahead log alone."""
    await crashed(path, 5)
    beside(path, "-wal").unlink()

    assert not await is_whole(path)
    assert not await is_whole(path)


async def test_a_store_that_is_made_anew_is_whole(path: Path) -> None:
    async with started(path) as tables:
        await tables.commit(Put(CONTROL, a_row("p", "1")))
    delete(path)

    connect(path).close()

    assert await is_whole(path)


@pytest.mark.parametrize("command", [("store", "init"), ("run", "--pipelines", "pipelines")])
def test_no_store_is_made_where_one_was_deleted_until_that_is_accepted(command: tuple[str, ...], here: Path) -> None:
    (here / "pipelines").mkdir()
    (here / "pipelines" / "orders.yaml").write_text(
        "pipeline: {id: orders}\nschedule: {cron: '0 6 * * *'}\njob: {type: command, config: {command: ['true']}}\n"
    )
    interlock("store", "init")
    interlock("sensor", "put", "orders", "ready", "status=done")
    (here / "interlock.db").unlink()
    (here / "interlock.db-wal").write_bytes(b"what a killed worker left")

    refused = interlock(*command)

    assert refused.exit_code == 2
    assert "the store interlock.db is gone, with 1 changes that were committed to it" in refused.stderr
    assert "removing interlock.db-position" in refused.stderr
    assert not (here / "interlock.db").exists()
    assert (here / "interlock.db-wal").read_bytes() == b"what a killed worker left"

    (here / "interlock.db-position").unlink()
    assert interlock("store", "init").exit_code == 0


def test_store_check_reports_changes_that_are_missing(here: Path) -> None:
    interlock("store", "init")
    shutil.copy("interlock.db", "backup.db")
    interlock("sensor", "put", "orders", "ready", "status=done")
    shutil.copy("backup.db", "interlock.db")

    written = interlock("sensor", "put", "orders", "other", "status=done")
    checked = interlock("store", "check")

    assert written.exit_code == 2
    assert "lacks the last 1 changes" in written.stderr
    assert checked.exit_code == 1
    assert "lacks the last 1 changes that were committed to it" in checked.stdout
    assert str(here / "interlock.db-position").endswith("interlock.db-position")
    assert "removing interlock.db-position" in checked.stdout
