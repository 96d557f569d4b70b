"""Starts without an answer: the job is looked for, and sent again only where that is safe or wanted."""

import asyncio

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import lose, refuse
from tests.support.worlds.engine import CONFIG, ORDERS, a_world, begin
from worker.core.run.state import FailureCategory, Outcome, Pause, StartStep, State
from worker.jobs.runner import Failed, Guarantee
from worker.store.repos.pauses import Pauses

DENIED = refuse("AccessDenied", FailureCategory.PERMANENT)


@on_virtual_time
async def test_a_job_whose_start_was_not_answered_is_found_again_and_not_started_twice() -> None:
    world = await a_world()
    world.runner.scripts.append(world.runner.accept_and_lose_answer)
    async with world.worker():
        await begin(world)
        await world.wait(seconds=79)
        looked_early = world.runner.calls["find"]
        await world.wait(seconds=5)

    assert looked_early == 0
    assert world.runner.calls["find"] == 1
    assert len(world.runner.starts) == 1
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_start_that_never_arrived_is_sent_again_once_it_is_certain() -> None:
    world = await a_world()
    world.runner.scripts.append(lose)
    async with world.worker():
        await begin(world)
        await world.wait(minutes=3)

    assert len(world.runner.starts) == 2
    assert len(world.runner.jobs) == 1
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_target_that_cannot_be_asked_is_asked_again_before_anything_is_sent() -> None:
    world = await a_world()
    world.runner.scripts.append(world.runner.accept_and_lose_answer)
    world.runner.is_unreachable = True
    async with world.worker():
        await begin(world)
        await world.wait(minutes=5)
        asked, sent = world.runner.calls["find"], len(world.runner.starts)
        world.runner.is_unreachable = False
        await world.wait(minutes=1)

    assert asked > 1
    assert sent == 1
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_target_that_recognises_the_token_is_asked_at_once() -> None:
    world = await a_world()
    world.runner.guarantee = Guarantee.EXACTLY_ONCE
    world.runner.scripts.append(world.runner.accept_and_lose_answer)
    async with world.worker():
        await begin(world)
        await world.settle()

    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_target_without_a_search_is_sent_the_token_again_and_answers_with_the_job_it_has() -> None:
    world = await a_world()
    world.runner.guarantee, world.runner.is_found_by_sending = Guarantee.EXACTLY_ONCE, True
    world.runner.scripts.append(world.runner.accept_and_lose_answer)
    async with world.worker():
        await begin(world)
        await world.settle()

    assert await world.state() is State.POLLING
    assert len(world.runner.starts) == 2
    assert len(world.runner.jobs) == 1
    assert world.runner.calls["find"] == 0


@on_virtual_time
async def test_a_target_without_a_search_that_is_out_of_order_is_sent_the_token_until_it_answers() -> None:
    world = await a_world()
    world.runner.guarantee, world.runner.is_found_by_sending = Guarantee.EXACTLY_ONCE, True
    world.runner.scripts.extend([world.runner.accept_and_lose_answer, lose, refuse(), lose])
    async with world.worker():
        await begin(world)
        await world.wait(minutes=10)

    assert await world.state() is State.POLLING
    assert len(world.runner.jobs) == 1
    assert len(set(world.runner.tokens)) == 1


@on_virtual_time
async def test_a_refusal_proves_nothing_about_an_earlier_start_that_was_not_answered() -> None:
    world = await a_world()
    world.runner.guarantee, world.runner.is_found_by_sending = Guarantee.EXACTLY_ONCE, True
    world.runner.scripts.extend([world.runner.accept_and_lose_answer, *[DENIED] * 100])
    async with world.worker():
        await begin(world)
        await world.wait(minutes=15)
        denied, told = await world.run(), await world.events()
        world.runner.scripts.clear()
        await world.wait(minutes=1)

    assert denied is not None
    assert (denied.state, denied.attempt) == (State.TRIGGERING, 1)
    assert told == ["VALIDATION_PASSED", "INFRA_FAILURE"]
    assert await world.state() is State.POLLING
    assert len(world.runner.jobs) == len(set(world.runner.tokens)) == 1


@on_virtual_time
async def test_while_a_pipeline_is_paused_no_job_is_looked_for_by_starting_it() -> None:
    world = await a_world()
    world.runner.guarantee, world.runner.is_found_by_sending = Guarantee.EXACTLY_ONCE, True
    world.runner.scripts.extend([lose, lose])
    async with world.worker():
        await begin(world)
        await world.settle()
        await Pauses(world.tables).put(ORDERS, Pause("maintenance"))
        await world.wait(minutes=5)
        sent = len(world.runner.starts)
        await Pauses(world.tables).remove(ORDERS)
        await world.wait(minutes=1)

    assert sent == 2
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_start_that_nobody_could_find_out_about_ends_as_one_that_may_be_running() -> None:
    world = await a_world()
    world.runner.guarantee, world.runner.is_found_by_sending = Guarantee.EXACTLY_ONCE, True
    world.runner.scripts.extend([world.runner.accept_and_lose_answer, *[DENIED] * 1000])
    async with world.worker():
        await begin(world)
        await world.wait(hours=5)

    run = await world.run()
    assert run is not None
    assert (run.attempt, run.outcome) == (1, Outcome.ORPHANED)
    assert (await world.events())[1:] == ["INFRA_FAILURE", "JOB_ORPHANED", "SFN_TIMEOUT"]


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.FOUND_AGAIN])
@pytest.mark.parametrize("supersedes", [False, True])
def test_a_start_that_arrives_late_is_found_before_anything_else_begins(guarantee: Guarantee, supersedes: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        world.runner.guarantee = guarantee
        world.runner.scripts.append(lose)
        async with world.worker():
            await begin(world)
            await world.wait(seconds=5)
            await (world.ask_rerun(supersede=True) if supersedes else world.ask_cancel())
            await world.wait(seconds=10)
            world.runner.accept(world.runner.starts[0])
            await world.wait(minutes=5)

        first, *later = world.runner.jobs
        assert isinstance(world.runner.jobs[first], Failed)
        assert len(later) == supersedes
        run = await world.run()
        assert run is not None
        assert (run.state, run.attempt) == ((State.POLLING, 2) if supersedes else (State.FAILED_FINAL, 1))

    scenario()


@on_virtual_time
async def test_a_start_in_doubt_at_a_target_without_a_search_is_not_sent_again_once_it_is_to_be_stopped() -> None:
    world = await a_world()
    world.runner.guarantee, world.runner.is_found_by_sending = Guarantee.EXACTLY_ONCE, True
    world.runner.scripts.extend([world.runner.accept_and_lose_answer, *[lose] * 40])
    async with world.worker():
        await begin(world)
        await world.settle()
        await world.ask_cancel()
        await world.settle()
        sent = len(world.runner.starts)
        await world.wait(minutes=11)

    run = await world.run()
    assert run is not None
    assert run.outcome is Outcome.ORPHANED
    assert (await world.events())[-1] == "JOB_ORPHANED"
    assert len(world.runner.starts) == sent


@on_virtual_time
async def test_a_start_nobody_can_look_for_is_held_and_told() -> None:
    world = await a_world()
    world.runner.guarantee = Guarantee.AT_LEAST_ONCE
    world.runner.scripts.append(lose)
    async with world.worker():
        await begin(world)
        await world.wait(minutes=5)

    run = await world.run()
    assert run is not None
    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.START_UNKNOWN)
    assert len(world.runner.starts) == 1
    assert (await world.events())[-1] == "JOB_START_UNKNOWN"


@on_virtual_time
async def test_a_start_nobody_can_look_for_is_sent_again_where_that_is_wanted() -> None:
    world = await a_world()
    world.runner.guarantee = Guarantee.AT_LEAST_ONCE
    world.runner.scripts.append(lose)
    async with world.worker():
        await begin(world, CONFIG.replace("maxRetries: 1", "onUnknownStart: restart"))
        await world.wait(minutes=5)

    assert len(world.runner.starts) == 2
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_job_that_runs_though_its_start_got_no_answer_is_not_called_not_started() -> None:
    world = await a_world()
    world.runner.guarantee = Guarantee.AT_LEAST_ONCE
    world.runner.scripts.extend([world.runner.accept_and_lose_answer, *[refuse()] * 3])
    async with world.worker():
        await begin(world, CONFIG.replace("maxRetries: 1", "onUnknownStart: restart"))
        await world.wait(minutes=5)

    run = await world.run()
    assert run is not None
    assert len(world.runner.jobs) == 1
    assert (run.state, run.outcome) == (State.FAILED_FINAL, Outcome.START_UNKNOWN)
    assert (await world.events())[-1] == "JOB_START_UNKNOWN"


@on_virtual_time
async def test_a_runner_that_hangs_is_given_up_and_counts_as_unanswered() -> None:
    world = await a_world()
    world.runner.hangs = asyncio.Event()
    async with world.worker():
        await begin(world)
        await world.wait(seconds=30)

        run = await world.run()

    assert run is not None
    assert run.start_step is StartStep.UNANSWERED
