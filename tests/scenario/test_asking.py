"""What is foretold about a request is what a worker then makes of it, in every state of a run."""

from dataclasses import replace
from datetime import date, timedelta

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_BEFORE, NO_FAULT, FaultyTables, Operation
from tests.support.worlds.engine import World, a_world, run_key
from worker.config.versions import Version
from worker.core.run.forecast import Prospect
from worker.core.run.state import State
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339
from worker.operations.explain.explanation import Gate, GateStatus
from worker.operations.explain.gates import explain
from worker.operations.explain.load import SnapshotLoader
from worker.operations.explain.snapshot import RunSnapshot
from worker.operations.runs.requests import InterruptedReplay, RequestOutcome, RerunSpec, RunRequests
from worker.store.repos.requests import Requests, RerunRequest

ANSWERS = {Prospect.ACCEPTED: "RERUN_ACCEPTED", Prospect.REFUSED: "RERUN_REJECTED"}


async def ask_all_the_same(world: World, asked: RequestOutcome, wish: RerunSpec) -> None:
    """Ask as a producer may, whose request is a row: what is foretold must be the answer."""
    assert asked.is_written is (asked.forecast.prospect is Prospect.ACCEPTED)
    if not asked.is_written:
        request = RerunRequest(
            reason=wish.reason, requested_at=format_rfc3339(world.clock.now()), id="row", supersede=wish.supersede
        )
        await Requests(world.tables).ask_rerun(asked.key, request, await Requests(world.tables).rerun_of(asked.key))


async def version_of(world: World) -> Version:
    version = await SnapshotLoader(world.tables).version(run_key().pipeline)
    assert isinstance(version, Version)
    return version


async def ask_rerun(world: World, *, reason: str = "again", supersede: bool = False) -> RequestOutcome:
    asking = RunRequests(world.tables, world.clock)
    return await asking.rerun(run_key(), await version_of(world), RerunSpec(reason=reason, supersede=supersede))


async def look(world: World) -> RunSnapshot:
    return await SnapshotLoader(world.tables).at(run_key(), await version_of(world), world.clock.now())


@pytest.mark.parametrize("supersede", [False, True])
@pytest.mark.parametrize("state", State)
def test_a_rerun_is_answered_as_foretold(state: State, *, supersede: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.until(state)
            asked = await ask_rerun(world, supersede=supersede)
            await ask_all_the_same(world, asked, RerunSpec(reason="again", supersede=supersede))
            await world.settle()

        answers = [event for event in await world.events() if event in ANSWERS.values()]
        assert answers == [ANSWERS[asked.forecast.prospect]]

    scenario()


@pytest.mark.parametrize("state", State)
def test_a_replay_is_answered_as_foretold(state: State) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.until(state)
            asked = await ask_rerun(world, reason="replay")
            await ask_all_the_same(world, asked, RerunSpec(reason="replay"))
            await world.settle()

        answers = [event for event in await world.events() if event in ANSWERS.values()]
        assert answers == [ANSWERS[asked.forecast.prospect]]

    scenario()


@pytest.mark.parametrize("state", [state for state in State if state is not State.STOPPING])
def test_a_cancellation_ends_a_run_exactly_if_that_was_foretold(state: State) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_world()
        async with world.worker():
            await world.until(state)
            asking = RunRequests(world.tables, world.clock)
            asked = await asking.cancel(run_key(), await version_of(world), "not needed", waive_sla=False)
            if world.runner.hangs is not None:
                world.runner.hangs.set()
            await world.wait(minutes=2)

        was_cancelled = "RUN_CANCELLED" in await world.events()
        assert was_cancelled is asked.is_written
        assert asked.is_written is (asked.forecast.prospect is Prospect.ACCEPTED)

    scenario()


@on_virtual_time
async def test_a_run_that_is_being_cancelled_is_not_cancelled_again() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.STOPPING)
        asking = RunRequests(world.tables, world.clock)
        asked = await asking.cancel(run_key(), await version_of(world), "not needed", waive_sla=False)

    assert (asked.is_written, asked.forecast.sentence) == (False, "the run is already being cancelled")


@on_virtual_time
async def test_a_run_that_never_began_is_begun_as_foretold() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        asked = await ask_rerun(world)
        await world.settle()

    assert asked.forecast.sentence == "the run starts when its rules pass"
    assert await world.state() is State.EVALUATING


@on_virtual_time
async def test_the_smallest_change_that_is_named_makes_a_waiting_run_go_on() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.EVALUATING)
        before = explain(await look(world))
        await world.count(100)
        await world.settle()
        after = explain(await look(world))

    rules = next(finding for finding in before.findings if finding.gate is Gate.RULES)
    assert rules.passage is GateStatus.CLOSED
    assert before.needed == rules.changes
    assert after.is_under_way
    assert after.needed == ()


@on_virtual_time
async def test_a_signal_that_is_missing_is_what_holds_back_a_run_that_does_not_exist() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy()
        await world.settle()
        before = explain(await look(world))
        await world.ready()
        await world.settle()
        after = explain(await look(world))

    assert before.summary.startswith("Blocked by trigger")
    assert after.summary.startswith("Blocked by rules")


@on_virtual_time
async def test_an_interrupted_replay_says_where_to_continue_and_the_rest_is_requested_once() -> None:
    world = await a_world()
    await world.deploy()
    days = [date(2026, 1, 1) + timedelta(days=number) for number in range(60)]
    keys = [replace(run_key(), period=Period(day)) for day in days]
    faults = iter([NO_FAULT, DROP_BEFORE])
    tables = FaultyTables(
        world.tables, lambda operation: next(faults, NO_FAULT) if operation is Operation.COMMIT else NO_FAULT
    )
    asking, version = RunRequests(tables, world.clock), await version_of(world)

    with pytest.raises(InterruptedReplay, match=r"continue from 2026-02-20") as interrupted:
        await asking.replay(keys, version, RerunSpec(reason="replay"))
    requests = Requests(world.tables)
    first = [await requests.rerun_of(key) for key in keys]
    await asking.replay(keys[interrupted.value.done :], version, RerunSpec(reason="replay"))

    assert [request is not None for request in first] == [number < interrupted.value.done for number in range(60)]
    asked = [await requests.rerun_of(key) for key in keys]
    assert None not in asked
    assert asked[: interrupted.value.done] == first[: interrupted.value.done]
