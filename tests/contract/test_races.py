"""Many writers at once: exactly one of them wins, and the loser is told so."""

import asyncio

from tests.contract.portrows import CONTROL, a_row, stored
from worker.store.table import Absent, Check, Equals, Exists, Key, Put, StaleWrite, TableName, Tables, Update

WRITERS = 10
ROUNDS = 50


async def wins(tables: Tables, *writes: Put | Update | Check) -> bool:
    try:
        await tables.commit(*writes)
    except StaleWrite:
        return False
    return True


async def race(contenders: list["asyncio.Task[bool]"]) -> list[int]:
    return [number for number, contender in enumerate(contenders) if await contender]


async def test_ten_writers_of_one_version_have_one_winner(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, version=0)))

    winners: list[int] = []
    for version in range(ROUNDS):
        async with asyncio.TaskGroup() as tasks:
            contenders = [
                tasks.create_task(
                    wins(
                        tables,
                        Update(
                            table=CONTROL,
                            key=Key(pk, "ROW"),
                            set={"version": version + 1, "winner": number},
                            condition=Equals("version", version),
                        ),
                    )
                )
                for number in range(WRITERS)
            ]
        [winner] = await race(contenders)
        winners.append(winner)
        row = await stored(tables, pk)
        assert row == a_row(pk, version=version + 1, winner=winner)

    assert len(winners) == ROUNDS


async def test_ten_claims_of_one_lock_have_one_holder(tables: Tables, pk: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        contenders = [
            tasks.create_task(wins(tables, Put(CONTROL, a_row(pk, "LOCK", owner=number), Absent())))
            for number in range(WRITERS)
        ]

    [winner] = await race(contenders)
    assert await stored(tables, pk, "LOCK") == a_row(pk, "LOCK", owner=winner)


async def test_transactions_that_race_over_one_guard_leave_only_the_winner_s_rows(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, version=0)))

    async with asyncio.TaskGroup() as tasks:
        contenders = [
            tasks.create_task(
                wins(
                    tables,
                    Put(TableName.JOBLOG, a_row(pk, f"JOB#{number}")),
                    Put(TableName.EVENTS, a_row(pk, f"EVENT#{number}")),
                    Update(table=CONTROL, key=Key(pk, "ROW"), set={"version": 1}, condition=Equals("version", 0)),
                )
            )
            for number in range(WRITERS)
        ]

    [winner] = await race(contenders)
    assert [row["SK"] for row in (await tables.query(TableName.JOBLOG, pk)).rows] == [f"JOB#{winner}"]
    assert [row["SK"] for row in (await tables.query(TableName.EVENTS, pk)).rows] == [f"EVENT#{winner}"]


async def test_writers_of_different_rows_all_win(tables: Tables, pk: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(WRITERS):
            tasks.create_task(tables.commit(Put(CONTROL, a_row(pk, f"{number}"), Absent())))

    assert len((await tables.query(CONTROL, pk)).rows) == WRITERS


async def test_what_was_committed_is_read_at_once(tables: Tables, pk: str) -> None:
    for version in range(20):
        await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"version": version}))

        assert await stored(tables, pk) == a_row(pk, version=version)
        assert [row["version"] for row in (await tables.query(CONTROL, pk)).rows] == [version]


async def test_a_refused_writer_does_not_harm_those_that_wait_with_it(tables: Tables, pk: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        contenders = [
            tasks.create_task(wins(tables, Put(CONTROL, a_row(pk, f"{number}"), Exists() if number % 2 else Absent())))
            for number in range(WRITERS)
        ]

    assert await race(contenders) == [0, 2, 4, 6, 8]
    assert [row["SK"] for row in (await tables.query(CONTROL, pk)).rows] == ["0", "2", "4", "6", "8"]
