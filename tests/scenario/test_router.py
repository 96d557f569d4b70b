"""What changed rows mean, and what they do not."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.fakes.forwarding_tables import ForwardingTables
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world
from worker.core.model import keys
from worker.core.model.values import Json
from worker.core.run.facts import Origin
from worker.core.run.state import State
from worker.engine.intake.resync import ROUTINE_MAX
from worker.runtime.progress import watched
from worker.store.repos.config_log import ConfigLog
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sensors import Sensors
from worker.store.table import Delete, Key, Put, Row, TableName
from worker.store.tail import Tail


async def put(world: World, sk: str, *, pk: str = "PIPELINE#orders", table: TableName = TableName.CONTROL) -> None:
    await world.tables.commit(Put(table, {"PK": pk, "SK": sk, "event": "success", "status": "done"}))


@pytest.mark.parametrize(
    ("table", "pk", "sk"),
    [
        (TableName.CONTROL, "PIPELINE#orders", "RERUN_REQUEST#stream"),
        (TableName.CONTROL, "PIPELINE#orders", "RERUN_REQUEST#stream#today"),
        (TableName.CONTROL, "PIPELINE#orders", "CANCEL_REQUEST#2026-03-03"),
        (TableName.JOBLOG, "PIPELINE#orders", "JOB#stream#2026-03-03"),
        (TableName.JOBLOG, "PIPELINE#orders", "JOB#stream#today#1773143999000"),
        (TableName.JOBLOG, "orders", "JOB#stream#2026-03-03#1773143999000"),
        (TableName.CONTROL, "orders", "SENSOR#ready"),
        (TableName.CONTROL, "MARKER#orders", "2026-03-03"),
    ],
)
def test_a_row_that_can_never_be_understood_goes_to_the_dead_letters(table: TableName, pk: str, sk: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy()
            await put(world, sk, pk=pk, table=table)
            await world.ready()
            await world.settle()

        [letter] = world.dead_letters
        assert sk in letter
        assert await world.state() is State.EVALUATING

    scenario()


@pytest.mark.parametrize("sk", ["TRIGGER#stream#2026-03-01", "MARK#SIGNAL#ready", "SLA#stream#2026-03-01", "LATE#x"])
def test_rows_that_ask_for_nothing_are_passed_over(sk: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy()
            await put(world, sk)
            await world.settle()

        assert world.dead_letters == []
        assert await world.events() == []

    scenario()


@on_virtual_time
async def test_a_sensor_that_was_taken_back_before_it_was_handled_starts_nothing() -> None:
    world = await a_world()
    await world.deploy()
    await world.ready()
    await world.tables.commit(Delete(TableName.CONTROL, Key(keys.pipeline_pk(ORDERS), keys.sensor_sk("ready"))))
    async with world.worker():
        await world.settle()

    assert await world.run() is None


@on_virtual_time
async def test_a_sensor_that_is_removed_begins_nothing_and_a_rule_that_wants_it_missing_sees_it_at_its_next_look() -> (
    None
):
    world = await a_world()
    wants_it_missing = CONFIG.replace(
        "{key: count, check: gte, field: rows, value: 100}", "{key: count, check: missing}"
    )
    async with world.worker():
        await world.deploy(wants_it_missing)
        await world.count(100)
        await world.ready()
        await world.settle()
        for sensor in [each async for each in Sensors(world.tables).list(ORDERS)]:
            await Sensors(world.tables).remove(ORDERS, sensor)
        await world.settle()
        at_once = await world.state()
        await world.wait(minutes=5)

    assert (at_once, await world.state()) == (State.EVALUATING, State.POLLING)
    assert world.dead_letters == []
    assert len(world.runner.running) == 1


@on_virtual_time
async def test_a_sensor_that_moved_on_to_the_next_day_before_it_was_handled_starts_both_days() -> None:
    world = await a_world()
    await world.deploy()
    await world.ready("2026-03-02")
    await world.ready("2026-03-03")
    async with world.worker():
        await world.settle()

    assert await world.state("2026-03-02") is State.EVALUATING
    assert await world.state("2026-03-03") is State.EVALUATING


@on_virtual_time
async def test_a_sensor_that_was_taken_back_for_the_same_day_decides_as_it_is_now() -> None:
    world = await a_world()
    await world.deploy()
    await world.ready()
    await world.write("ready", status="not yet", date=DAY)
    async with world.worker():
        await world.settle()

    assert await world.run() is None


@pytest.mark.parametrize(
    ("key", "match", "starts"),
    [
        ("ready", "exact", True),
        (f"ready#{DAY}", "exact", True),
        ("ready#20260303", "exact", True),
        ("ready-debug", "exact", False),
        ("ready#debug", "exact", False),
        ("ready-debug", "prefix", True),
    ],
)
def test_a_trigger_is_named_exactly_unless_a_prefix_is_asked_for(key: str, match: str, starts: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy(CONFIG.replace("{key: ready,", f"{{key: ready, match: {match},"))
            await world.write(key, status="done")
            await world.settle()

        assert (await world.run() is not None) is starts

    scenario()


@on_virtual_time
async def test_a_signal_without_a_date_is_for_the_day_it_came_and_not_for_the_days_it_stays() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy()
        await world.write("ready", status="done")
        await world.settle()
        await world.wait(hours=24)
        await worker.parts.resync.run(ORDERS)
        await world.settle()
        stayed = await world.run("2026-03-04")
        await world.write("ready", status="done", batch=2)
        await world.settle()

    assert await world.run("2026-03-03") is not None
    assert stayed is None
    assert await world.run("2026-03-04") is not None


@on_virtual_time
async def test_a_signal_without_a_date_is_for_the_day_its_record_names_though_a_look_came_first_on_the_next() -> None:
    world = await a_world()
    async with world.worker("w0"):
        await world.deploy()
        await world.settle()
    async with world.worker("w1", reads_feed=False) as worker:
        await world.wait(hours=11, minutes=59)
        await world.write("ready", status="done")
        await world.wait(minutes=5)
        await worker.parts.resync.run(ORDERS)
    async with world.worker("w2") as worker:
        await world.settle()
        begun = await world.run("2026-03-03")
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert begun is not None
    assert await world.run("2026-03-03") == begun  # consumed: looking again changes nothing


@on_virtual_time
async def test_a_signal_without_a_date_whose_record_is_lost_is_for_the_day_on_which_it_was_found() -> None:
    world = await a_world()
    async with world.worker("w1", reads_feed=False) as worker:
        await world.deploy()
        await world.write("ready", status="done")
        await world.wait(hours=13)
        for _ in range(2):
            await worker.parts.resync.run(ORDERS)
            await world.wait(hours=24)

    assert [day for day in range(3, 7) if await world.run(f"2026-03-0{day}")] == [4]


@on_virtual_time
async def test_a_signal_without_a_date_means_every_day_again_where_that_is_wanted() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(CONFIG.replace("{key: ready,", "{key: ready, undated: daily,"))
        await world.write("ready", status="done")
        await world.wait(hours=24)
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert await world.run("2026-03-04") is not None


@on_virtual_time
async def test_a_signal_for_a_period_older_than_what_is_kept_is_refused_with_that_reason() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy()
        await world.ready("2024-12-01")
        await world.settle()

    assert await world.run("2024-12-01") is None
    assert [facts["sensor"] for event, facts in worker.log if event == "signal.refused"] == ["ready"]


@on_virtual_time
async def test_a_configuration_that_cannot_be_understood_is_told_once_and_the_last_good_one_stays() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.settle()
        await Pipelines(world.tables).put(ORDERS, "pipeline: [broken")
        await world.settle()
        world.read_to[TableName.CONTROL] = 0
        await world.count(100)
        await world.ready()
        await world.settle()

    assert (await world.events())[0] == "CONFIG_REJECTED"
    assert (await world.events()).count("CONFIG_REJECTED") == 1
    assert await world.state() is State.POLLING
    log, _ = await ConfigLog(world.tables).read(Tail.starting(world.clock.now() - timedelta(days=1)), world.clock.now())
    assert [entry.change for entry in log][-1] == "rejected"


@pytest.mark.parametrize("text", [CONFIG, CONFIG + "\n# mended\n"], ids=["as it was", "another"])
def test_people_who_heard_of_a_broken_configuration_hear_once_that_it_is_understood_again(text: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.deploy()
            await world.settle()
            assert "CONFIG_ACCEPTED" not in await world.events(), "nothing was wrong before"
            for config in ("pipeline: [broken", text, text):
                await Pipelines(world.tables).put(ORDERS, config)
                await world.settle()
            world.read_to[TableName.CONTROL] = 0
            await world.settle()

        assert [each for each in await world.events() if each.startswith("CONFIG_")] == [
            "CONFIG_REJECTED",
            "CONFIG_ACCEPTED",
        ]

    scenario()


@on_virtual_time
async def test_a_configuration_deployed_by_others_appears_in_lists_and_starts_what_was_waiting_for_it() -> None:
    world = await a_world()
    async with world.worker():
        await world.ready()
        row = {"PK": keys.pipeline_pk(ORDERS), "SK": keys.CONFIG, "config": CONFIG}
        await world.tables.commit(Put(TableName.CONTROL, row))
        await world.settle()

    assert [stored.pipeline async for stored in Pipelines(world.tables).list()] == [ORDERS]
    assert await world.state() is State.EVALUATING


@on_virtual_time
async def test_one_broken_configuration_stops_no_other_pipeline() -> None:
    world = await a_world()
    async with world.worker():
        row = {"PK": "PIPELINE#broken", "SK": keys.CONFIG, "config": "]["}
        await world.tables.commit(Put(TableName.CONTROL, row))
        await world.deploy()
        await world.ready()
        await world.settle()

    assert await world.state() is State.EVALUATING
    assert world.dead_letters == []


@on_virtual_time
async def test_a_resync_finds_signals_that_were_missed_and_starts_each_once() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy()
        await world.settle()
        await world.write("ready#2026-03-02", status="done")
        await world.write("ready#20260303", status="done")
        await world.write("ready#2026-02-20", status="done")
        world.read_to[TableName.CONTROL] = await world.tables.last_position()
        for _ in range(2):
            await worker.parts.resync.run(ORDERS)
            await world.settle()

    assert await world.run("2026-03-02") is not None
    assert await world.run("2026-03-03") is not None
    assert await world.run("2026-02-20") is None
    assert await world.events() == ["TRIGGER_RECOVERED", "TRIGGER_RECOVERED"]


NEXT_DAY = "2026-03-04"
BY_PREFIX = CONFIG.replace("key: ready,", "key: ready, match: prefix,")


async def write_unnoticed(world: World, names: Iterable[str], **data: Json) -> None:
    """Write sensors whose records nobody reads."""
    for name in names:
        await Sensors(world.tables).put(ORDERS, name, data)
    world.read_to[TableName.CONTROL] = await world.tables.last_position()


@on_virtual_time
async def test_a_resync_finds_a_signal_of_a_prefix_among_thousands_of_old_ones() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(BY_PREFIX)
        await world.settle()
        await write_unnoticed(world, (f"ready-{number:04d}#2026-02-20" for number in range(1, 2_000)), status="done")
        await write_unnoticed(world, [f"ready-0000#{DAY}", f"ready-1000#{NEXT_DAY}"], status="done")
        await worker.parts.resync.run(ORDERS, may_begin=lambda _: True)
        await world.settle()

    assert await world.run(DAY) is not None
    assert await world.run(NEXT_DAY) is not None
    assert await world.run("2026-02-20") is None
    assert set(await world.events()) == {"TRIGGER_RECOVERED"}


class SlowTables(ForwardingTables):
    """A store behind a network: each read of a row takes ten milliseconds."""

    clock: VirtualClock

    async def get(self, table: TableName, key: Key) -> Row | None:
        await self.clock.sleep(0.01)
        return await super().get(table, key)

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        await self.clock.sleep(0.01)
        return await super().get_many(table, keys)


@on_virtual_time
async def test_a_resync_of_very_many_sensors_shows_that_it_makes_progress() -> None:
    world, progress = await a_world(SlowTables), list[float]()
    tables = world.seen_by_workers
    assert isinstance(tables, SlowTables)
    tables.clock = world.clock
    async with world.worker(reads_feed=False) as worker:
        await world.deploy(BY_PREFIX)
        await write_unnoticed(world, (f"ready-{number:04d}" for number in range(2_000)), status="no")
        began = world.clock.monotonic()
        with watched(lambda: progress.append(world.clock.monotonic() - began)):
            await worker.parts.resync.run(ORDERS)

    assert max(later - before for before, later in pairwise([0, *progress])) < 1
    assert progress[-1] < 10  # in turn, more than 40 s


@on_virtual_time
async def test_a_routine_check_handles_the_latest_sensors_of_a_prefix_and_says_once_a_day_that_there_are_more() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(BY_PREFIX)
        await world.settle()
        await write_unnoticed(world, (f"ready-{number:04d}#2026-03-01" for number in range(ROUTINE_MAX)), status="no")
        await write_unnoticed(world, [f"ready-0500#{DAY}"], status="done")
        for _ in range(2):
            await worker.parts.resync.run(ORDERS, may_begin=lambda _: True)
            await world.settle()

    assert await world.run(DAY) is not None
    [told] = [each.event for each in await world.stored_events() if each.event.type == "RESYNC_INCOMPLETE"]
    assert (told.detail["sensorKey"], told.detail["handled"]) == ("ready", ROUTINE_MAX)


@on_virtual_time
async def test_what_was_written_before_our_first_start_leads_to_no_rerun() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy()
        await world.settle()
        row = {
            "PK": keys.pipeline_pk(ORDERS),
            "SK": f"RERUN_REQUEST#stream#{DAY}",
            "requestedAt": "2026-01-01T00:00:00Z",
        }
        await world.tables.commit(Put(TableName.CONTROL, row))
        world.read_to[TableName.CONTROL] = await world.tables.last_position()
        await worker.parts.resync.run(ORDERS, Origin.SENSOR)
        await world.settle()

    assert await world.run() is None


@on_virtual_time
async def test_a_run_of_the_reference_is_respected_while_it_lives_and_closed_when_it_is_over() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        ttl = int(world.clock.now().timestamp()) + 3600
        row = {"PK": keys.pipeline_pk(ORDERS), "SK": f"TRIGGER#stream#{DAY}", "status": "RUNNING", "ttl": ttl}
        await world.tables.commit(Put(TableName.CONTROL, row))
        await world.ready()
        await world.settle()
        respected = await world.events()
        await world.wait(hours=1)
        await world.ready(note="again")
        await world.settle()

    assert respected == []
    assert await world.events() == ["SFN_TIMEOUT"]
    assert await world.state() is State.FAILED_FINAL


@on_virtual_time
async def test_a_completed_run_of_the_reference_gets_late_data_by_time_and_is_rerun() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.count(100)
        millis = keys.millis(world.clock.now() - timedelta(hours=1))
        partition = keys.pipeline_pk(ORDERS)
        log = {"PK": partition, "SK": f"JOB#stream#{DAY}#{millis}", "event": "success", "by": "interlock"}
        await world.tables.commit(Put(TableName.JOBLOG, log))
        row = {"PK": partition, "SK": f"TRIGGER#stream#{DAY}", "status": "COMPLETED"}
        await world.tables.commit(Put(TableName.CONTROL, row))
        await world.ready()
        await world.settle()

    assert (await world.events())[:2] == ["LATE_DATA_ARRIVAL", "RERUN_ACCEPTED"]
    assert await world.state() is State.POLLING


BY_FIVE = CONFIG.replace("value: done}", 'value: done, deadline: "05:00"}')  # of the day after


@on_virtual_time
async def test_a_signal_written_after_its_deadline_begins_nothing_and_a_person_still_can() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(BY_FIVE)
        await world.settle()
        await world.count(100, "2026-03-02")
        for note in ("late", "later"):
            await world.ready("2026-03-02", note=note)
            await world.settle()
        given_up, told = await world.state("2026-03-02"), await world.events()
        await world.ask_rerun("2026-03-02")
        await world.settle()

    assert given_up is State.FAILED_FINAL
    assert told == ["SENSOR_DEADLINE_EXPIRED", "LATE_DATA_ARRIVAL", "LATE_DATA_ARRIVAL"]
    assert await world.state("2026-03-02") is State.POLLING


@on_virtual_time
async def test_a_signal_written_before_its_deadline_begins_its_run() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(BY_FIVE)
        await world.ready("2026-03-03")
        await world.settle()

    assert await world.state("2026-03-03") is State.EVALUATING


@on_virtual_time
async def test_a_missed_signal_is_made_up_for_although_its_deadline_is_over_by_now() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(BY_FIVE)
        await world.settle()
        await world.write("ready#2026-03-02", status="done")
        world.read_to[TableName.CONTROL] = await world.tables.last_position()
        await worker.parts.resync.run(ORDERS)
        await world.settle()

    assert await world.state("2026-03-02") is State.EVALUATING
