"""Reading a partition: in order, from where to where one asks, page by page, losing and repeating nothing."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.contract.portrows import CONTROL, MOTO, a_row, content
from worker.core.errors import Rejected
from worker.store.table import WRITES_MAX, Between, Delete, Key, Page, Prefix, Put, TableName, Tables, Update, query_all

# In the order of their UTF-8 bytes, which is neither alphabetical nor the order of UTF-16.
IN_ORDER = ["!", "A", "A#1", "A#2", "A-", "B", "a", "a\x00", "aa", "z", "é", "€", "\uffee", "🦊"]


async def put_all(tables: Tables, pk: str, sort_keys: Sequence[str]) -> None:
    """Write many rows in as few commits as they fit in."""
    for first in range(0, len(sort_keys), WRITES_MAX):
        await tables.commit(*(Put(CONTROL, a_row(pk, sk)) for sk in sort_keys[first : first + WRITES_MAX]))


async def put_one_by_one(tables: Tables, pk: str, sort_keys: Sequence[str], at_once: int = 20) -> None:
    for first in range(0, len(sort_keys), at_once):
        async with asyncio.TaskGroup() as tasks:
            for sk in sort_keys[first : first + at_once]:
                tasks.create_task(tables.commit(Put(CONTROL, a_row(pk, sk))))


def sort_keys(page: Page) -> list[object]:
    return [row["SK"] for row in page.rows]


async def test_rows_come_in_the_order_of_their_bytes(tables: Tables, pk: str) -> None:
    await put_all(tables, pk, IN_ORDER[::2])
    await put_all(tables, pk, IN_ORDER[1::2])

    page = await tables.query(CONTROL, pk)
    reverse = await tables.query(CONTROL, pk, reverse=True)

    assert (sort_keys(page), page.cursor) == (IN_ORDER, None)
    assert (sort_keys(reverse), reverse.cursor) == (IN_ORDER[::-1], None)


async def test_a_query_gives_whole_rows_of_its_partition_alone(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, value={"a": [1]})))
    await tables.commit(Put(CONTROL, a_row(pk + "0")))
    await tables.commit(Put(TableName.EVENTS, a_row(pk)))

    page = await tables.query(CONTROL, pk)

    assert [content(row) for row in page.rows] == [a_row(pk, value={"a": [1]})]


async def test_a_partition_without_rows_is_an_empty_page(tables: Tables, pk: str) -> None:
    assert await tables.query(CONTROL, pk) == Page([], None)


@pytest.mark.parametrize("prefix", ["A", "A#", "A#1", "a", "é", "🦊", "\uffee", "none", "zz"])
async def test_a_prefix_finds_what_begins_with_it(tables: Tables, pk: str, prefix: str) -> None:
    await put_all(tables, pk, IN_ORDER)

    page = await tables.query(CONTROL, pk, sk=Prefix(prefix))

    assert sort_keys(page) == [sk for sk in IN_ORDER if sk.startswith(prefix)]


@pytest.mark.parametrize(
    ("low", "high"), [("A", "B"), ("A#2", "A#2"), ("A#", "A#~"), ("\x01", "🦊"), ("b", "y"), ("B", "a")]
)
async def test_a_range_includes_both_ends(tables: Tables, pk: str, low: str, high: str) -> None:
    await put_all(tables, pk, IN_ORDER)

    page = await tables.query(CONTROL, pk, sk=Between(low, high))

    assert sort_keys(page) == [sk for sk in IN_ORDER if low.encode() <= sk.encode() <= high.encode()]


@pytest.mark.parametrize("sk", [None, Prefix("A"), Between("A#1", "z")], ids=["all", "prefix", "range"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
async def test_pages_of_any_size_join_to_the_whole(
    tables: Tables, pk: str, sk: Prefix | Between | None, *, reverse: bool
) -> None:
    await put_all(tables, pk, IN_ORDER)
    whole = sort_keys(await tables.query(CONTROL, pk, sk=sk, reverse=reverse))

    for limit in (1, 3, len(whole)):
        joined, cursor = list[object](), None
        for _ in range(len(whole) + 2):
            page = await tables.query(CONTROL, pk, sk=sk, reverse=reverse, limit=limit, cursor=cursor)
            assert len(page.rows) <= limit
            joined, cursor = joined + sort_keys(page), page.cursor
            if cursor is None:
                break
        assert joined == whole


async def test_the_newest_row_is_the_first_in_reverse(tables: Tables, pk: str) -> None:
    await put_all(tables, pk, [f"JOB#{n:03}" for n in range(20)])

    page = await tables.query(CONTROL, pk, sk=Prefix("JOB#"), reverse=True, limit=1)

    assert sort_keys(page) == ["JOB#019"]
    assert page.cursor is not None


async def test_a_text_that_is_no_cursor_is_refused(tables: Tables, pk: str) -> None:
    for nonsense in ("nonsense", "WzFd", "💥"):
        with pytest.raises(Rejected):
            await tables.query(CONTROL, pk, cursor=nonsense)


async def test_rows_deleted_and_added_while_paging_disturb_no_other(tables: Tables, pk: str) -> None:
    await put_all(tables, pk, [f"{n:03}" for n in range(0, 60, 2)])

    first = await tables.query(CONTROL, pk, limit=10)
    await tables.commit(Delete(CONTROL, Key(pk, "018")))  # the row the cursor stands on
    await tables.commit(Delete(CONTROL, Key(pk, "020")))
    await tables.commit(Put(CONTROL, a_row(pk, "001")), Put(CONTROL, a_row(pk, "021")))
    second = await tables.query(CONTROL, pk, limit=100, cursor=first.cursor)

    assert sort_keys(first) == [f"{n:03}" for n in range(0, 20, 2)]
    assert sort_keys(second) == ["021", *(f"{n:03}" for n in range(22, 60, 2))]


async def write_among(tables: Tables, pk: str, there_throughout: Sequence[str], seed: int) -> None:
    """Change a row that stays, make one beside it and take away the one made before: behind the reader or ahead."""
    here = there_throughout[(seed * 7919) % len(there_throughout)]
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(tables.commit(Update(table=CONTROL, key=Key(pk, here), set={"touched": seed})))
        tasks.create_task(tables.commit(Put(CONTROL, a_row(pk, f"{here}-new"))))
    await tables.commit(Delete(CONTROL, Key(pk, f"{here}-new")))


async def test_thousands_of_rows_page_without_loss_or_repeat_while_others_are_written(
    tables: Tables, backend: str, pk: str
) -> None:
    there_throughout = [f"{n:06}" for n in range(1_000 if backend == MOTO else 10_000)]
    if backend == MOTO:  # it copies the whole table for every transaction
        await put_one_by_one(tables, pk, there_throughout)
    else:
        await put_all(tables, pk, there_throughout)
    step = len(there_throughout) // 25

    seen: list[str] = []
    async for row in query_all(tables, CONTROL, pk):
        seen.append(str(row["SK"]))
        if len(seen) % step == 0:
            await write_among(tables, pk, there_throughout, len(seen))

    assert [sk for sk in seen if not sk.endswith("-new")] == there_throughout
    assert len(seen) == len(set(seen))


async def test_a_page_of_large_rows_is_cut_and_goes_on(tables: Tables, pk: str) -> None:
    for n in range(8):
        await tables.commit(Put(CONTROL, a_row(pk, f"{n}", value="x" * 300_000)))

    first = await tables.query(CONTROL, pk)
    rest = [row["SK"] async for row in query_all(tables, CONTROL, pk)]

    assert first.cursor is not None
    assert rest == [f"{n}" for n in range(8)]


async def test_many_rows_are_read_at_once_by_key(tables: Tables, pk: str) -> None:
    await put_all(tables, pk, [f"{n:03}" for n in range(250)])
    keys = [Key(pk, f"{n:03}") for n in range(0, 500, 2)]

    found = await tables.get_many(CONTROL, keys)

    assert {key: row["SK"] for key, row in found.items()} == {key: key.sk for key in keys if key.sk < "250"}


async def test_a_key_asked_for_twice_is_read_once(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk)))

    found = await tables.get_many(CONTROL, [Key(pk, "ROW"), Key(pk, "ROW"), Key(pk, "none")])

    assert list(found) == [Key(pk, "ROW")]


async def test_reading_no_keys_finds_no_rows(tables: Tables) -> None:
    assert await tables.get_many(CONTROL, []) == {}
