"""Deadlines: warned of, judged by what really happened, once."""

import asyncio
from datetime import UTC, datetime, timedelta

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, a_world, run_key
from worker.core.model import keys
from worker.core.model.deadlines import SlaTimes
from worker.core.model.events import EventType
from worker.core.run.state import State
from worker.core.sla.state import Verdict
from worker.core.sla.watch import RunExpected
from worker.jobs.runner import Succeeded
from worker.store.table import Delete, Key, Put, TableName

# The deadline of 3 March is 14:00 that day, the warning half an hour before.
ABSOLUTE = CONFIG + 'sla: {deadline: "14:00", expectedDuration: 30m, dayOffset: 0}\n'
RELATIVE = CONFIG + "sla: {maxDuration: 1h, expectedDuration: 20m}\n"
WARNED_AT = datetime(2026, 3, 3, 13, 30, tzinfo=UTC)


@on_virtual_time
async def test_a_run_that_is_late_is_warned_of_and_then_breached_at_its_instants() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ABSOLUTE)
        await world.ready()
        await world.wait(hours=2, minutes=1)

    told = [each.event for each in await world.stored_events() if each.event.type.startswith("SLA")]
    assert [(event.type, event.at - WARNED_AT) for event in told] == [
        ("SLA_WARNING", timedelta(0)),
        ("SLA_BREACH", timedelta(minutes=30)),
    ]
    watch = await world.watch()
    assert watch is not None
    assert watch.verdict is Verdict.BREACHED


@on_virtual_time
async def test_a_success_in_time_is_met_in_the_same_commit_and_nothing_is_said_after_it() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ABSOLUTE)
        await world.count(100)
        await world.ready()
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        versions = {each.event.type: each.event.detail["version"] for each in await world.stored_events()}
        await world.wait(hours=4)

    assert (await world.events())[-2:] == ["JOB_COMPLETED", "SLA_MET"]
    assert versions["SLA_MET"] == versions["JOB_COMPLETED"]


@on_virtual_time
async def test_a_run_whose_version_is_gone_does_not_silence_its_breach() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.deploy(ABSOLUTE)
        await world.count(100)
        await world.ready()
        await world.settle()
    run = await world.run()
    assert run is not None
    version = Key(keys.pipeline_pk(ORDERS), keys.config_version_sk(run.config_hash))
    await world.tables.commit(Delete(TableName.CONTROL, version))
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(hours=2, minutes=1)

    told = [event for event in await world.events() if event in {"INFRA_FAILURE", "SLA_WARNING", "SLA_BREACH"}]
    assert told == ["INFRA_FAILURE", "SLA_WARNING", "SLA_BREACH"]


@on_virtual_time
async def test_a_failed_run_does_not_silence_its_breach() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ABSOLUTE.replace("maxRetries: 1", "maxRetries: 0"))
        await world.count(100)
        await world.ready()
        await world.settle()
        world.runner.fail()
        await world.wait(hours=3)

    assert (await world.events())[-3:] == ["RETRY_EXHAUSTED", "SLA_WARNING", "SLA_BREACH"]


@on_virtual_time
async def test_a_job_that_ended_between_two_polls_is_seen_before_its_breach_is_declared() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(
            ABSOLUTE.replace("maxRetries: 1", "pollIntervalSeconds: 3600\n  jobPollWindowSeconds: 14400")
        )
        await world.count(100)
        await world.ready()
        await world.wait(minutes=100)
        world.runner.finish(Succeeded(world.clock.now()))
        await world.wait(minutes=21)

    assert (await world.events())[-2:] == ["JOB_COMPLETED", "SLA_MET"]


@on_virtual_time
async def test_a_success_that_came_after_the_deadline_is_a_breach_though_nobody_had_looked() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ABSOLUTE)
        await world.count(100)
        await world.ready()
        await world.settle()
    # Nobody is there when the deadline passes; the job ends after it.
    await world.wait(hours=3)
    world.runner.finish(Succeeded(world.clock.now() - timedelta(minutes=30)))
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(minutes=2)

    assert (await world.events())[-2:] == ["JOB_COMPLETED", "SLA_BREACH"]


@on_virtual_time
async def test_a_target_that_does_not_answer_delays_the_breach_by_ten_seconds_at_most() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ABSOLUTE.replace("maxRetries: 1", "jobPollWindowSeconds: 14400"))
        await world.count(100)
        await world.ready()
        await world.settle()
        world.runner.hangs = asyncio.Event()
        await world.wait(hours=2, seconds=11)

    breach = (await world.stored_events())[-1].event
    assert breach.type == "SLA_BREACH"
    assert breach.at - WARNED_AT <= timedelta(minutes=30, seconds=10)


@on_virtual_time
async def test_a_relative_deadline_counts_from_the_first_signal_and_not_from_later_ones() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(RELATIVE)
        await world.ready()
        await world.wait(minutes=30)
        await world.ready(note="again")
        await world.wait(minutes=31)

    told = [each.event for each in await world.stored_events() if "SLA" in each.event.type]
    assert [event.type for event in told] == ["RELATIVE_SLA_WARNING", "RELATIVE_SLA_BREACH"]
    assert told[1].at - told[0].at == timedelta(minutes=20)


@on_virtual_time
async def test_a_waived_deadline_is_told_and_then_silent() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(ABSOLUTE)
        await world.ready()
        await world.settle()
        await world.ask_cancel(waive=True)
        await world.wait(hours=3)

    assert await world.events() == ["RUN_CANCELLED", "SLA_WAIVED"]


@on_virtual_time
async def test_a_deadline_whose_worker_died_is_judged_by_whoever_adopts_it() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.deploy(ABSOLUTE)
        await world.ready()
        await world.settle()
    await world.wait(hours=3)
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(seconds=10)

    assert "SLA_BREACH" in await world.events()
    assert "SLA_WARNING" not in await world.events()


@on_virtual_time
async def test_a_run_that_never_begins_breaches_the_deadline_that_was_expected_of_it() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(ABSOLUTE)
        await world.settle()
        version = await worker.parts.configs.current(run_key().pipeline)
        assert version is not None
        times = SlaTimes(WARNED_AT, WARNED_AT + timedelta(minutes=30))
        expected = RunExpected(times=times, config_hash=version.config_hash)
        await worker.parts.watches.handle(run_key(), expected)
        await world.wait(hours=3)

    stored = await world.stored_events()
    assert [each.event.type for each in stored] == [EventType.SLA_WARNING, EventType.SLA_BREACH]
    assert stored[0].event.detail["status"] == "not started"
    assert await world.run() is None


@on_virtual_time
async def test_a_new_configuration_moves_the_deadlines_of_runs_that_do_not_exist_yet_and_no_others() -> None:
    world = await a_world()
    async with world.worker() as worker:
        await world.deploy(ABSOLUTE)
        await world.ready()
        await world.settle()
        version = await worker.parts.configs.current(run_key().pipeline)
        assert version is not None
        times = SlaTimes(WARNED_AT + timedelta(days=1), WARNED_AT + timedelta(days=1, minutes=30))
        tomorrow = run_key("2026-03-04")
        await worker.parts.watches.handle(tomorrow, RunExpected(times=times, config_hash=version.config_hash))

        await world.deploy(ABSOLUTE.replace("14:00", "18:00"))
        await world.settle()

    moved, kept = await world.watch("2026-03-04"), await world.watch(DAY)
    assert moved is not None
    assert kept is not None
    assert moved.breach_at == datetime(2026, 3, 4, 18, tzinfo=UTC)
    assert kept.breach_at == datetime(2026, 3, 3, 14, tzinfo=UTC)
    assert await world.state() is not State.COMPLETED


@on_virtual_time
async def test_a_run_that_another_system_completed_is_not_called_late_without_a_sign_of_it() -> None:
    for log_at, verdict in ((None, Verdict.MET), ("12:30", Verdict.MET), ("14:30", Verdict.BREACHED)):
        world = await a_world()
        async with world.worker() as worker:
            await world.deploy(ABSOLUTE)
            await world.settle()
            version = await worker.parts.configs.current(ORDERS)
            assert version is not None
            times = SlaTimes(WARNED_AT, WARNED_AT + timedelta(minutes=30))
            await worker.parts.watches.handle(run_key(), RunExpected(times=times, config_hash=version.config_hash))
            partition = keys.pipeline_pk(ORDERS)
            row = {"PK": partition, "SK": keys.trigger_sk(run_key()), "status": "COMPLETED"}
            await world.tables.commit(Put(TableName.CONTROL, row))
            if log_at:
                millis = keys.millis(datetime.fromisoformat(f"{DAY}T{log_at}:00+00:00"))
                line = {"PK": partition, "SK": f"{keys.job_prefix(run_key())}{millis}", "event": "success"}
                await world.tables.commit(Put(TableName.JOBLOG, {**line, "by": "interlock"}))
            await world.wait(hours=3)

        watch = await world.watch()
        assert watch is not None
        assert watch.verdict is verdict
