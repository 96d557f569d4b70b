"""The SQLite file: how it is opened, what is refused and with which words, and how it moves from version to version."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.contract.portrows import CONTROL, a_row, stored
from tests.support.clock.manual import NOON, ManualClock
from worker.core.errors import ConfigError, RetryLater
from worker.store.row_codec import encode
from worker.store.sqlite import file as sqlite_file
from worker.store.sqlite.file import connect, connect_to_read, file_system_of, truncate_wal
from worker.store.sqlite.reads import changes
from worker.store.sqlite.schema import APPLICATION_ID, VERSION, prepare
from worker.store.sqlite.statements import CHANGES_AFTER
from worker.store.sqlite.tables import SqliteTables, connections_on_file
from worker.store.sqlite.threads import FailedJob
from worker.store.sqlite.transactions import Reader
from worker.store.table import LISTS, Put, TableName, Trimmed, query_all

AT_ONCE = timedelta(0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def impatient(path: Path) -> SqliteTables:
    """A store that does not wait for locks, so that a test need not either."""
    return SqliteTables(path, ManualClock(), lanes=connections_on_file(path, busy_timeout=AT_ONCE))


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def overwrite(path: Path, offset: int, content: bytes) -> None:
    path.touch()
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


async def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as refused:
        await impatient(path).start()
    return str(refused.value)


def test_every_connection_waits_for_the_disk(path: Path) -> None:
    for connection in (connect(path), connect_to_read(path)):
        with closing(connection):
            settings = {
                name: connection.execute(f"PRAGMA {name}").fetchone()[0]
                for name in ("synchronous", "journal_mode", "busy_timeout", "fullfsync", "journal_size_limit")
            }
        assert settings == {
            "synchronous": 2,
            "journal_mode": "wal",
            "busy_timeout": 4_000,
            "fullfsync": 1,
            "journal_size_limit": 64_000_000,
        }


async def test_the_connections_of_a_running_store_wait_for_the_disk(path: Path) -> None:
    lanes = connections_on_file(path)
    tables = SqliteTables(path, ManualClock(), lanes=lanes)
    await tables.start()

    for lane in (lanes.writes, lanes.reads):
        [synchronous] = await lane.run(lambda connection: connection.execute("PRAGMA synchronous").fetchone())
        assert synchronous == 2
    await tables.stop()


def test_the_reading_connection_cannot_write(path: Path) -> None:
    with closing(connect_to_read(path)) as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM row")


async def test_what_was_committed_is_there_after_a_restart(path: Path) -> None:
    for version in range(3):
        tables = SqliteTables(path, ManualClock())
        await tables.start()
        await tables.commit(Put(CONTROL, a_row("p", f"{version}")))
        await tables.stop()

    tables = SqliteTables(path, ManualClock())
    await tables.start()
    assert len((await tables.query(CONTROL, "p")).rows) == 3
    assert await tables.last_position() == 3
    await tables.stop()


async def test_a_stopped_store_refuses_work_instead_of_losing_it(path: Path) -> None:
    tables = SqliteTables(path, ManualClock())
    await tables.start()
    await tables.stop()

    with pytest.raises(RetryLater):
        await tables.commit(Put(CONTROL, a_row("p")))
    await tables.stop()


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    message = await refusal(tmp_path / "missing" / "store.db")

    assert str(tmp_path / "missing") in message
    assert "create it" in message


async def test_a_folder_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    assert "is a folder" in await refusal(tmp_path)


async def test_a_folder_that_cannot_be_written_is_named() -> None:
    # Nobody can make a file there, whoever runs the tests.
    assert "check that you may write in its folder" in await refusal(Path("/proc/store.db"))


async def test_a_file_that_is_no_database_is_left_alone(path: Path) -> None:
    overwrite(path, 0, b"precious notes\n" * 100)

    assert "not a SQLite database" in await refusal(path)
    assert content_of(path) == b"precious notes\n" * 100


async def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE customers (name)")

    assert "another program" in await refusal(path)

    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("customers",)]


async def test_a_damaged_file_is_refused(path: Path) -> None:
    connect(path).close()
    overwrite(path, 100, b"\xff" * 3996)  # the first page after the header: the schema

    assert "damaged" in await refusal(path)


async def test_damage_that_shows_later_is_said_where_it_shows(path: Path) -> None:
    tables = SqliteTables(path, ManualClock())
    await tables.start()
    await tables.commit(*(Put(CONTROL, a_row("p", f"{n}", value="x" * 4_000)) for n in range(50)))
    await tables.stop()
    overwrite(path, 8192, b"\xff" * (len(content_of(path)) - 8192))

    tables = impatient(path)
    await tables.start()
    with pytest.raises(ConfigError, match="damaged"):
        await tables.query(CONTROL, "p")
    await tables.stop()


async def test_a_locked_file_is_said_to_be_locked(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE t (a)")
        other.execute("BEGIN EXCLUSIVE")

        assert "locked by another process" in await refusal(path)


class BadSpot(sqlite3.Connection):
    """A connection to a disk that cannot read the change feed; SQLite gives up the transaction then."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:  # noqa: ANN401 - as SQLite has it
        if sql == CHANGES_AFTER:
            super().execute("ROLLBACK")
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, parameters)


def test_a_disk_that_cannot_be_read_is_a_trouble_that_may_pass() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=BadSpot)) as connection:
        prepare(connection, ":memory:")

        [answer] = Reader()(connection, [lambda connection: changes(connection, CONTROL, 0, 10)])

    assert isinstance(answer, FailedJob)
    assert isinstance(answer.error, RetryLater)
    assert "disk I/O error" in str(answer.error)


async def test_a_writer_that_is_locked_out_gives_up_and_nothing_is_applied(path: Path) -> None:
    tables = impatient(path)
    await tables.start()
    with closing(connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")

        with pytest.raises(RetryLater, match="is locked by another process"):
            await tables.commit(Put(CONTROL, a_row("p")))
        assert await stored(tables, "p") is None

    await tables.commit(Put(CONTROL, a_row("p")))
    assert await stored(tables, "p") is not None
    await tables.stop()


async def test_a_newer_file_is_refused_and_left_alone(path: Path) -> None:
    connect(path).close()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")

    message = await refusal(path)

    assert f"version {VERSION + 1}" in message
    assert "install that release" in message


async def test_a_file_that_a_newer_program_migrates_meanwhile_is_not_written_any_more(path: Path) -> None:
    tables = SqliteTables(path, ManualClock())
    await tables.start()
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {VERSION + 1}")

    with pytest.raises(ConfigError, match="newer Interlock"):
        await tables.commit(Put(CONTROL, a_row("p")))
    await tables.stop()


VERSION_1 = """
CREATE TABLE row (
    id INTEGER PRIMARY KEY, tbl TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL, body BLOB NOT NULL,
    UNIQUE (tbl, pk, sk)
);
CREATE TABLE index_entry (
    name TEXT NOT NULL, part TEXT NOT NULL, sort BLOB NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL,
    row INTEGER NOT NULL, PRIMARY KEY (name, part, sort, pk, sk)
) WITHOUT ROWID;
CREATE TABLE change (
    position INTEGER PRIMARY KEY AUTOINCREMENT, tbl TEXT NOT NULL, pk TEXT NOT NULL, sk TEXT NOT NULL,
    kind TEXT NOT NULL, image BLOB, at_us INTEGER NOT NULL
);
"""
NOON_S = int(NOON.timestamp())


def write_version_1(path: Path, rows: int) -> None:
    """A file as version 1 left it: `rows` rows, every other one expiring, all in an index and in the feed."""
    with closing(sqlite3.connect(path)) as old:
        old.executescript(VERSION_1)
        old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        old.execute("PRAGMA user_version = 1")
        for n in range(rows):
            expiry = {"ttl": NOON_S - 90_000 + n} if n % 2 else {}
            body = encode(a_row("p", f"{n:04}", listPk="L", listSk=f"{n:04}", **expiry))
            number = old.execute("INSERT INTO row (tbl, pk, sk, body) VALUES ('control', 'p', ?, ?)", (f"{n:04}", body))
            entry = ("LISTS", "L", f"{n:04}", "p", f"{n:04}", number.lastrowid)
            old.execute("INSERT INTO index_entry VALUES (?, ?, ?, ?, ?, ?)", entry)
            change = ("control", "p", f"{n:04}", "INSERT", body, NOON_S * 1_000_000)
            old.execute("INSERT INTO change (tbl, pk, sk, kind, image, at_us) VALUES (?, ?, ?, ?, ?, ?)", change)
        old.commit()


def layout_of(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as file:
        columns = (
            "SELECT t.name, c.name || ' ' || c.type || ' ' || c.pk FROM sqlite_schema t, pragma_table_info(t.name) c "
            "UNION ALL SELECT name, '' FROM sqlite_schema"
        )
        return sorted(file.execute(columns).fetchall())


async def test_a_file_of_the_previous_version_is_migrated_with_all_it_holds(path: Path) -> None:
    write_version_1(path, rows=1_200)

    tables = SqliteTables(path, ManualClock())
    await tables.start()

    assert len([row async for row in query_all(tables, CONTROL, "p")]) == 600  # the others are expired
    assert len((await tables.query(CONTROL, "L", index=LISTS, limit=10)).rows) == 5
    assert [change.position for change in await tables.changes(CONTROL, 1_190)] == list(range(1_191, 1_201))
    assert await tables.sweep(ManualClock().now(), limit=1_000) == 600
    assert await tables.trim(lowest_checkpoint=1_000) == 1_000
    with pytest.raises(Trimmed):
        await tables.changes(TableName.CONTROL, 0)
    await tables.stop()


async def test_a_migrated_file_has_the_layout_of_a_new_one(path: Path, tmp_path: Path) -> None:
    write_version_1(path, rows=1)
    connect(path).close()
    connect(tmp_path / "new.db").close()

    assert layout_of(path) == layout_of(tmp_path / "new.db")


async def test_a_migration_that_fails_leaves_the_file_as_it_was(path: Path) -> None:
    write_version_1(path, rows=3)
    with closing(sqlite3.connect(path)) as old:
        old.execute("UPDATE row SET body = 'not JSON' WHERE id = 3")
        old.commit()
    before = layout_of(path)

    with pytest.raises(ConfigError, match="damaged"):
        await SqliteTables(path, ManualClock()).start()

    assert layout_of(path) == before


def test_a_large_wal_is_moved_into_the_file(path: Path) -> None:
    wal = path.with_name("store.db-wal")
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("CREATE TABLE filler (a)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(1000000))")

        truncate_wal(connection, path, bytes_max=2_000_000)
        assert wal.stat().st_size > 1_000_000
        truncate_wal(connection, path, bytes_max=500_000)

        assert wal.stat().st_size == 0
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (4_000,)


def test_a_reader_in_the_way_of_moving_the_wal_is_not_waited_for(path: Path) -> None:
    with closing(connect(path)) as connection, closing(connect_to_read(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM row").fetchall()
        connection.execute("CREATE TABLE filler (a)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(1000000))")

        truncate_wal(connection, path, bytes_max=500_000)  # would hang for 4 s if it waited

        assert path.with_name("store.db-wal").stat().st_size > 500_000


MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/export /mnt/share nfs4 rw 0 0
/dev/vdb /mnt/share/local xfs rw 0 0
//server/files /mnt/with\\040space cifs rw 0 0
me@host: /home/me/remote fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/store.db", "ext4"),
        ("/mnt/shared/store.db", "ext4"),
        ("/mnt/share/store.db", "nfs4"),
        ("/mnt/share/local/store.db", "xfs"),
        ("/mnt/with space/store.db", "cifs"),
        ("/home/me/remote/deep/store.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_deepest_mount(path: str, kind: str) -> None:
    assert file_system_of(Path(path), MOUNTS) == kind


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "ceph", "lustre", "fuse.sshfs", "fuse.glusterfs"])
def test_a_network_file_system_is_recognised(kind: str) -> None:
    assert sqlite_file.NETWORK_FILE_SYSTEMS.fullmatch(kind)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay", "tmpfs", "zfs", "apfs", "", "fuse.ext2"])
def test_a_local_file_system_is_recognised(kind: str) -> None:
    assert not sqlite_file.NETWORK_FILE_SYSTEMS.fullmatch(kind)


def test_a_store_on_a_network_file_system_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = path.with_name("mounts")
    mounts.write_text(f"server:/export {path.parent} nfs4 rw 0 0\n")
    monkeypatch.setattr(sqlite_file, "MOUNTS", mounts)

    with pytest.raises(ConfigError, match="network file system"):
        connect(path)

    assert not path.exists()
