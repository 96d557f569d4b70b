"""The change feed of stores that keep their own: complete, in order, and honest about what it has forgotten."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.contract.conftest import FeedStore
from tests.contract.portrows import CONTROL, a_row, content
from tests.support.clock.manual import NOON, ManualClock
from worker.store.sqlite.housekeeping import SWEEP_GRACE
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import (
    LISTS,
    Absent,
    Change,
    Check,
    Delete,
    Exists,
    Key,
    Put,
    StaleWrite,
    TableName,
    Trimmed,
    Update,
)

NOON_S = int(NOON.timestamp())


def told(changes: Sequence[Change]) -> list[tuple[str, str]]:
    return [(change.key.sk, change.kind.value) for change in changes]


async def fill(feed: FeedStore, pk: str, count: int) -> None:
    for n in range(count):
        await feed.commit(Put(CONTROL, a_row(pk, f"{n}")))


async def test_every_change_of_a_row_is_told_in_order_with_the_row_after_it(feed: FeedStore, pk: str) -> None:
    await feed.commit(Put(CONTROL, a_row(pk, n=1)))
    await feed.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"n": 2}))
    await feed.commit(Delete(CONTROL, Key(pk, "ROW")))

    changes = await feed.changes(CONTROL, 0)

    assert told(changes) == [("ROW", "INSERT"), ("ROW", "MODIFY"), ("ROW", "REMOVE")]
    assert [content(change.image) for change in changes] == [a_row(pk, n=1), a_row(pk, n=2), None]
    assert [change.at for change in changes] == [NOON] * 3
    assert [change.key for change in changes] == [Key(pk, "ROW")] * 3


async def test_one_commit_is_told_whole_and_a_refused_one_not_at_all(feed: FeedStore, pk: str) -> None:
    await feed.commit(*(Put(CONTROL, a_row(pk, f"{n}")) for n in range(3)))
    with pytest.raises(StaleWrite):
        await feed.commit(Put(CONTROL, a_row(pk, "4")), Put(CONTROL, a_row(pk, "0"), Absent()))

    assert told(await feed.changes(CONTROL, 0)) == [("0", "INSERT"), ("1", "INSERT"), ("2", "INSERT")]


async def test_a_write_that_changes_nothing_is_not_told(feed: FeedStore, pk: str) -> None:
    await feed.commit(Put(CONTROL, a_row(pk, "first")), Put(CONTROL, a_row(pk, "same", a=1, b=[2])))
    start = await feed.last_position()

    await feed.commit(
        Update(table=CONTROL, key=Key(pk, "first"), set={"n": 1}),  # carries the commit id, so it does change
        Put(CONTROL, {"b": [2.0], "a": 1, "SK": "same", "PK": pk}),
        Delete(CONTROL, Key(pk, "never there")),
        Check(CONTROL, Key(pk, "neither"), Absent()),
    )

    assert told(await feed.changes(CONTROL, start)) == [("first", "MODIFY")]


async def test_true_in_place_of_one_is_a_change(feed: FeedStore, pk: str) -> None:
    await feed.commit(Put(CONTROL, a_row(pk, "first")), Put(CONTROL, a_row(pk, "second", flag=1)))
    start = await feed.last_position()

    await feed.commit(Put(CONTROL, a_row(pk, "first")), Put(CONTROL, a_row(pk, "second", flag=True)))

    assert told(await feed.changes(CONTROL, start)) == [("first", "MODIFY"), ("second", "MODIFY")]


async def test_each_table_has_a_feed_of_its_own(feed: FeedStore, pk: str) -> None:
    await feed.commit(*(Put(table, a_row(pk, table.value)) for table in TableName))

    for table in TableName:
        assert told(await feed.changes(table, 0)) == [(table.value, "INSERT")]


async def test_a_reader_goes_on_where_it_stopped(feed: FeedStore, pk: str) -> None:
    await fill(feed, pk, 7)

    seen, after = list[str](), 0
    while changes := await feed.changes(CONTROL, after, limit=3):
        assert len(changes) <= 3
        seen, after = seen + [change.key.sk for change in changes], changes[-1].position

    assert seen == [f"{n}" for n in range(7)]
    assert after == await feed.last_position()


async def test_concurrent_commits_are_told_once_each_and_in_order_per_key(feed: FeedStore, pk: str) -> None:
    async def raise_to(sk: str, top: int) -> None:
        for version in range(top):
            await feed.commit(Update(table=CONTROL, key=Key(pk, sk), set={"version": version}))

    async with asyncio.TaskGroup() as tasks:
        for number in range(8):
            tasks.create_task(raise_to(f"{number}", 25))

    changes = await feed.changes(CONTROL, 0)
    positions = [change.position for change in changes]
    versions = {sk: [c.image["version"] for c in changes if c.image and c.key.sk == sk] for sk in map(str, range(8))}
    assert positions == sorted(set(positions))
    assert versions == {f"{number}": list(range(25)) for number in range(8)}


async def test_what_every_reader_has_passed_is_forgotten(feed: FeedStore, pk: str) -> None:
    await fill(feed, pk, 10)

    trimmed = await feed.trim(lowest_checkpoint=4)

    assert trimmed == 4
    assert told(await feed.changes(CONTROL, 4)) == [(f"{n}", "INSERT") for n in range(4, 10)]
    assert await feed.trim(lowest_checkpoint=4) == 0


async def test_a_reader_that_comes_too_late_is_told_where_to_go_on(feed: FeedStore, pk: str) -> None:
    await fill(feed, pk, 10)
    await feed.trim(lowest_checkpoint=6)

    with pytest.raises(Trimmed) as gap:
        await feed.changes(CONTROL, 5)

    assert gap.value.asked == 5
    assert told(await feed.changes(CONTROL, gap.value.oldest)) == [(f"{n}", "INSERT") for n in range(6, 10)]


async def test_changes_of_another_table_that_were_forgotten_are_a_gap_too(sqlite: SqliteTables, pk: str) -> None:
    for n in range(3):
        await sqlite.commit(Put(CONTROL, a_row(pk, f"{n}")))
    await sqlite.trim(lowest_checkpoint=3)

    with pytest.raises(Trimmed):
        await sqlite.changes(TableName.EVENTS, 2)  # all tables share one sequence of numbers there


async def test_changes_are_kept_a_day_and_no_longer(feed: FeedStore, clock: ManualClock, pk: str) -> None:
    await fill(feed, pk, 3)
    clock.advance(timedelta(hours=23))
    await fill(feed, f"{pk}-later", 2)
    assert await feed.trim() == 0

    clock.advance(timedelta(hours=1))

    assert await feed.trim() == 3
    assert told(await feed.changes(CONTROL, 3)) == [("0", "INSERT"), ("1", "INSERT")]


async def test_no_more_changes_are_kept_than_allowed(feed: FeedStore, pk: str) -> None:
    await fill(feed, pk, 10)

    assert await feed.trim(rows_max=4) == 6


async def test_positions_go_on_rising_after_everything_was_forgotten(feed: FeedStore, pk: str) -> None:
    await fill(feed, pk, 5)
    last = await feed.last_position()
    await feed.trim(lowest_checkpoint=last)

    assert await feed.last_position() == last
    await feed.commit(Put(CONTROL, a_row(pk, "new")))

    [change] = await feed.changes(CONTROL, last)
    assert change.position == last + 1


async def test_a_checkpoint_beyond_the_end_forgets_no_change_to_come(feed: FeedStore, pk: str) -> None:
    await fill(feed, pk, 2)
    await feed.trim(lowest_checkpoint=1_000)

    await feed.commit(Put(CONTROL, a_row(pk, "new")))

    assert told(await feed.changes(CONTROL, 2)) == [("new", "INSERT")]


async def test_the_sweeper_deletes_what_expired_long_ago_in_steps(feed: FeedStore, clock: ManualClock, pk: str) -> None:
    for n in range(5):
        await feed.commit(Put(CONTROL, a_row(pk, f"{n}", ttl=NOON_S + n, listPk=pk, listSk="x")))
    await feed.commit(Put(CONTROL, a_row(pk, "TRIGGER#cron#1", ttl=NOON_S)))
    await feed.commit(Put(CONTROL, a_row(pk, "lasting")))
    start = await feed.last_position()
    clock.advance(SWEEP_GRACE + timedelta(seconds=3))

    swept = [await feed.sweep(clock.now(), limit=3) for _ in range(3)]

    assert swept == [3, 2, 0]  # 0 to 3 and the terminal run
    assert sorted(told(await feed.changes(CONTROL, start))) == [
        *((f"{n}", "REMOVE") for n in range(4)),
        ("TRIGGER#cron#1", "REMOVE"),
    ]
    with pytest.raises(StaleWrite):
        await feed.commit(Check(CONTROL, Key(pk, "0"), Exists()))
    await feed.commit(Check(CONTROL, Key(pk, "4"), Exists()), Check(CONTROL, Key(pk, "lasting"), Exists()))


async def test_a_swept_row_leaves_its_index(feed: FeedStore, clock: ManualClock, pk: str) -> None:
    await feed.commit(Put(CONTROL, a_row(pk, ttl=NOON_S, listPk=pk, listSk="x")))
    clock.advance(SWEEP_GRACE + timedelta(seconds=1))
    await feed.sweep(clock.now())

    await feed.commit(Put(CONTROL, a_row(pk, listPk=pk, listSk="x")))

    assert len((await feed.query(CONTROL, pk, index=LISTS)).rows) == 1
