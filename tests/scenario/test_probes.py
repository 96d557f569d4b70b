"""Probes of waiting runs, from the file to the start of the job, on virtual time."""

from datetime import timedelta

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.counting_tables import CountingTables
from tests.support.worlds.engine import DAY, ORDERS, World, a_world, run_key
from worker.core.model.keys import RowKind
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown, Trait
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.store.repos.probes.traits import ProbeTraits

THREE = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 3h, interval: 1h}
probes:
  - {key: rates, type: http, config: {url: "https://rates.example/${DATE}"}, every: 5m, ttl: 1h}
  - {key: part, type: glue-partition, config: {database: d, table: sales, values: ["${DATE}"]}, every: 5m, ttl: 1h}
  - {key: feed, type: s3, config: {bucket: lake, prefix: "in/${DATE}/"}, every: 1m, ttl: 1h}
validation:
  rules:
    - {key: rates, check: passes}
    - {key: part, check: equals, field: exists, value: true}
    - {key: feed, check: gte, field: count, value: 3}
job: {type: command, config: {command: "true"}}
"""
RATES = f"https://rates.example/{DAY}"
READY: dict[str, Json] = {RATES: {"status": "PASS"}, "sales": {"exists": True}, "lake": {"count": 3}}

ONE = """
pipeline: {id: orders}
schedule:
  trigger: {key: ready, check: equals, field: status, value: done}
  evaluation: {window: 3h, interval: 30m}
probes:
  - {key: rates, type: http, config: {url: "https://rates.example/${DATE}"}, every: 5m, ttl: 12m, run: RUN}
validation: {rules: [{key: rates, check: passes}]}
job: {type: command, config: {command: "true"}}
"""


def one(run: str = "while-waiting") -> str:
    return ONE.replace("RUN", run)


async def trait(world: World, key: str = "rates") -> Trait | None:
    return await ProbeTraits(world.tables).get(ORDERS, key, Period.parse(DAY))


async def reason(world: World) -> str:
    run = await world.run()
    assert isinstance(run, Run)
    return run.reason


@on_virtual_time
async def test_a_run_starts_within_a_second_of_the_last_of_three_probes_that_changes() -> None:
    world = await a_world()
    world.probes.answers = {**READY, "lake": {"count": 2}}
    async with world.worker():
        await world.deploy(THREE)
        await world.ready()
        await world.wait(minutes=10)
        assert await world.state() is State.EVALUATING
        asked = world.probes.count("lake")

        world.probes.answers["lake"] = {"count": 3}
        while world.probes.count("lake") == asked:
            await world.wait(seconds=1)
        await world.wait(seconds=1)

        assert await world.state() is State.POLLING


@on_virtual_time
async def test_the_probes_of_a_run_are_sent_at_once_and_in_parallel() -> None:
    world = await a_world()
    world.probes.answers, world.probes.takes_s = dict(READY), 0.5
    async with world.worker():
        await world.deploy(THREE)
        await world.ready()
        await world.wait(seconds=2)

        assert world.probes.most_under_way == 3
        assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_waiting_run_sends_no_more_than_its_interval_allows_and_writes_nothing() -> None:
    world = await a_world(CountingTables)
    world.probes.answers = {**READY, "lake": {"count": 2}}
    async with world.worker():
        await world.deploy(THREE)
        await world.ready()
        await world.wait(minutes=1, seconds=30)
        tables = world.seen_by_workers
        assert isinstance(tables, CountingTables)
        before, sent = tables.rows["written"], len(world.probes.asked)

        await world.wait(minutes=10)

        assert tables.rows["written"] == before
        assert len(world.probes.asked) - sent <= 10 + 2 + 2 + 1


@on_virtual_time
async def test_no_probe_is_sent_after_the_run_has_stopped_waiting() -> None:
    world = await a_world()
    world.probes.answers = dict(READY)
    async with world.worker():
        await world.deploy(THREE)
        await world.ready()
        await world.settle()
        asked = len(world.probes.asked)

        await world.wait(hours=1)

        assert asked == 3
        assert len(world.probes.asked) == asked


@on_virtual_time
async def test_a_stale_result_blocks_with_that_reason_and_the_failure_of_its_requests() -> None:
    world = await a_world()
    config = one().replace("rules: [", "rules: [{key: count, check: gte, field: rows, value: 1}, ")
    world.probes.answers = {RATES: {"status": "PASS"}}
    async with world.worker():
        await world.deploy(config)
        await world.ready()
        await world.wait(minutes=1)
        world.probes.answers = {RATES: ProbeUnknown(kind="http-503", reason="the response was 503")}
        await world.wait(minutes=6)
        assert (kept := await trait(world)) is not None
        assert kept.is_valid(world.clock.now())  # an unknown response leaves the last result as it was

        await world.wait(minutes=30)
        await world.count(1)
        await world.wait(hours=4)

    assert await world.state() is State.FAILED_FINAL
    said = await reason(world)
    assert "probe rates has no current result: stale since 2h" in said
    assert "the response was 503" in said


@on_virtual_time
async def test_people_hear_once_of_a_probe_that_keeps_failing_without_a_result() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(one())
        await world.ready()
        await world.wait(minutes=9)
        assert "PROBE_FAILED" not in await world.events()
        await world.wait(hours=2)

    [told] = [stored.event for stored in await world.stored_events() if stored.event.type == "PROBE_FAILED"]
    assert told.detail["probe"] == "rates"
    assert "503" in told.message


@on_virtual_time
async def test_a_probe_that_recovers_starts_the_run_although_its_content_is_the_same() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "FAIL", "reason": "42 rates are missing"}}
    async with world.worker():
        await world.deploy(one())
        await world.ready()
        await world.settle()
        world.probes.answers = {}
        await world.wait(minutes=20)
        world.probes.answers = {RATES: {"status": "PASS"}}
        await world.wait(minutes=5, seconds=5)

        assert await world.state() is State.POLLING


@on_virtual_time
async def test_the_reason_of_an_evaluator_is_the_reason_of_the_run() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "FAIL", "reason": "42 rates are missing"}}
    async with world.worker():
        await world.deploy(one())
        await world.ready()
        await world.wait(hours=5)

    assert 'rates.status is "FAIL": "42 rates are missing"' in await reason(world)


@on_virtual_time
async def test_before_start_catches_a_change_between_evaluation_and_start() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "PASS"}}

    def withdraw(_: str) -> None:
        if world.probes.count(RATES) == 2:  # the first request passed, and the evaluation held
            world.probes.answers = {RATES: {"status": "FAIL", "reason": "withdrawn"}}

    world.probes.before_answer = withdraw
    async with world.worker():
        await world.deploy(one("before-start"))
        await world.ready()
        await world.settle()

        assert world.probes.count(RATES) == 2
        assert await world.state() is State.EVALUATING
        assert world.runner.starts == []

        world.probes.answers = {RATES: {"status": "PASS"}}
        await world.wait(minutes=6)
        assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_start_that_no_response_confirms_waits_for_one() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "PASS"}}

    def break_down(_: str) -> None:
        if world.probes.count(RATES) == 2:
            world.probes.answers = {}

    world.probes.before_answer = break_down
    async with world.worker():
        await world.deploy(one("before-start"))
        await world.ready()
        await world.settle()
        for _ in range(5):
            await world.ready(round=world.probes.count(RATES))  # other changes do not multiply the requests
            await world.wait(seconds=2)
        assert await world.state() is State.EVALUATING
        assert world.probes.count(RATES) <= 3

        world.probes.answers = {RATES: {"status": "PASS"}}
        await world.wait(minutes=6)
        assert await world.state() is State.POLLING


@on_virtual_time
async def test_after_the_clock_was_set_back_an_old_result_starts_nothing_and_a_new_one_does() -> None:
    """The result passed, then requests fail; by the clock of now it would be valid for another two hours."""
    world = await a_world()
    config = one("before-start").replace("rules: [", "rules: [{key: count, check: gte, field: rows, value: 1}, ")
    world.probes.answers = {RATES: {"status": "PASS"}}
    async with world.worker():
        await world.deploy(config)
        await world.ready()
        await world.wait(minutes=2)
        world.probes.answers = {}
        world.clock.step(-timedelta(hours=2))
        await world.count(1)
        await world.wait(minutes=14)
        assert await world.state() is State.EVALUATING
        assert world.probes.count(RATES) <= 1 + 16 / 5 + 1

        world.probes.answers = {RATES: {"status": "PASS"}}
        await world.wait(minutes=5, seconds=5)
        assert await world.state() is State.POLLING


@pytest.mark.parametrize("is_dead", [False, True])
@on_virtual_time
async def test_two_workers_send_one_request_per_interval(is_dead: bool) -> None:
    """Both hold a waiting run of the pipeline, and its probe has one result for all periods."""
    world = await a_world()
    config = one().replace("/${DATE}", "/latest")
    latest = "https://rates.example/latest"
    world.probes.answers = {latest: {"status": "FAIL"}}
    async with world.worker("w1") as first, world.worker("w2", reads_feed=False) as second:
        await world.deploy(config)
        await world.ready()
        await world.settle()
        await world.write("ready", status="done", date="2026-03-02")
        await world.settle()
        await second.engine.adopt(RowKind.TRIGGER, run_key())
        world.group[second.standing.session] = True
        await world.wait(minutes=1)
        sent = world.probes.count(latest)
        await world.wait(minutes=20)
        assert world.probes.count(latest) - sent == 4
        if not is_dead:
            return
        first.standing.is_alive = world.group[first.standing.session] = False
        await world.adopt_orphans(second)
        await world.wait(minutes=6)
        sent = world.probes.count(latest)
        await world.wait(minutes=20)
        assert world.probes.count(latest) - sent == 4


@on_virtual_time
async def test_a_result_is_shared_by_the_runs_of_a_pipeline_that_ask_the_same() -> None:
    world = await a_world()
    latest = "https://rates.example/latest"
    world.probes.answers = {latest: {"status": "FAIL"}}
    async with world.worker():
        await world.deploy(one().replace("/${DATE}", "/latest"))
        for day in range(1, 4):
            await world.write("ready", status="done", date=f"2026-03-0{day}")
        await world.wait(minutes=1)
        assert world.probes.count(latest) == 1
        world.probes.answers = {latest: {"status": "PASS"}}
        await world.wait(minutes=5)

        states = {await world.state(f"2026-03-0{day}") for day in range(1, 4)}
        assert states == {State.POLLING}
        found = await ProbeTraits(world.tables).get(ORDERS, "rates", None)
        assert found is not None
        assert found.prober == ""  # nobody waits for it any more


@on_virtual_time
async def test_many_runs_that_share_a_result_are_all_woken_when_it_changes() -> None:
    world = await a_world()
    latest = "https://rates.example/latest"
    days = [f"2026-{month:02d}-{day:02d}" for month in (1, 2) for day in range(1, 28)]
    world.probes.answers = {latest: {"status": "FAIL"}}
    async with world.worker():
        await world.deploy(one().replace("/${DATE}", "/latest"))
        for day in days:
            await world.write("ready", status="done", date=day)
        await world.wait(minutes=1)
        world.probes.answers = {latest: {"status": "PASS"}}
        await world.wait(minutes=5)

        assert {await world.state(day) for day in days} == {State.POLLING}
        assert world.probes.count(latest) == 2


@on_virtual_time
async def test_a_run_that_begins_to_wait_uses_the_last_result_and_waits_for_the_interval_on_another_worker_too() -> (
    None
):
    world = await a_world()
    latest = "https://rates.example/latest"
    config = one().replace("/${DATE}", "/latest")
    world.probes.answers = {latest: {"status": "PASS"}}
    async with world.worker("w1"):
        await world.deploy(config)
        await world.ready()
        await world.wait(minutes=1)
        assert await world.state() is State.POLLING
        await world.write("ready", status="done", date="2026-03-02")
        await world.wait(minutes=1)
        assert await world.state("2026-03-02") is State.POLLING
        assert world.probes.count(latest) == 1
    async with world.worker("w2"):
        await world.deploy(config.replace("check: passes", "check: equals, field: rows, value: 1"))
        await world.write("ready", status="done", date="2026-03-01")
        await world.wait(minutes=2)
        assert await world.state("2026-03-01") is State.EVALUATING
        assert world.probes.count(latest) == 1
        await world.wait(minutes=2)
        assert world.probes.count(latest) == 2


@on_virtual_time
async def test_a_crash_while_a_run_waits_loses_no_probe() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "FAIL"}}
    async with world.worker("w1"):
        await world.deploy(one())
        await world.ready()
        await world.wait(minutes=1)
    world.probes.answers = {RATES: {"status": "PASS"}}

    async with world.worker("w2") as second:
        await world.adopt_orphans(second)
        await world.wait(seconds=5)

        assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_result_that_expires_while_the_job_runs_is_no_late_data() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "PASS"}}
    async with world.worker():
        await world.deploy(one())
        await world.ready()
        await world.settle()
        await world.wait(minutes=40)
        world.runner.finish()
        await world.wait(minutes=2)

        assert await world.state() is State.COMPLETED
        assert "LATE_DATA_ARRIVAL" not in await world.events()


@on_virtual_time
async def test_a_dry_run_waits_for_probes_too() -> None:
    world = await a_world()
    world.probes.answers = {RATES: {"status": "FAIL"}}
    async with world.worker():
        await world.deploy(one() + "dryRun: true\n")
        await world.ready()
        await world.wait(minutes=1)
        world.probes.answers = {RATES: {"status": "PASS"}}
        await world.wait(minutes=5, seconds=5)

        assert "DRY_RUN_WOULD_TRIGGER" in await world.events()
        asked = len(world.probes.asked)
        await world.wait(hours=1)
        assert len(world.probes.asked) == asked
