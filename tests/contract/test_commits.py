"""What a commit promises: all or nothing, durable, and an honest answer."""

import pytest

from tests.contract.portrows import CONTROL, a_row, content, stored
from worker.core.errors import Rejected
from worker.store.table import (
    COMMIT_ID,
    Absent,
    Check,
    Delete,
    Equals,
    Exists,
    Key,
    Put,
    StaleWrite,
    TableName,
    Tables,
    Update,
)


async def test_the_store_answers(tables: Tables) -> None:
    await tables.ping()


async def test_a_row_that_was_put_is_read_back(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, state="POLLING", attempt=2)))

    assert await stored(tables, pk) == a_row(pk, state="POLLING", attempt=2)


async def test_a_row_that_was_never_written_is_not_there(tables: Tables, pk: str) -> None:
    assert await tables.get(CONTROL, Key(pk, "ROW")) is None


async def test_a_put_replaces_the_whole_row(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, first=1)))

    await tables.commit(Put(CONTROL, a_row(pk, second=2)))

    assert await stored(tables, pk) == a_row(pk, second=2)


async def test_an_update_changes_what_it_names_and_leaves_the_rest(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, kept=1, changed=1, removed=1)))

    await tables.commit(
        Update(
            table=CONTROL, key=Key(pk, "ROW"), set={"changed": 2, "new": 3}, remove=frozenset({"removed", "unknown"})
        )
    )

    assert await stored(tables, pk) == a_row(pk, kept=1, changed=2, new=3)


async def test_an_update_makes_a_row_that_is_not_there(tables: Tables, pk: str) -> None:
    await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"version": 1}))

    assert await stored(tables, pk) == a_row(pk, version=1)


async def test_an_update_that_only_removes_makes_an_empty_row(tables: Tables, pk: str) -> None:
    await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), remove=frozenset({"anything"})))

    assert await stored(tables, pk) == a_row(pk)


async def test_set_if_absent_keeps_what_is_there(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, first="kept", nothing=None)))

    await tables.commit(
        Update(table=CONTROL, key=Key(pk, "ROW"), set_if_absent={"first": "new", "nothing": 1, "second": "new"})
    )

    # Null is a value: an attribute that holds it is not absent.
    assert await stored(tables, pk) == a_row(pk, first="kept", nothing=None, second="new")


async def test_a_deleted_row_is_gone_and_may_be_deleted_again(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk)))

    await tables.commit(Delete(CONTROL, Key(pk, "ROW")))
    await tables.commit(Delete(CONTROL, Key(pk, "ROW")))

    assert await stored(tables, pk) is None


async def test_the_same_key_in_two_tables_is_two_rows(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, where="control")))
    await tables.commit(Put(TableName.EVENTS, a_row(pk, where="events")))

    assert await stored(tables, pk) == a_row(pk, where="control")
    assert await stored(tables, pk, table=TableName.EVENTS) == a_row(pk, where="events")


async def test_one_commit_reaches_all_four_tables(tables: Tables, pk: str) -> None:
    await tables.commit(*(Put(table, a_row(pk, table=table.value)) for table in TableName))

    for table in TableName:
        assert await stored(tables, pk, table=table) == a_row(pk, table=table.value)


@pytest.mark.parametrize("position", [0, 1, 3])
async def test_one_refused_write_refuses_the_whole_commit(tables: Tables, pk: str, position: int) -> None:
    refused = [Exists() if at == position else None for at in range(4)]
    writes = [Put(table, a_row(pk), refused[at]) for at, table in enumerate(TableName)]

    with pytest.raises(StaleWrite):
        await tables.commit(*writes)

    for table in TableName:
        assert await stored(tables, pk, table=table) is None


async def test_all_four_kinds_of_write_pass_together(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, "guard", open=True)))
    await tables.commit(Put(CONTROL, a_row(pk, "old")))

    await tables.commit(
        Check(CONTROL, Key(pk, "guard"), Equals("open", value=True)),
        Put(CONTROL, a_row(pk, "new"), Absent()),
        Update(table=CONTROL, key=Key(pk, "counter"), set={"n": 1}),
        Delete(CONTROL, Key(pk, "old"), Exists()),
    )

    page = await tables.query(CONTROL, pk)
    assert [row["SK"] for row in page.rows] == ["counter", "guard", "new"]


async def test_a_check_lets_nothing_pass_and_changes_nothing_itself(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, "pause", until="tomorrow")))
    before = await tables.get(CONTROL, Key(pk, "pause"))

    with pytest.raises(StaleWrite):
        await tables.commit(Check(CONTROL, Key(pk, "pause"), Absent()), Put(CONTROL, a_row(pk, "run")))

    assert await stored(tables, pk, "run") is None
    assert await tables.get(CONTROL, Key(pk, "pause")) == before


async def test_a_check_alone_answers_without_writing(tables: Tables, pk: str) -> None:
    await tables.commit(Check(CONTROL, Key(pk, "pause"), Absent()))

    assert await stored(tables, pk, "pause") is None


async def test_a_refusal_names_the_write_and_shows_the_row_it_met(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, version=7)))
    good = Put(CONTROL, a_row(pk, "other"))
    bad = Update(table=CONTROL, key=Key(pk, "ROW"), set={"version": 7}, condition=Equals("version", 6))

    with pytest.raises(StaleWrite) as refusal:
        await tables.commit(good, bad)

    assert refusal.value.write == bad
    assert content(refusal.value.row) == a_row(pk, version=7)
    assert "version 7" in str(refusal.value)


async def test_a_refusal_of_a_single_write_shows_the_row_it_met(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, version=7)))
    again = Put(CONTROL, a_row(pk, version=1), Absent())

    with pytest.raises(StaleWrite) as refusal:
        await tables.commit(again)

    assert refusal.value.write == again
    assert content(refusal.value.row) == a_row(pk, version=7)


async def test_a_refusal_says_that_there_is_no_row(tables: Tables, pk: str) -> None:
    with pytest.raises(StaleWrite) as refusal:
        await tables.commit(Delete(CONTROL, Key(pk, "ROW"), Exists()))

    assert refusal.value.row is None


async def test_two_writes_on_one_row_are_refused(tables: Tables, pk: str) -> None:
    with pytest.raises(Rejected):
        await tables.commit(Put(CONTROL, a_row(pk)), Check(CONTROL, Key(pk, "ROW"), Absent()))

    assert await stored(tables, pk) is None


async def test_an_update_that_names_an_attribute_twice_is_refused(tables: Tables, pk: str) -> None:
    with pytest.raises(Rejected):
        await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"a": 1}, remove=frozenset({"a"})))

    assert await stored(tables, pk) is None


async def test_an_update_cannot_change_a_key(tables: Tables, pk: str) -> None:
    with pytest.raises(Rejected):
        await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"SK": "OTHER"}))


async def test_the_first_row_written_carries_the_commit_id(tables: Tables, pk: str) -> None:
    await tables.commit(
        Check(CONTROL, Key(pk, "guard"), Absent()),
        Update(table=CONTROL, key=Key(pk, "first"), set={"n": 1}),
        Put(CONTROL, a_row(pk, "second")),
    )

    first, second = await tables.get(CONTROL, Key(pk, "first")), await tables.get(CONTROL, Key(pk, "second"))
    assert first is not None
    assert second is not None
    assert len(str(first[COMMIT_ID])) >= 16
    assert COMMIT_ID not in second


async def test_every_commit_has_an_id_of_its_own(tables: Tables, pk: str) -> None:
    ids: set[object] = set()
    for version in range(3):
        await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"version": version}))
        row = await tables.get(CONTROL, Key(pk, "ROW"))
        assert row is not None
        ids.add(row[COMMIT_ID])

    assert len(ids) == 3


async def test_a_refused_commit_leaves_the_winner_s_id(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk), Absent()))
    winner = await tables.get(CONTROL, Key(pk, "ROW"))

    with pytest.raises(StaleWrite):
        await tables.commit(Put(CONTROL, a_row(pk), Absent()))

    assert await tables.get(CONTROL, Key(pk, "ROW")) == winner


async def test_a_commit_of_nothing_is_refused(tables: Tables) -> None:
    with pytest.raises(Rejected):
        await tables.commit()
