"""The watchdog on what others left behind: runs that nobody moves, rows that run for ever, jobs that run on."""

from dataclasses import replace
from datetime import timedelta

from scheduler.watchdog.checks.table import Watched
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, ORDERS, World, a_world, run_key
from tests.support.worlds.watchdog import on_watch, told, types_told, watch
from worker.core.model.keys import pipeline_pk, trigger_sk
from worker.core.run.facts import JobRunning, JobSucceeded
from worker.core.run.state import Outcome, Run, State
from worker.store.repos.runs import Runs
from worker.store.table import Put, TableName


@on_virtual_time
async def test_a_run_that_nobody_moves_is_moved_when_its_time_is_over_and_ended_in_the_end() -> None:
    """Nobody looks for orphans here, and still the job's time, the next attempt's and the run's are kept."""
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.POLLING)
    async with world.worker("w2") as worker:
        held = watch(world, worker)
        await held.until(NOON + timedelta(hours=1, minutes=10))
        assert "JOB_POLL_EXHAUSTED" in await types_told(world)

        await held.until(NOON + timedelta(hours=6))
        assert await world.state() is State.FAILED_FINAL


@on_virtual_time
async def test_a_row_that_another_system_left_running_is_closed_once_its_lifetime_is_over() -> None:
    world = await a_world()
    row = {"PK": pipeline_pk(ORDERS), "SK": trigger_sk(run_key()), "status": "RUNNING"}
    ends = NOON + timedelta(hours=1)
    await world.tables.commit(Put(TableName.CONTROL, {**row, "ttl": int(ends.timestamp())}))
    async with on_watch(world) as held:
        await world.deploy(CONFIG)
        await held.until(ends)
        assert await types_told(world) == []

        await held.until(ends + timedelta(minutes=5))
        assert await types_told(world) == ["SFN_TIMEOUT"]


async def orphan(world: World, config_hash: str) -> None:
    """A run that was given up, whose job could not be stopped."""
    now = world.clock.now()
    run = Run(
        key=run_key(),
        run_id="r1",
        state=State.FAILED_FINAL,
        config_hash=config_hash,
        created_at=now,
        since=now,
        timeout_at=now,
        outcome=Outcome.ORPHANED,
        job={"id": "j-17"},
    )
    await Runs(world.tables).save(run)


@on_virtual_time
async def test_a_job_that_runs_on_is_asked_about_told_once_and_told_when_it_has_ended() -> None:
    world = await a_world()
    answers: list[JobRunning | JobSucceeded] = []

    async def poll(run: Run, _: object) -> JobRunning | JobSucceeded:
        is_over = world.clock.now() >= NOON + timedelta(hours=2)
        answers.append(JobSucceeded(attempt=1, ended_at=None) if is_over else JobRunning(run.attempt))
        return answers[-1]

    async with on_watch(world, Watched(poll=poll)) as held:
        await world.deploy(CONFIG)
        version = await held.worker.parts.configs.current(ORDERS)
        assert version is not None
        await orphan(world, version.config_hash)
        await held.until(NOON + timedelta(hours=4))

        types = [each for each in await types_told(world) if each.startswith("JOB_")]
        assert types == ["JOB_ORPHANED", "JOB_ORPHAN_ENDED"]
        assert 11 <= len(answers) <= 13


@on_virtual_time
async def test_the_job_of_a_later_attempt_that_runs_on_is_told_as_well() -> None:
    world = await a_world()

    async def poll(run: Run, _: object) -> JobRunning:
        return JobRunning(run.attempt)

    async with on_watch(world, Watched(poll=poll)) as held:
        await world.deploy(CONFIG)
        version = await held.worker.parts.configs.current(ORDERS)
        assert version is not None
        await orphan(world, version.config_hash)
        await held.until(NOON + timedelta(hours=1))
        given_up = await Runs(world.tables).load(run_key())
        assert isinstance(given_up, Run)
        await Runs(world.tables).save(replace(given_up, attempt=2, since=world.clock.now()))
        await held.until(NOON + timedelta(hours=2))

        orphaned = [each.event.detail["attempt"] for each in await told(world) if each.event.type == "JOB_ORPHANED"]
        assert orphaned == [1, 2]
