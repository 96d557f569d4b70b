"""A row past its `ttl` is not there for readers, whether or not the table has deleted it yet."""

from datetime import timedelta

import pytest

from tests.contract.portrows import CONTROL, a_row, content, stored
from tests.support.clock.manual import NOON, ManualClock
from worker.store.table import LISTS, Equals, Key, Put, StaleWrite, Tables, Update, Value

NOON_S = int(NOON.timestamp())


async def test_a_row_is_there_until_its_time_and_not_after(tables: Tables, clock: ManualClock, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, ttl=NOON_S + 60)))

    assert await stored(tables, pk) is not None
    clock.advance(timedelta(seconds=59))
    assert await stored(tables, pk) is not None
    clock.advance(timedelta(seconds=1))
    assert await stored(tables, pk) is None


async def test_an_expired_trigger_row_is_still_read(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, "TRIGGER#stream#2026-03-01", ttl=NOON_S - 60)))

    assert await stored(tables, pk, "TRIGGER#stream#2026-03-01") is not None
    assert len((await tables.query(CONTROL, pk)).rows) == 1


async def test_no_read_shows_an_expired_row(tables: Tables, pk: str) -> None:
    listed: dict[str, Value] = {"listPk": pk, "ttl": NOON_S}
    await tables.commit(Put(CONTROL, a_row(pk, "expired", listSk="1", **listed)))
    await tables.commit(Put(CONTROL, a_row(pk, "lasting", listPk=pk, listSk="2")))

    many = await tables.get_many(CONTROL, [Key(pk, "expired"), Key(pk, "lasting")])
    page = await tables.query(CONTROL, pk)
    index = await tables.query(CONTROL, pk, index=LISTS)

    assert list(many) == [Key(pk, "lasting")]
    assert [row["SK"] for row in page.rows] == ["lasting"]
    assert [row["SK"] for row in index.rows] == ["lasting"]


async def test_a_page_of_expired_rows_alone_leads_on_to_the_others(tables: Tables, pk: str) -> None:
    for n in range(6):
        await tables.commit(Put(CONTROL, a_row(pk, f"{n}", ttl=NOON_S + (60 if n == 5 else -60))))

    seen: list[Value] = []
    cursor = None
    for _ in range(4):
        page = await tables.query(CONTROL, pk, limit=2, cursor=cursor)
        seen += [row["SK"] for row in page.rows]
        cursor = page.cursor
        if cursor is None:
            break

    assert seen == ["5"]
    assert cursor is None


async def test_a_condition_sees_an_expired_row(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, version=3, ttl=NOON_S - 60)))

    with pytest.raises(StaleWrite) as refusal:
        await tables.commit(Put(CONTROL, a_row(pk, version=1), Equals("version", 2)))

    assert content(refusal.value.row) == a_row(pk, version=3, ttl=NOON_S - 60)


async def test_an_update_builds_on_an_expired_row(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, kept=1, ttl=NOON_S - 60)))

    await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"ttl": NOON_S + 60}))

    assert await stored(tables, pk) == a_row(pk, kept=1, ttl=NOON_S + 60)


@pytest.mark.parametrize("ttl", ["0", None, False])
async def test_an_expiry_that_is_no_number_hides_nothing(tables: Tables, pk: str, ttl: Value) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, ttl=ttl)))

    assert await stored(tables, pk) is not None
