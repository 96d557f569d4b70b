"""Whatever is asked of a shadow's store, no write leaves `SHADOW#`, and what it wrote it reads back unchanged."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock.manual import ManualClock
from worker.core.model.keys import SHADOW
from worker.store.shadow import ShadowTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import (
    INDEXES,
    LISTS,
    Absent,
    Check,
    Delete,
    Exists,
    Key,
    Prefix,
    Put,
    StaleWrite,
    TableName,
    Update,
    Write,
)

PARTITIONS = st.sampled_from(["PIPELINE#orders", "PIPELINE#", "GROUP#interlock", "CONFIGLOG", "MARKER#orders"])
SORTS = st.sampled_from(
    [
        "CONFIG",
        "PAUSE",
        "SENSOR#ready",
        "TRIGGER#cron#2027-03-22",
        "RERUN_REQUEST#cron#2027-03-22",
        "JOB#x",
        "W#1",
        "MARK#a",
    ]
)
KEYS = st.builds(Key, PARTITIONS, SORTS)
ATTRIBUTES = st.fixed_dictionaries(
    {"text": st.text(max_size=5)}, optional={index.partition: st.just("LISTED") for index in INDEXES}
)
TABLES = st.sampled_from(TableName)


@st.composite
def writes(draw: st.DrawFn) -> Write:
    table, key, attributes = draw(TABLES), draw(KEYS), draw(ATTRIBUTES)
    match draw(st.sampled_from(["put", "update", "delete"])):
        case "put":
            return Put(table, {"PK": key.pk, "SK": key.sk, **attributes})
        case "update":
            return Update(table=table, key=key, set=attributes)
        case _:
            return Delete(table, key)


def a_store() -> SqliteTables:
    return SqliteTables.in_memory(ManualClock())


@given(st.lists(writes(), min_size=1, max_size=8))
def test_no_write_leaves_the_shadow(asked: list[Write]) -> None:
    store = a_store()

    async def write() -> list[Key]:
        await store.start()
        shadow = ShadowTables(store, ManualClock())
        for each in asked:
            await shadow.commit(each)
        changed = [change.key for table in TableName for change in await store.changes(table, 0)]
        listed = [await store.query(index.table, "LISTED", index=index) for index in INDEXES]
        await store.stop()
        assert [page.rows for page in listed] == [[], [], []]
        return changed

    assert [key for key in asyncio.run(write()) if SHADOW not in {key.pk[:7], key.sk[:7]}] == []


@given(TABLES, KEYS, ATTRIBUTES)
def test_what_a_shadow_writes_of_its_own_it_finds_again(table: TableName, key: Key, attributes: dict[str, str]) -> None:
    store = a_store()

    async def write() -> None:
        await store.start()
        shadow = ShadowTables(store, ManualClock())
        await shadow.commit(Put(table, {"PK": key.pk, "SK": key.sk, **attributes}))
        found = await shadow.get(table, key)
        page = await shadow.query(table, key.pk, sk=Prefix(key.sk))
        await store.stop()
        if found is None:  # it is others' to write, and they wrote none
            assert key.pk.startswith("PIPELINE#")
            assert page.rows == []
            return
        assert {name: found[name] for name in attributes} == attributes
        assert [Key(str(row["PK"]), str(row["SK"])) for row in page.rows] == [key]

    asyncio.run(write())


def test_what_others_wrote_is_read_where_it_is() -> None:
    store, sensor = a_store(), Key("PIPELINE#orders", "SENSOR#ready")

    async def read() -> None:
        await store.start()
        config = {
            "PK": "PIPELINE#orders",
            "SK": "CONFIG",
            "config": "{}",
            LISTS.partition: "PIPELINES",
            LISTS.sort: "a",
        }
        await store.commit(Put(TableName.CONTROL, config))
        await store.commit(Put(TableName.CONTROL, {"PK": sensor.pk, "SK": sensor.sk, "rows": 1}))
        await store.commit(
            Put(TableName.CONTROL, {"PK": sensor.pk, "SK": "TRIGGER#cron#2027-03-22", "status": "RUNNING"})
        )
        shadow = ShadowTables(store, ManualClock())

        assert list(await shadow.get_many(TableName.CONTROL, [sensor])) == [sensor]
        assert len((await shadow.query(TableName.CONTROL, "PIPELINES", index=LISTS)).rows) == 1
        assert await shadow.get(TableName.CONTROL, Key(sensor.pk, "TRIGGER#cron#2027-03-22")) is None
        await store.stop()

    asyncio.run(read())


def test_a_refused_write_is_named_as_it_was_asked() -> None:
    store, mark = a_store(), {"PK": "PIPELINE#orders", "SK": "MARK#a", "n": 1}

    async def write() -> None:
        await store.start()
        shadow = ShadowTables(store, ManualClock())
        asked = Put(TableName.CONTROL, mark, Absent())
        await shadow.commit(asked)
        with pytest.raises(StaleWrite) as refused:
            await shadow.commit(asked)
        assert refused.value.write == asked
        assert refused.value.row is not None
        assert refused.value.row["SK"] == "MARK#a"
        await store.stop()

    asyncio.run(write())


def test_a_check_looks_at_the_row_of_whoever_wrote_it() -> None:
    store = a_store()

    async def write() -> None:
        await store.start()
        await store.commit(Put(TableName.CONTROL, {"PK": "PIPELINE#orders", "SK": "PAUSE"}))
        shadow = ShadowTables(store, ManualClock())
        own = Put(TableName.CONTROL, {"PK": "PIPELINE#orders", "SK": "MARK#a"})
        pause = Key("PIPELINE#orders", "PAUSE")

        await shadow.commit(own, Check(TableName.CONTROL, pause, Exists()))
        with pytest.raises(StaleWrite):
            await shadow.commit(own, Check(TableName.CONTROL, pause, Absent()))
        await store.stop()

    asyncio.run(write())
