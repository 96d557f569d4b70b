"""What a run tells of itself: where it came from, what its job was started on and returned, and every attempt."""

from datetime import timedelta

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.worlds.engine import CONFIG, DAY, World, a_world, run_key
from worker.core.model.content_hash import content_hash
from worker.core.run.state import ATTEMPTS_MAX, FailureCategory, State
from worker.core.time.durations import parse_duration
from worker.jobs.runner import Failed, Started, StartRequest, Succeeded
from worker.operations.records import RunRecord, as_json
from worker.operations.runs.run_detail import RunDetails
from worker.store.repos.run_data import inputs_key, outputs_key
from worker.store.repos.run_rollups import RunRollups
from worker.store.repos.runs import Runs
from worker.store.table import Delete, TableName


async def record(world: World) -> RunRecord:
    found = await RunDetails(world.tables).record(run_key(DAY), world.clock.now())
    assert found is not None
    return found


@on_virtual_time
async def test_a_run_has_its_inputs_outputs_and_times() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(CONFIG.replace("{id: orders}", "{id: orders, owner: commerce}"))
        await world.ready()
        await world.count(100)
        await world.settle()
        running = await record(world)
        world.runner.finish(Succeeded(outputs={"result": {"processed": 1190}}))
        await world.wait(minutes=2)

    assert (running.status, running.ended_at, running.duration) == ("running", None, None)
    assert running.started_at is not None
    done = await record(world)
    assert (done.origin, done.owner, done.status, done.outcome) == ("sensor", "commerce", "completed", "succeeded")
    assert done.inputs is not None
    assert {name: each.data for name, each in done.inputs.items()} == {
        "ready": {"status": "done", "date": DAY},
        f"count#{DAY}": {"rows": 100},
    }
    assert done.inputs[f"count#{DAY}"].hash == content_hash({"rows": 100})
    assert done.outputs == {"result": {"processed": 1190}}
    assert done.started_at == running.started_at
    assert timedelta(seconds=30) < (parse_duration(done.duration or "") or timedelta()) <= timedelta(minutes=2)
    [attempt] = done.attempts
    assert attempt.job is not None
    assert (attempt.job.type, attempt.job.id, attempt.outcome) == ("command", world.runner.tokens[0], "succeeded")


@on_virtual_time
async def test_every_attempt_stays_with_its_job_its_times_and_why_it_ended() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        world.runner.finish(Failed(FailureCategory.TRANSIENT, "lost host", outputs={"exitCode": 137}))
        await world.wait(minutes=2)
        after_retry = await record(world)
        world.runner.finish(Failed(FailureCategory.PERMANENT, "bad code"))
        await world.wait(minutes=2)
        world.runner.fail("bad again")
        await world.wait(minutes=2)
        await world.ask_rerun()
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)

    first, second = after_retry.attempts
    assert (first.attempt, first.outcome, first.category, first.reason) == (1, "failed", "TRANSIENT", "lost host")
    assert (second.attempt, second.outcome) == (2, None)
    assert after_retry.outputs is None  # they are of attempt 1, and attempt 2 has returned nothing
    done = await record(world)
    assert [each.attempt for each in done.attempts] == [1, 2, 3, 4]
    assert [each.outcome for each in done.attempts] == ["failed", "failed", "failed", "succeeded"]
    assert [each.category for each in done.attempts] == ["TRANSIENT", "PERMANENT", "TRANSIENT", None]
    assert [each.token for each in done.attempts] == world.runner.tokens
    assert [each.job.id for each in done.attempts if each.job] == world.runner.tokens
    for each in done.attempts:
        assert each.started_at is not None
        assert each.ended_at is not None
        assert each.ended_at > each.started_at


@on_virtual_time
async def test_a_superseded_attempt_says_so() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.ask_rerun(supersede=True)
        await world.wait(minutes=2)

    [first, second] = (await record(world)).attempts
    assert (first.outcome, second.outcome) == ("superseded", None)


@on_virtual_time
async def test_only_the_last_attempts_are_kept() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        for _ in range(19):
            world.runner.fail("x" * 2_000)
            await world.wait(minutes=2)
            if await world.state() is State.FAILED_FINAL:
                await world.ask_rerun(reason="replay")
                await world.settle()

    attempts = (await record(world)).attempts
    assert [each.attempt for each in attempts] == list(range(20 - ATTEMPTS_MAX + 1, 21))
    assert {len(each.reason) for each in attempts[:-1]} == {300}


@on_virtual_time
async def test_large_inputs_are_kept_by_hash_and_size() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.ready(note="y" * 9_000)
        await world.count(100)
        await world.settle()

    inputs = (await record(world)).inputs
    assert inputs is not None
    assert (inputs["ready"].data, inputs[f"count#{DAY}"].data) == (None, {"rows": 100})
    assert 9_000 < (inputs["ready"].size or 0) < 9_200


@on_virtual_time
async def test_a_job_that_ends_with_its_start_has_outputs_too() -> None:
    def answers(request: StartRequest) -> Started:
        world.runner.accept(request)
        return Started({"id": request.token}, outputs={"result": "ok"})

    world = await a_world()
    world.runner.scripts.append(answers)
    world.runner.at_once = Succeeded()
    async with world.worker():
        await world.deploy()
        await world.ready()
        await world.count(100)
        await world.wait(minutes=2)

    assert (await record(world)).outputs == {"result": "ok"}


@on_virtual_time
async def test_a_run_without_its_data_is_shown_and_runs_on() -> None:
    """Rows of earlier releases have none, and a person may delete them."""
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        await world.tables.commit(Delete(TableName.CONTROL, inputs_key(run_key(DAY))))
        await world.tables.commit(Delete(TableName.CONTROL, outputs_key(run_key(DAY))))
        world.runner.finish()
        await world.wait(minutes=2)

    done = await record(world)
    assert (done.status, done.inputs, done.outputs) == ("completed", None, None)
    assert as_json(done)["type"] == "run"


@on_virtual_time
async def test_a_rerun_of_an_earlier_day_makes_the_rollup_of_that_day_stale() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.FAILED_FINAL)
        ended = await Runs(world.tables).load(run_key(DAY))
        await world.ask_rerun()
        await world.settle()
        same_day = await RunRollups(world.tables).stale(10)
        world.runner.fail()
        await world.wait(minutes=2)
        await world.wait(days=1)
        await world.ask_rerun(reason="replay")
        await world.settle()

    assert ended is not None
    assert same_day == []
    [stale] = await RunRollups(world.tables).stale(10)
    assert stale.day == (world.clock.now() - timedelta(days=1)).date()
