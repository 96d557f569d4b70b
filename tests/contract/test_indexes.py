"""The sparse indexes: a row is in one exactly while it has the attribute that puts it there."""

from decimal import Decimal

import pytest

from tests.contract.portrows import CONTROL, MOTO, a_row, content, known_defect, stored
from worker.core.errors import Rejected
from worker.store.table import (
    ACTIVE,
    EVENT_TYPES,
    LISTS,
    Between,
    Delete,
    Index,
    Key,
    Prefix,
    Put,
    TableName,
    Tables,
    Update,
    Value,
    query_all,
)

EVENTS = TableName.EVENTS


async def listed(tables: Tables, part: str, index: Index = LISTS) -> list[object]:
    return [row["SK"] async for row in query_all(tables, index.table, part, index=index)]


async def test_a_row_is_listed_by_its_index_attributes(tables: Tables, pk: str) -> None:
    row = a_row(pk, "CONFIG", listPk=f"{pk}-list", listSk="orders", config="{}")
    await tables.commit(Put(CONTROL, row))

    page = await tables.query(CONTROL, f"{pk}-list", index=LISTS)

    assert [content(found) for found in page.rows] == [row]


async def test_a_row_without_the_attributes_is_in_no_index(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, "neither")))
    await tables.commit(Put(CONTROL, a_row(pk, "no sort", listPk=pk)))
    await tables.commit(Put(CONTROL, a_row(pk, "no part", listSk="1")))

    assert await listed(tables, pk) == []


async def test_a_row_leaves_the_index_with_the_attribute(tables: Tables, pk: str) -> None:
    for sk in ("removed", "replaced", "deleted", "kept"):
        await tables.commit(Put(CONTROL, a_row(pk, sk, active=pk)))

    await tables.commit(Update(table=CONTROL, key=Key(pk, "removed"), remove=frozenset({"active"})))
    await tables.commit(Put(CONTROL, a_row(pk, "replaced")))
    await tables.commit(Delete(CONTROL, Key(pk, "deleted")))
    await tables.commit(Update(table=CONTROL, key=Key(pk, "kept"), set={"state": "POLLING"}))

    assert await listed(tables, pk, ACTIVE) == ["kept"]


async def test_a_row_moves_within_and_between_the_parts_of_an_index(tables: Tables, pk: str) -> None:
    for n in range(3):
        await tables.commit(Put(CONTROL, a_row(pk, f"run {n}", listPk=f"{pk}#RUNNING", listSk=f"{n}")))

    await tables.commit(Update(table=CONTROL, key=Key(pk, "run 0"), set={"listSk": "9"}))
    await tables.commit(Update(table=CONTROL, key=Key(pk, "run 1"), set={"listPk": f"{pk}#DONE"}))

    assert await listed(tables, f"{pk}#RUNNING") == ["run 2", "run 0"]
    assert await listed(tables, f"{pk}#DONE") == ["run 1"]


async def test_an_index_gives_only_what_it_projects(tables: Tables, pk: str) -> None:
    await tables.commit(
        Put(CONTROL, a_row(pk, "SLA#1", active=pk, owner="w1", state="ARMED", version=3, data={"a": 1}))
    )

    page = await tables.query(CONTROL, pk, index=ACTIVE)

    assert list(page.rows) == [{"PK": pk, "SK": "SLA#1", "active": pk, "owner": "w1", "state": "ARMED"}]


async def test_rows_with_the_same_index_key_are_all_listed(tables: Tables, pk: str) -> None:
    for n in range(7):
        await tables.commit(Put(CONTROL, a_row(f"{pk}#{n % 2}", f"{n}", listPk=pk, listSk="same")))

    seen, cursor = list[object](), None
    for _ in range(9):
        page = await tables.query(CONTROL, pk, index=LISTS, limit=2, cursor=cursor)
        seen, cursor = seen + [row["SK"] for row in page.rows], page.cursor
        if cursor is None:
            break

    assert sorted(map(str, seen)) == [f"{n}" for n in range(7)]


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
async def test_pages_of_an_index_join_to_the_whole(tables: Tables, pk: str, *, reverse: bool) -> None:
    for n in range(9):
        await tables.commit(Put(CONTROL, a_row(pk, f"{n}", listPk=pk, listSk=f"2026-03-0{9 - n}")))
    within = Between("2026-03-02", "2026-03-08")

    seen, cursor = list[object](), None
    for _ in range(9):
        page = await tables.query(CONTROL, pk, index=LISTS, sk=within, limit=2, cursor=cursor, reverse=reverse)
        seen, cursor = seen + [row["listSk"] for row in page.rows], page.cursor
        if cursor is None:
            break

    expected = [f"2026-03-0{n}" for n in range(2, 9)]
    assert seen == (expected[::-1] if reverse else expected)


async def test_an_index_is_searched_by_prefix(tables: Tables, pk: str) -> None:
    for sk in ("2026-03-01T10", "2026-03-01T11", "2026-03-02T10"):
        await tables.commit(Put(CONTROL, a_row(pk, sk, listPk=pk, listSk=sk)))

    page = await tables.query(CONTROL, pk, index=LISTS, sk=Prefix("2026-03-01"))

    assert [row["SK"] for row in page.rows] == ["2026-03-01T10", "2026-03-01T11"]


async def test_the_number_index_sorts_as_numbers_do(tables: Tables, pk: str) -> None:
    in_order: list[int | Decimal] = [
        -(10**20), -15, Decimal("-1.5"), -1, Decimal("-0.2"), 0, Decimal("1E-20"), Decimal("0.9"), 1, Decimal("1.5"), 2,
        9, 10, 99, 100, 2**53, 2**53 + 1, 10**37, 10**37 + 1,
    ]  # fmt: skip
    for n, number in enumerate(in_order):
        await tables.commit(Put(EVENTS, a_row(pk, f"{(n * 7) % 19:02}", eventType=pk, timestamp=number)))

    forward = await tables.query(EVENTS, pk, index=EVENT_TYPES)
    backward = await tables.query(EVENTS, pk, index=EVENT_TYPES, reverse=True)

    assert [row["timestamp"] for row in forward.rows] == in_order
    assert [row["timestamp"] for row in backward.rows] == in_order[::-1]


async def test_a_range_of_the_number_index_includes_both_ends(tables: Tables, pk: str) -> None:
    for millis in (9, 10, 11, 99, 100, 101):
        await tables.commit(Put(EVENTS, a_row(pk, f"{millis}#JOB", eventType=pk, timestamp=millis)))

    page = await tables.query(EVENTS, pk, index=EVENT_TYPES, sk=Between(10, 100))

    assert [row["timestamp"] for row in page.rows] == [10, 11, 99, 100]


@pytest.mark.parametrize(
    ("table", "attributes"),
    [
        (CONTROL, {"listPk": 1, "listSk": "a"}),
        (CONTROL, {"listPk": "", "listSk": "a"}),
        (CONTROL, {"listPk": "a", "listSk": None}),
        (EVENTS, {"eventType": "a", "timestamp": "1"}),
    ],
    ids=["number for text", "empty text", "null", "text for number"],
)
async def test_an_index_attribute_of_another_kind_is_refused(
    tables: Tables, backend: str, pk: str, table: TableName, attributes: dict[str, Value]
) -> None:
    is_taken_by_moto = backend == MOTO and (attributes.get("listPk") == 1 or "timestamp" in attributes)

    with known_defect(of_moto=is_taken_by_moto):
        with pytest.raises(Rejected):
            await tables.commit(Put(table, {"PK": pk, "SK": "ROW", **attributes}))
        assert await stored(tables, pk, table=table) is None
