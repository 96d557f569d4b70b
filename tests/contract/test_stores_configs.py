"""Configurations, the config log, sensors and marks on every backend."""

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import cast

import pytest

from tests.contract.storevalues import NOW, a_name, a_period, a_pipeline, a_run, race
from tests.support.clock.manual import ManualClock
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.store.repos import marks
from worker.store.repos.config_log import ConfigChange, ConfigLog, ConfigLogEntry, append_many_write
from worker.store.repos.marks import Mark, Marks
from worker.store.repos.pipelines import KeptVersion, Pipelines, StoredConfig
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensor, Sensors, sensor_of
from worker.store.table import Key, Put, Row, StaleWrite, TableName, Tables, Value, Write
from worker.store.tail import Tail

SECOND = timedelta(seconds=1)


def config_key(pipeline: PipelineId) -> Key:
    return Key(keys.pipeline_pk(pipeline), "CONFIG")


async def put_control(tables: Tables, pipeline: PipelineId, sk: str, attributes: Mapping[str, Value]) -> None:
    await tables.commit(Put(TableName.CONTROL, {"PK": keys.pipeline_pk(pipeline), "SK": sk, **attributes}))


async def listed(tables: Tables, *wanted: PipelineId) -> list[StoredConfig]:
    """Backends may keep rows of other tests, so only those asked for."""
    return [config async for config in Pipelines(tables).list() if config.pipeline in wanted]


# --- configurations ---------------------------------------------------------------------------------------------------


async def test_a_configuration_is_deployed_replaced_listed_and_removed(tables: Tables) -> None:
    store, pipeline = Pipelines(tables), a_pipeline()
    assert await store.get(pipeline) is None

    await store.put(pipeline, '{"v": 1}')
    await store.put(pipeline, '{"v": 2}')

    assert await store.get(pipeline) == StoredConfig(pipeline, '{"v": 2}')
    assert await listed(tables, pipeline) == [StoredConfig(pipeline, '{"v": 2}')]
    await store.remove(pipeline)
    await store.remove(pipeline)
    assert await store.get(pipeline) is None
    assert await listed(tables, pipeline) == []


async def test_configurations_are_listed_in_order_of_their_id(tables: Tables) -> None:
    pipelines = [a_pipeline() for _ in range(5)]
    for pipeline in pipelines:
        await Pipelines(tables).put(pipeline, "{}")

    found = await listed(tables, *pipelines)

    assert [config.pipeline for config in found] == sorted(pipelines)


async def test_a_configuration_others_deployed_is_listed_once_it_was_seen(tables: Tables) -> None:
    pipeline = a_pipeline()
    await put_control(tables, pipeline, "CONFIG", {"config": "{}", "note": "kept"})
    assert await listed(tables, pipeline) == []

    assert await Pipelines(tables).list_deployed(pipeline)

    assert await listed(tables, pipeline) == [StoredConfig(pipeline, "{}")]
    row = await tables.get(TableName.CONTROL, config_key(pipeline))
    assert row is not None
    assert row["note"] == "kept"


async def test_listing_a_deployed_configuration_again_writes_nothing(tables: Tables) -> None:
    pipeline = a_pipeline()
    await put_control(tables, pipeline, "CONFIG", {"config": "{}"})
    await Pipelines(tables).list_deployed(pipeline)
    before = await tables.get(TableName.CONTROL, config_key(pipeline))

    assert not await Pipelines(tables).list_deployed(pipeline)

    assert await tables.get(TableName.CONTROL, config_key(pipeline)) == before


async def test_a_configuration_that_was_removed_meanwhile_is_not_brought_back(tables: Tables) -> None:
    pipeline = a_pipeline()

    assert not await Pipelines(tables).list_deployed(pipeline)

    assert await tables.get(TableName.CONTROL, config_key(pipeline)) is None


async def test_a_configuration_that_is_no_text_hides_no_other(tables: Tables) -> None:
    broken, sound = a_pipeline(), a_pipeline()
    await put_control(tables, broken, "CONFIG", {"config": {"a": 1}})
    await Pipelines(tables).list_deployed(broken)
    await Pipelines(tables).put(sound, "{}")

    found = await listed(tables, broken, sound)

    assert {config.pipeline: config.text for config in found} == {broken: None, sound: "{}"}


async def test_a_version_never_changes(tables: Tables) -> None:
    store, pipeline = Pipelines(tables), a_pipeline()
    kept_at = NOW
    await store.keep_version(pipeline, "ab12", "first", kept_at)

    await store.keep_version(pipeline, "ab12", "second", kept_at + timedelta(days=1))

    assert await store.version(pipeline, "ab12") == "first"
    assert await store.versions(pipeline, 5) == [KeptVersion("ab12", kept_at)]
    assert await store.version(pipeline, "cd34") is None


# --- the config log ---------------------------------------------------------------------------------------------------


async def test_every_worker_learns_of_each_change_once(tables: Tables) -> None:
    log, pipeline = ConfigLog(tables), a_pipeline()
    entries = [
        ConfigLogEntry(id=a_name(), pipeline=pipeline, change=ConfigChange.CHANGED, config_hash="ab12"),
        ConfigLogEntry(id=a_name(), pipeline=pipeline, change=ConfigChange.REJECTED, config_hash="ab12"),
        ConfigLogEntry(id=a_name(), pipeline=pipeline, change=ConfigChange.REMOVED),
    ]
    tail = Tail.starting(NOW)
    for number, entry in enumerate(entries):
        await log.append(entry, NOW + number * SECOND)

    first, tail = await log.read(tail, NOW + 5 * SECOND)
    second, tail = await log.read(tail, NOW + 10 * SECOND)

    assert [entry for entry in first if entry.pipeline == pipeline] == entries
    assert [entry for entry in second if entry.pipeline == pipeline] == []


async def test_changes_that_share_a_row_are_read_one_by_one(tables: Tables) -> None:
    log, pipelines = ConfigLog(tables), [a_pipeline() for _ in range(25)]
    id_ = a_name()
    entries = [
        ConfigLogEntry(id=id_, pipeline=each, change=ConfigChange.CHANGED, config_hash=f"hash-of-{each}")
        for each in pipelines
    ]
    await tables.commit(append_many_write(entries, NOW))

    first, tail = await log.read(Tail.starting(NOW), NOW + 5 * SECOND)
    second, _ = await log.read(tail, NOW + 10 * SECOND)

    assert [entry for entry in first if entry.pipeline in pipelines] == entries
    assert [entry for entry in second if entry.pipeline in pipelines] == []


async def test_a_change_is_logged_for_a_week(tables: Tables, clock: ManualClock) -> None:
    log, pipeline = ConfigLog(tables), a_pipeline()
    await log.append(ConfigLogEntry(id=a_name(), pipeline=pipeline, change=ConfigChange.REMOVED), NOW)

    clock.advance(timedelta(days=7))
    news, _ = await log.read(Tail.starting(NOW), clock.now())

    assert [entry for entry in news if entry.pipeline == pipeline] == []


# --- sensors ----------------------------------------------------------------------------------------------------------


async def test_both_shapes_of_a_sensor_are_the_same_sensor(tables: Tables) -> None:
    pipeline, data = a_pipeline(), {"complete": True, "count": 3, "rate": Decimal("0.1")}
    await put_control(tables, pipeline, "SENSOR#nested", {"data": data, "updated": "now", "ttl": 9_999_999_999})
    await put_control(tables, pipeline, "SENSOR#flat", {**data, "ttl": 9_999_999_999})

    nested, flat = [await Sensors(tables).get(pipeline, key) for key in ("nested", "flat")]

    assert nested is not None
    assert flat is not None
    assert nested.data == flat.data == data
    assert nested.content_hash == flat.content_hash


async def test_a_sensor_is_read_back_exactly(tables: Tables) -> None:
    pipeline = a_pipeline()
    data: dict[str, Json] = {
        "big": 10**30 + 1,
        "small": Decimal("0.1"),
        "text": "",
        "none": None,
        "list": [1, {"a": []}],
    }

    await Sensors(tables).put(pipeline, "orders", data)

    assert await Sensors(tables).get(pipeline, "orders") == Sensor("orders", data)


@pytest.mark.parametrize("attributes", [{"data": {"rows": 1, "at": {"eu": [1]}}, "by": "x"}, {"rows": 1, "note": ""}])
async def test_a_sensor_is_removed_as_it_was_seen_and_one_that_is_gone_is_no_trouble(
    tables: Tables, attributes: Mapping[str, Value]
) -> None:
    pipeline = a_pipeline()
    await put_control(tables, pipeline, "SENSOR#orders", attributes)
    seen = await Sensors(tables).get(pipeline, "orders")
    assert seen is not None

    for _ in range(2):
        await Sensors(tables).remove(pipeline, seen)

    assert await Sensors(tables).get(pipeline, "orders") is None


async def test_a_sensor_that_says_something_else_by_now_is_not_removed(tables: Tables) -> None:
    pipeline, news = a_pipeline(), {"rows": 2}
    await Sensors(tables).put(pipeline, "orders", news)

    with pytest.raises(StaleWrite):
        await Sensors(tables).remove(pipeline, Sensor("orders", {"rows": 1}))

    assert await Sensors(tables).get(pipeline, "orders") == Sensor("orders", news)


async def test_a_sensor_that_is_written_while_it_is_removed_stays(tables: Tables) -> None:
    pipeline, seen, news = a_pipeline(), Sensor("orders", {"rows": 1}), {"rows": 2}
    await Sensors(tables).put(pipeline, "orders", seen.data)

    async def overtaken(*writes: Write) -> None:
        await Sensors(tables).put(pipeline, "orders", news)
        await tables.commit(*writes)

    between = cast("Tables", SimpleNamespace(get=tables.get, commit=overtaken))
    with pytest.raises(StaleWrite):
        await Sensors(between).remove(pipeline, seen)

    assert await Sensors(tables).get(pipeline, "orders") == Sensor("orders", news)


async def test_a_sensor_put_again_without_a_change_has_the_same_content(tables: Tables) -> None:
    pipeline, hashes = a_pipeline(), list[str]()
    for rate in (0.5, Decimal("0.50")):
        await Sensors(tables).put(pipeline, "orders", {"count": 3, "rate": rate})
        sensor = await Sensors(tables).get(pipeline, "orders")
        assert sensor is not None
        hashes.append(sensor.content_hash)

    assert hashes[0] == hashes[1]


async def test_rules_of_a_period_see_the_dashed_key_then_the_compact_one_then_the_plain_one(tables: Tables) -> None:
    pipeline = a_pipeline()
    for key in (
        "a#2026-03-03T07", "a#20260303T07", "a",
        "b#20260303T07", "b",
        "c", "c#2026-03-03", "c#2026-03-03T08",
        "d#2026-03-03",
    ):  # fmt: skip
        await Sensors(tables).put(pipeline, key, {"at": key})

    seen = await Sensors(tables).read(pipeline, ["a", "b", "c", "d", "e"], a_period("2026-03-03T07"))

    assert {name: sensor.key for name, sensor in seen.items()} == {
        "a": "a#2026-03-03T07",
        "b": "b#20260303T07",
        "c": "c",
    }


async def test_reading_no_sensors_is_allowed(tables: Tables) -> None:
    assert await Sensors(tables).read(a_pipeline(), [], a_period()) == {}


async def test_sensors_are_listed_by_the_beginning_of_their_key(tables: Tables) -> None:
    pipeline = a_pipeline()
    for key in ("orders", "orders#2026-03-03", "stock"):
        await Sensors(tables).put(pipeline, key, {})
    await put_control(tables, pipeline, "CONFIG", {"config": "{}"})

    every = [sensor.key async for sensor in Sensors(tables).list(pipeline)]
    orders = [sensor.key async for sensor in Sensors(tables).list(pipeline, "orders")]

    assert every == ["orders", "orders#2026-03-03", "stock"]
    assert orders == ["orders", "orders#2026-03-03"]


async def test_a_sensor_whose_time_is_over_is_not_seen(tables: Tables, clock: ManualClock) -> None:
    pipeline = a_pipeline()
    await put_control(tables, pipeline, "SENSOR#orders", {"count": 1, "ttl": int(clock.now().timestamp()) + 60})
    assert await Sensors(tables).get(pipeline, "orders") is not None

    clock.advance(timedelta(seconds=60))

    assert await Sensors(tables).get(pipeline, "orders") is None


@pytest.mark.parametrize(
    ("attributes", "data"),
    [
        ({"tags": frozenset({"b", "a"})}, {"tags": ["a", "b"]}),
        ({"sizes": frozenset({2, 1})}, {"sizes": [1, 2]}),
        ({"raw": b"\x00\xff"}, {"raw": "AP8="}),
        ({"data": "not a map", "count": 1}, {"data": "not a map", "count": 1}),
        ({"data": {"deep": [{"tags": frozenset({"x"})}]}}, {"deep": [{"tags": ["x"]}]}),
        ({}, {}),
    ],
)
def test_a_sensor_speaks_json_whatever_types_its_row_has(attributes: Row, data: Mapping[str, Json]) -> None:
    row = {"PK": "PIPELINE#p", "SK": "SENSOR#s", "cid": "x", **attributes}

    assert sensor_of(row) == Sensor("s", data)


def test_a_row_of_another_kind_is_not_a_sensor() -> None:
    assert sensor_of({"PK": "PIPELINE#p", "SK": "CONFIG"}) is None


# --- marks ------------------------------------------------------------------------------------------------------------


async def test_a_mark_is_put_once_however_many_try(tables: Tables, backend: str) -> None:
    pipeline, told = a_pipeline(), keys.told_mark_sk("SCHEDULE_MISSED", a_run().key)

    answers = await race(backend, *(Marks(tables).put_once(pipeline, told, {"by": n}, NOW) for n in range(5)))

    assert sorted(map(str, answers)) == ["False"] * 4 + ["True"]
    assert await Marks(tables).get(pipeline, told) == Mark({"by": answers.index(True)}, version=1)


async def test_a_mark_that_is_there_makes_its_commit_stale(tables: Tables) -> None:
    run = await Runs(tables).save(a_run())
    mark = keys.baseline_mark_sk(run.key)
    await Marks(tables).put_once(run.key.pipeline, mark, {}, NOW)

    with pytest.raises(StaleWrite):
        await Runs(tables).save(run, marks.once_write(run.key.pipeline, mark, {}, NOW))

    assert await Runs(tables).load(run.key) == run


async def test_a_mark_that_moves_does_not_go_back(tables: Tables) -> None:
    pipeline, signal = a_pipeline(), keys.signal_mark_sk("orders-done")
    await tables.commit(marks.move_write(pipeline, signal, None, {"hash": "a"}, NOW))
    seen = await Marks(tables).get(pipeline, signal)
    await tables.commit(marks.move_write(pipeline, signal, seen, {"hash": "b"}, NOW))

    with pytest.raises(StaleWrite):
        await tables.commit(marks.move_write(pipeline, signal, seen, {"hash": "c"}, NOW))

    assert await Marks(tables).get(pipeline, signal) == Mark({"hash": "b"}, version=2)


async def test_a_mark_past_its_time_is_forgotten_and_can_be_put_again(tables: Tables, clock: ManualClock) -> None:
    pipeline, told = a_pipeline(), keys.told_mark_sk("SCHEDULE_MISSED", a_run().key)
    await Marks(tables).put_once(pipeline, told, {}, clock.now())

    clock.advance(timedelta(days=400))

    assert await Marks(tables).get(pipeline, told) is None
    assert await Marks(tables).put_once(pipeline, told, {}, clock.now())


async def test_a_mark_is_no_sensor(tables: Tables) -> None:
    run = a_run()
    await Marks(tables).put_once(run.key.pipeline, keys.first_arrival_mark_sk(run.key), {}, NOW)

    assert [sensor async for sensor in Sensors(tables).list(run.key.pipeline)] == []


# --- producers are never hurt -----------------------------------------------------------------------------------------


async def test_a_row_of_a_producer_is_only_ever_written_alone(tables: Tables) -> None:
    commits: list[tuple[Write, ...]] = []

    async def recorded(*writes: Write) -> None:
        commits.append(writes)
        await tables.commit(*writes)

    recording = cast("Tables", SimpleNamespace(commit=recorded))
    pipeline = a_pipeline()
    await Sensors(recording).put(pipeline, "orders", {})
    await Pipelines(recording).put(pipeline, "{}")
    await Pipelines(recording).list_deployed(pipeline)
    await Pipelines(recording).remove(pipeline)

    # One write is a plain conditional write; only two or more are a transaction, which a producer could collide with.
    assert [(len(writes), writes[0].key.sk) for writes in commits] == [
        (1, "SENSOR#orders"),
        (1, "CONFIG"),
        (1, "CONFIG"),
        (1, "CONFIG"),
    ]
