"""Starting a job once: refusals, starts that wait for their turn, dead starters, and a store whose replies get lost."""

from collections.abc import Callable

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import (
    DROP_AFTER,
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    FaultyTables,
    Operation,
    late,
)
from tests.support.fakes.runner import lose, refuse
from tests.support.worlds.engine import CONFIG, ORDERS, World, a_world, begin, run_key
from worker.core.model.keys import RowKind
from worker.core.model.pipeline import JobType
from worker.core.run.facts import CancelRequested
from worker.core.run.state import FailureCategory, Outcome, Pause, State
from worker.jobs.runner import Guarantee
from worker.store.repos.pauses import Pauses
from worker.targets.calls import Limits
from worker.targets.rates import Rate

NEXT_DAY = "2026-03-04"


@on_virtual_time
async def test_a_refused_start_is_sent_again_after_half_a_minute_under_the_same_token() -> None:
    world = await a_world()
    world.runner.scripts.append(refuse())
    async with world.worker():
        await begin(world)
        await world.wait(seconds=29)
        before = len(world.runner.starts)
        await world.wait(seconds=5)

    assert before == 1
    assert len(world.runner.starts) == 2
    assert len(set(world.runner.tokens)) == 1
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_start_refused_four_times_ends_the_run_and_a_rerun_can_begin_it_again() -> None:
    world = await a_world()
    world.runner.scripts.extend([refuse("no quota")] * 4)
    async with world.worker():
        await begin(world)
        await world.wait(minutes=5)
        ended = await world.run()
        await world.ask_rerun()
        await world.settle()

    assert ended is not None
    assert (ended.state, ended.outcome) == (State.FAILED_FINAL, Outcome.NOT_STARTED)
    assert len(world.runner.starts) == 5
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_restart_does_not_forgive_the_failures_of_a_start() -> None:
    world = await a_world()
    world.runner.scripts.extend([refuse()] * 4)
    async with world.worker("w1"):
        await begin(world)
        await world.wait(seconds=45)
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(minutes=5)

    assert len(world.runner.starts) == 4
    assert await world.state() is State.FAILED_FINAL


BUSY = Limits(rates={JobType.COMMAND: Rate(per_second=1 / 900, burst=1)})


async def queued(world: World) -> None:
    """Let the start of a run wait for its turn at a busy target, behind that of another."""
    await begin(world)
    await world.settle()
    await world.count(100, NEXT_DAY)
    await world.ready(NEXT_DAY)
    await world.settle()
    assert await world.state(NEXT_DAY) is State.TRIGGERING
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_start_that_waits_for_its_turn_is_not_sent_once_its_run_was_given_up() -> None:
    world = await a_world()
    async with world.worker(limits=BUSY):
        await queued(world)
        await world.ask_cancel(NEXT_DAY)
        await world.wait(hours=2)

    assert len(world.runner.starts) == 1
    assert await world.state(NEXT_DAY) is State.FAILED_FINAL


@on_virtual_time
async def test_a_start_that_waits_for_its_turn_is_not_sent_for_a_run_that_another_worker_gave_up() -> None:
    world = await a_world()
    async with world.worker(limits=BUSY), world.worker("w2", reads_feed=False) as other:
        await queued(world)
        await other.engine.handle(run_key(NEXT_DAY), CancelRequested(reason="not needed"))
        await world.wait(minutes=12)
        await world.ask_rerun(NEXT_DAY)
        await world.wait(hours=3)

    assert len(set(world.runner.tokens)) == len(world.runner.tokens) == 2
    run = await world.run(NEXT_DAY)
    assert run is not None
    assert run.attempt == 2


@on_virtual_time
async def test_a_start_that_waits_for_its_turn_is_held_back_by_a_pause() -> None:
    world = await a_world()
    async with world.worker(limits=BUSY):
        await queued(world)
        await Pauses(world.tables).put(ORDERS, Pause("migration"))
        await world.wait(hours=2)
        during = len(world.runner.starts)
        await Pauses(world.tables).remove(ORDERS)
        await world.wait(hours=1)

    assert during == 1
    assert len(world.runner.starts) == 2


@on_virtual_time
async def test_a_start_left_by_a_dead_starter_is_looked_for_and_then_sent_by_another() -> None:
    world = await a_world()
    async with world.worker("w1"):
        await world.until(State.TRIGGERING)
    world.runner.hangs = None
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(seconds=79)
        sent_early = len(world.runner.starts)
        await world.wait(seconds=30)

    assert sent_early == 0
    assert world.runner.calls["find"] == 1
    assert len(world.runner.starts) == 1
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_start_left_by_a_dead_starter_is_sent_at_once_where_the_target_recognises_the_token() -> None:
    world = await a_world()
    world.runner.guarantee = Guarantee.EXACTLY_ONCE
    async with world.worker("w1"):
        await world.until(State.TRIGGERING)
    world.runner.hangs = None
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(seconds=10)

        assert await world.state() is State.POLLING
    assert (len(world.runner.starts), len(world.runner.jobs)) == (1, 1)


@pytest.mark.parametrize("late_s", [0.5, 5.0, 19.0])
@pytest.mark.parametrize("answer", ["started", "refused", "lost"])
@pytest.mark.parametrize("then", ["nothing", "cancel", "supersede"])
def test_a_start_that_arrives_after_it_was_sent_by_another_is_the_same_job(
    late_s: float, answer: str, then: str
) -> None:
    """The target recognises the token. What arrives late has been sent by a worker that is dead since."""

    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        world.runner.guarantee = Guarantee.EXACTLY_ONCE
        async with world.worker("w1"):
            await world.until(State.TRIGGERING)
        world.runner.hangs = None
        run = await world.run()
        assert run is not None
        scripts = {"started": [], "refused": [refuse("denied", FailureCategory.PERMANENT)], "lost": [lose]}
        world.runner.scripts.extend(scripts[answer])
        async with world.worker("w2") as worker:
            await world.adopt_orphans(worker)
            for _ in range(100):
                if not world.runner.starts:
                    await world.wait(milliseconds=100)
            assert len(world.runner.starts) == 1, "another sends it before it must have arrived"
            if then == "cancel":
                await world.ask_cancel()
            elif then == "supersede":
                await world.ask_rerun(supersede=True)
            await world.wait(milliseconds=int(late_s * 1000))
            world.runner.jobs.setdefault(run.token, world.runner.at_once)  # here it arrives
            await world.wait(minutes=10)
            ended = await world.run()
            alive, tokens = world.runner.running, set(world.runner.tokens)

        assert ended is not None
        # Whatever runs is known, and belongs to the attempt that is under way.
        assert alive == ([] if then == "cancel" else [ended.token])
        assert (ended.outcome is Outcome.CANCELLED) is (then == "cancel")
        assert ended.attempt == (2 if then == "supersede" else 1)
        assert len(tokens | {run.token}) == ended.attempt

    scenario()


@on_virtual_time
async def test_a_paused_pipeline_sends_nothing_in_the_place_of_a_dead_starter() -> None:
    world = await a_world()
    world.runner.guarantee = Guarantee.EXACTLY_ONCE
    async with world.worker("w1"):
        await world.until(State.TRIGGERING)
    world.runner.hangs = None
    await Pauses(world.tables).put(ORDERS, Pause("maintenance"))
    async with world.worker("w2") as worker:
        await world.adopt_orphans(worker)
        await world.wait(minutes=2)

    assert world.runner.starts == []
    assert await world.state() is State.TRIGGERING


@on_virtual_time
async def test_nobody_touches_a_start_while_its_starter_lives() -> None:
    world = await a_world()
    async with world.worker("w1"), world.worker("w2", reads_feed=False) as other:
        await world.until(State.TRIGGERING)

        await other.engine.adopt(RowKind.TRIGGER, run_key())
        await world.wait(seconds=20)

        assert world.runner.calls["find"] == 0
        assert world.runner.calls["start"] == 1


@on_virtual_time
async def test_a_worker_that_lost_its_session_sends_nothing() -> None:
    """It is lost after the commit that says so, and before the answer to it: the start is another's then."""
    slow = Fault(reply_delay_s=2.0)
    world = await a_world(
        lambda tables: FaultyTables(tables, lambda call: slow if call is Operation.COMMIT else NO_FAULT)
    )
    async with world.worker("w1") as worker:
        await world.until(State.EVALUATING)
        await world.count(100)
        while await world.state() is not State.TRIGGERING:
            await world.wait(seconds=0.25)
        worker.standing.is_alive = False
        await world.wait(seconds=10)

    assert world.runner.starts == []
    assert await world.state() is State.TRIGGERING


@on_virtual_time
async def test_time_decides_nothing_at_a_worker_that_lost_its_session() -> None:
    world = await a_world()
    async with world.worker("w1") as worker:
        await world.until(State.EVALUATING)
        worker.standing.is_alive = False
        await world.count(100)
        await world.settle()

    assert world.runner.starts == []
    assert await world.state() is State.EVALUATING


@pytest.mark.parametrize("fault", [DROP_BEFORE, DROP_AFTER, late(4.0)], ids=["lost", "reply lost", "late"])
@pytest.mark.parametrize("nth", range(8))
def test_a_commit_without_an_answer_neither_loses_nor_doubles_the_start(fault: Fault, nth: int) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world(lambda tables: FaultyTables(tables, _on_nth_commit(fault, nth)))
        async with world.worker():
            await begin(world)
            await world.wait(minutes=4)
            world.runner.finish()
            await world.wait(minutes=3)

        assert len(world.runner.starts) == 1
        assert await world.state() is State.COMPLETED
        assert await world.events() == ["VALIDATION_PASSED", "JOB_TRIGGERED", "JOB_COMPLETED"]

    scenario()


def _on_nth_commit(fault: Fault, nth: int) -> Callable[[Operation], Fault]:
    commits = iter(range(10**6))

    def choose(operation: Operation) -> Fault:
        return fault if operation is Operation.COMMIT and next(commits) == nth else NO_FAULT

    return choose


@on_virtual_time
async def test_a_job_type_that_nothing_here_runs_is_refused_with_that_reason() -> None:
    world = await a_world()
    config = CONFIG.replace("type: command", "type: http").replace(
        'config: {command: "true", environment: {DAY: "${DATE}"}}', "config: {url: 'https://example.org/start'}"
    )
    async with world.worker():
        await begin(world, config)
        await world.settle()

    assert [(line.event, line.category) for line in await world.job_log()] == [
        ("infra-trigger-failure", FailureCategory.PERMANENT)
    ]
