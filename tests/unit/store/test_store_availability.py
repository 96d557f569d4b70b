"""An outage of the store is reported once, with its reason, and its end with how long it took."""

import asyncio
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from tests.contract.portrows import CONTROL, a_row
from tests.support.clock.manual import ManualClock
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.remote_store import DROP_BEFORE, FaultyTables, always, late, no_faults, on_commit
from worker.core.errors import RetryLater
from worker.core.membership.liveness import DEFAULT_TIMING
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.heartbeat import Heart, Pulse
from worker.store.availability import AccessKind, StoreAvailability, StoreBack, StoreDown, StoreNotice
from worker.store.failure_counter import FailureCountingTables
from worker.store.repos.sessions import Sessions
from worker.store.sqlite.admin import ROOM_BYTES_MIN, require_room
from worker.store.sqlite.errors import translated
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Absent, Key, Put, StaleWrite, Tables, Write


class Outage:
    """A store as its worker sees it, on a clock that a test moves."""

    def __init__(self) -> None:
        self.clock, self.notices = ManualClock(), list[StoreNotice]()
        self.availability = StoreAvailability(self.clock, self.notices.append)

    def fails(
        self, access: AccessKind = AccessKind.WRITE, *, took_s: float = 0.0, reason: str = "disk is full"
    ) -> None:
        began_at = self.clock.monotonic()
        self.passes(took_s)
        self.availability.failed(access, began_at=began_at, reason=reason)

    def goes_unanswered(self, *, took_s: float) -> None:
        began_at = self.clock.monotonic()
        self.passes(took_s)
        self.availability.unanswered(AccessKind.WRITE, began_at=began_at, silence="no answer")

    def passes(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))


def test_a_call_that_fails_alone_is_no_outage() -> None:
    store = Outage()

    for _ in range(100):
        store.fails()
        store.passes(0.5)
        store.availability.answered(AccessKind.WRITE)
        store.passes(60)

    assert store.notices == []
    assert store.availability.outage() is None


@pytest.mark.parametrize("calls", [2, 7, 500])
@pytest.mark.parametrize("pause_s", [0.5, 2.0, 30.0])
def test_an_outage_is_reported_once_a_minute_and_its_end_with_its_duration(calls: int, pause_s: float) -> None:
    store = Outage()
    for number in range(calls + 4):
        store.fails(reason=f"reason {number}")
        store.passes(pause_s)
    lasted_s = store.clock.monotonic()

    downs = [notice for notice in store.notices if isinstance(notice, StoreDown)]
    assert downs == store.notices
    assert 2.0 <= downs[0].for_s <= 2.0 + pause_s
    assert all(60.0 <= later.for_s - earlier.for_s < 60.0 + pause_s for earlier, later in pairwise(downs))
    assert len(downs) <= 1 + lasted_s // 60
    outage = store.availability.outage()
    assert outage is not None
    assert outage.startswith(f"the store cannot be written for {lasted_s:.0f} s: reason ")
    store.availability.answered(AccessKind.WRITE)
    store.availability.answered(AccessKind.WRITE)

    assert store.notices == [*downs, StoreBack(lasted_s)]
    assert store.availability.outage() is None


def test_a_slow_call_counts_from_when_it_began() -> None:
    store = Outage()

    store.fails(took_s=4.0, reason="database is locked")

    assert store.notices == [StoreDown("database is locked")]


def test_reads_that_are_answered_do_not_end_an_outage_of_writes() -> None:
    store = Outage()
    for _ in range(10):
        store.fails(AccessKind.WRITE)
        store.availability.answered(AccessKind.READ)
        store.passes(1)
    assert len(store.notices) == 1

    store.fails(AccessKind.READ)
    store.availability.answered(AccessKind.WRITE)  # and reads still fail
    assert len(store.notices) == 1
    store.availability.answered(AccessKind.READ)

    assert [type(notice) for notice in store.notices] == [StoreDown, StoreBack]


def test_each_outage_is_reported() -> None:
    store = Outage()
    for _ in range(3):
        store.fails(took_s=3)
        store.availability.answered(AccessKind.WRITE)

    assert [type(notice) for notice in store.notices] == [StoreDown, StoreBack] * 3


def test_a_call_without_an_answer_does_not_replace_a_known_reason() -> None:
    store = Outage()
    store.fails(took_s=3, reason="database is locked")

    store.goes_unanswered(took_s=1)

    assert store.notices == [StoreDown("database is locked")]
    assert store.availability.outage() == "the store cannot be written for 4 s: database is locked"


def test_a_reason_that_reads_gave_stays_when_a_heartbeat_gets_no_answer() -> None:
    store = Outage()
    store.passes(10)
    store.fails(AccessKind.READ, reason="connection refused")
    store.goes_unanswered(took_s=3)  # it began at the same time, and then earlier ones end later
    store.availability.unanswered(AccessKind.WRITE, began_at=0.0, silence="no answer")

    for _ in range(4):
        store.goes_unanswered(took_s=99)

    assert {notice.reason for notice in store.notices if isinstance(notice, StoreDown)} == {"connection refused"}
    assert store.availability.outage() == "the store cannot be read for 399 s: connection refused"


def test_a_reason_that_follows_calls_without_an_answer_is_reported_at_once_and_then_each_minute() -> None:
    store = Outage()
    store.goes_unanswered(took_s=2)
    store.goes_unanswered(took_s=2)

    for _ in range(31):
        store.fails(took_s=1, reason="database is locked")
        store.goes_unanswered(took_s=1)

    assert store.notices == [StoreDown("no answer"), StoreDown("database is locked"), StoreDown("database is locked")]


# --- what calls say ---------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_commits_that_fail_make_an_outage_though_reads_are_answered_and_conditions_refuse() -> None:
    clock, notices = VirtualClock(), list[StoreNotice]()
    far = FaultyTables(SqliteTables.in_memory(clock), patience_s=0.5)
    tables = FailureCountingTables(far).report_to(StoreAvailability(clock, notices.append), clock)
    await tables.commit(Put(CONTROL, a_row("p")))
    far.choose = on_commit(DROP_BEFORE)
    began_at = clock.monotonic()

    for _ in range(10):
        with pytest.raises(RetryLater):
            await tables.commit(Put(CONTROL, a_row("p")))
        await tables.get(CONTROL, Key("p", "s"))
        far.choose = no_faults
        with pytest.raises(StaleWrite):  # it was answered, and wrote nothing
            await tables.commit(Put(CONTROL, a_row("p"), Absent()))
        far.choose = on_commit(DROP_BEFORE)
    lasted_s = clock.monotonic() - began_at
    assert [type(notice) for notice in notices] == [StoreDown]
    far.choose = no_faults
    await tables.commit(Put(CONTROL, a_row("p")))

    assert notices[1:] == [StoreBack(lasted_s)]


class Retrying(FaultyTables):
    """As DynamoDB's: a commit is tried again and again, for longer than a heartbeat waits."""

    async def commit(self, *writes: Write) -> None:
        while True:
            try:
                await self._once()
            except RetryLater:
                await asyncio.sleep(0.3)

    async def _once(self) -> None:
        raise RetryLater("could not connect to the endpoint")


def answering_late(tables: Tables) -> Tables:
    return FaultyTables(tables, always(late(60)), patience_s=60)


@pytest.mark.parametrize(
    ("make", "reason"),
    [(answering_late, "no answer to a heartbeat within 2 s"), (Retrying, "could not connect to the endpoint")],
)
@on_virtual_time
async def test_a_heartbeat_that_gets_no_answer_makes_an_outage_with_what_is_known(
    make: Callable[[Tables], Tables], reason: str
) -> None:
    clock, notices = VirtualClock(), list[StoreNotice]()
    store, me = SqliteTables.in_memory(clock), SessionId("me")
    await Sessions(store, "g").register(me, "test")
    fence = Fence(me, clock, DEFAULT_TIMING, registered_at=clock.monotonic())
    availability = StoreAvailability(clock, notices.append)
    heart = Heart("g", fence, Pulse(clock, DEFAULT_TIMING), clock, DEFAULT_TIMING, availability=availability)

    await heart.beat(make(store))  # until the fence is down

    assert notices == [StoreDown(reason)]


# --- what SQLite says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "what"),
    [
        (sqlite3.SQLITE_FULL, "has no room left on its disk"),
        (sqlite3.SQLITE_BUSY, "is locked by another process"),
        (sqlite3.SQLITE_LOCKED, "is locked by another process"),
        (sqlite3.SQLITE_IOERR, "cannot be read or written by its disk"),
    ],
)
def test_the_reason_says_what_is_wrong_where_and_what_to_do(code: int, what: str) -> None:
    error = sqlite3.OperationalError("SQLite's words")
    error.sqlite_errorcode = code | (3 << 8)

    found = translated(error, Path("/data/interlock.db"))

    assert isinstance(found, RetryLater)
    assert str(found).startswith(f"the store /data/interlock.db {what} (SQLite's words); ")


def test_a_disk_without_room_for_a_commit_is_full() -> None:
    require_room(Path("interlock.db"), ROOM_BYTES_MIN)

    with pytest.raises(RetryLater, match=r"interlock\.db has no room left on its disk \(4,096 bytes\); make room"):
        require_room(Path("interlock.db"), 4_096)
