"""`interlock store copy`: every row, between any two stores, once, and never under a running worker."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from consumers.outbox.relay import is_outgoing
from tests.contract.portrows import a_row
from tests.support.aws.emulators import RealWaits, dynamodb_tables, ministack
from tests.support.clock.manual import NOON, ManualClock
from tests.support.redis_server import redis_tables
from worker.core.errors import ConfigError, RetryLater
from worker.core.model import keys
from worker.core.model.keys import SessionId
from worker.net.aws_client import PERSON
from worker.operations.store_copy import PROGRESS, CopyFailed, StoreCopy
from worker.store.dynamodb.whole_tables import WholeTables
from worker.store.redis.lane import PipelinedLane
from worker.store.redis.tables import RedisTables
from worker.store.redis.whole_prefix import WholePrefix
from worker.store.repos.sessions import Sessions
from worker.store.sqlite.tables import SqliteTables
from worker.store.sqlite.whole_file import WholeFile
from worker.store.table import COMMIT_ID, WRITES_MAX, Key, Put, Row, TableName, Tables, Value
from worker.store.whole_store import StoredRows, WholeStore

pytestmark = pytest.mark.xdist_group("redis")

GROUP = "interlock"
LINES = 220  # more than one page of a file


@dataclass
class Opened:
    tables: Tables
    rows: WholeStore


@asynccontextmanager
async def on_sqlite(clock: ManualClock, at: Path) -> AsyncGenerator[Opened]:
    path = at / "store.db"
    tables = SqliteTables(path, clock)
    await tables.start()
    yield Opened(tables, WholeFile(path))
    await tables.stop()


@asynccontextmanager
async def on_redis(clock: ManualClock, at: Path) -> AsyncGenerator[Opened]:
    async with redis_tables(clock) as tables:
        lane = PipelinedLane(tables.servers, "scan")
        await lane.start()
        yield Opened(tables, WholePrefix(tables.servers.keys, lane))
        await lane.stop()


@asynccontextmanager
async def on_dynamodb(clock: ManualClock, at: Path) -> AsyncGenerator[Opened]:
    server = ministack()
    async with dynamodb_tables(server, clock) as tables:
        # Past the proxy, which fails a test that scans a table: here a person asked for it.
        settings = replace(tables.settings, endpoint=f"http://127.0.0.1:{server.port}", agent=PERSON)
        yield Opened(tables, WholeTables(tables.names, settings, RealWaits(clock)))


KINDS: Mapping[str, Callable[[ManualClock, Path], AbstractAsyncContextManager[Opened]]] = {
    "sqlite": on_sqlite,
    "redis": on_redis,
    "dynamodb": on_dynamodb,
}


def event(number: int, age: timedelta) -> dict[str, Value]:
    at = NOON - age
    sk = f"{keys.millis_text(at)}#JOB_COMPLETED#e{number}"
    return a_row("PIPELINE#orders", sk, out=True, eventType="JOB_COMPLETED", timestamp=keys.millis(at), n=number)


async def fill(tables: Tables) -> dict[tuple[TableName, Key], Row]:
    pk = "PIPELINE#orders"
    rows: list[tuple[TableName, dict[str, Value]]] = [
        (TableName.CONTROL, a_row(pk, "CONFIG", listPk="PIPELINES", listSk="orders", config="x" * 5000)),
        (TableName.CONTROL, a_row(pk, "SENSOR#landed", data={"rows": Decimal("1.5"), "big": 2**60})),
        (TableName.CONTROL, a_row(pk, "TRIGGER#cron#1", ttl=1)),
        (TableName.CONTROL, a_row("GROUP#interlock", "INSTALLATION", beganAt="2026-01-01T00:00:00Z")),
        *((TableName.JOBLOG, a_row(pk, f"JOB#{n:04}", line=f"line {n} é", b=b"\x00\xff")) for n in range(LINES)),
        (TableName.RERUN, a_row(pk, "RERUN#0", tags=frozenset({"a", "b"}))),
        (TableName.EVENTS, event(1, timedelta(days=3))),
        (TableName.EVENTS, event(2, timedelta(minutes=5))),
    ]
    alone = [(table, row) for table, row in rows if table is not TableName.JOBLOG]
    lines = [Put(table, row) for table, row in rows if table is TableName.JOBLOG]
    for table, row in alone:
        await tables.commit(Put(table, row))
    for first in range(0, LINES, WRITES_MAX):
        await tables.commit(*lines[first : first + WRITES_MAX])
    # What is not copied: it means nothing elsewhere, or no longer exists.
    for sk in (keys.session_sk(SessionId("old")), keys.lease_sk("feed.control", "0")):
        await tables.commit(
            Put(TableName.CONTROL, a_row("GROUP#interlock", sk, state="DEAD", hb=1, chg=0, load=0, ver="1"))
        )
    await tables.commit(Put(TableName.JOBLOG, a_row(pk, "JOB#expired", ttl=1)))
    return {(table, Key(str(row["PK"]), str(row["SK"]))): row for table, row in rows}


def a_copy(source: Opened, target: Opened, clock: ManualClock) -> StoreCopy:
    return StoreCopy(
        source_name="the old store",
        source=source.rows,
        target_rows=target.rows,
        target=target.tables,
        groups=[Sessions(each.tables, GROUP) for each in (source, target)],
        clock=clock,
    )


async def content_of(store: Opened) -> dict[tuple[TableName, Key], Row]:
    found: dict[tuple[TableName, Key], Row] = {}
    for table in TableName:
        cursor, is_begun = None, False
        while cursor is not None or not is_begun:
            page, is_begun = await store.rows.rows(table, cursor), True
            for row in page.rows:
                kept = {name: value for name, value in row.items() if name != COMMIT_ID}
                found[table, Key(str(row["PK"]), str(row["SK"]))] = kept
            cursor = page.cursor
    return found


@pytest.mark.parametrize(
    ("source", "target"),
    [("sqlite", "redis"), ("redis", "sqlite"), ("redis", "redis"), ("sqlite", "dynamodb"), ("dynamodb", "redis")],
)
async def test_every_row_is_copied_between_any_two_stores(
    clock: ManualClock, tmp_path: Path, source: str, target: str
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with KINDS[source](clock, tmp_path / "a") as old, KINDS[target](clock, tmp_path / "b") as new:
        expected = await fill(old.tables)

        summary = await a_copy(old, new, clock).run(0.0)

        found = await content_of(new)
        del found[TableName.CONTROL, PROGRESS]
        assert found == expected
        assert summary.rows[TableName.JOBLOG] == LINES
        assert summary.expired == 1
        assert (await a_copy(old, new, clock).run(0.0)).is_repeat


@dataclass
class FailingRows:
    """A source that fails after some pages, as a command that is killed ends."""

    rows_of: WholeStore
    pages: int
    asked: list[str | None] = field(default_factory=list[str | None])

    async def rows(self, table: TableName, cursor: str | None) -> StoredRows:
        if not self.pages:
            raise RetryLater("gone")
        self.pages -= 1
        self.asked.append(cursor)
        return await self.rows_of.rows(table, cursor)


async def stores(stack: AsyncExitStack, clock: ManualClock, at: Path) -> tuple[Opened, Opened]:
    return await stack.enter_async_context(on_sqlite(clock, at)), await stack.enter_async_context(on_redis(clock, at))


async def test_an_interrupted_copy_continues_where_it_stopped(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        old, new = await stores(stack, clock, tmp_path)
        expected = await fill(old.tables)
        with pytest.raises(RetryLater):
            await a_copy(Opened(old.tables, FailingRows(old.rows, 2)), new, clock).run(0.0)

        rest = FailingRows(old.rows, 1_000)
        summary = await a_copy(Opened(old.tables, rest), new, clock).run(0.0)

        assert rest.asked[0] is not None  # in the middle of a table
        assert sum(summary.rows.values()) == len(expected)


async def test_old_events_are_not_sent_again_and_recent_ones_are(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        old, new = await stores(stack, clock, tmp_path)
        await fill(old.tables)

        await a_copy(old, new, clock).run(0.0)

        tables: Any = new.tables
        assert isinstance(tables, RedisTables)
        slices = [(await tables.changes(TableName.EVENTS, number, 0))[0] for number in range(tables.slices)]
        sent = [change.image for changes in slices for change in changes if is_outgoing(change)]
        assert [image["n"] for image in sent if image is not None] == [2]


class BeatingClock(ManualClock):
    """While somebody waits, a worker has a heartbeat."""

    def __init__(self, sessions: Sessions) -> None:
        super().__init__()
        self._sessions, self._number = sessions, 0

    async def sleep(self, seconds: float) -> None:
        self._number += 1
        await self._sessions.beat(SessionId("w1"), self._number)
        await super().sleep(seconds)


async def test_a_copy_refuses_to_run_while_a_worker_is_alive(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        old, new = await stores(stack, clock, tmp_path)
        for alive in (old, new):
            sessions = Sessions(alive.tables, GROUP)
            await sessions.register(SessionId("w1"), "test")

            with pytest.raises(ConfigError, match="stop all workers"):
                await a_copy(old, new, BeatingClock(sessions)).run(7.0)

            await sessions.forget(SessionId("w1"))


async def test_a_worker_that_was_killed_does_not_prevent_a_copy(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        old, new = await stores(stack, clock, tmp_path)
        await Sessions(old.tables, GROUP).register(SessionId("w1"), "test")

        summary = await a_copy(old, new, clock).run(7.0)

        assert sum(summary.rows.values()) == 0


async def test_a_target_that_is_in_use_is_refused(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        old, new = await stores(stack, clock, tmp_path)
        await new.tables.commit(Put(TableName.EVENTS, a_row("PIPELINE#other")))

        with pytest.raises(ConfigError, match="empty target"):
            await a_copy(old, new, clock).run(0.0)


async def test_a_row_that_changes_after_it_was_copied_is_found(clock: ManualClock, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        old, new = await stores(stack, clock, tmp_path)
        await fill(old.tables)
        await a_copy(old, new, clock).run(0.0)
        await old.tables.commit(Put(TableName.RERUN, a_row("PIPELINE#orders", "RERUN#0", changed=True)))

        with pytest.raises(CopyFailed, match="RERUN#0"):
            await a_copy(old, new, clock).run(0.0)
