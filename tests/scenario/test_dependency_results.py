"""Results that are out of date follow their upstreams, although a run further above cannot run without help."""

from itertools import pairwise

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.counting_tables import CountingTables
from tests.support.worlds.dependencies import (
    FAILED,
    a_chain,
    after,
    attempt_of,
    push,
    ready,
    rerun,
    root,
    run_of,
    state_of,
    told,
)
from tests.support.worlds.engine import DAY, World
from worker.core.dependencies.gate import GateResult
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, Schedule
from worker.core.run.state import Pause, Run, State
from worker.engine.upstreams import UpstreamMemo, UpstreamReader
from worker.jobs.runner import Running, Succeeded
from worker.store.repos.pauses import Pauses
from worker.store.table import TableName


def a_long_chain(names: str) -> list[str]:
    """Each pipeline runs after the one before."""
    first, *others = names
    below = [after(name, [above], drift=5) for above, name in zip(names, others, strict=False)]
    return [each.replace("maxRetries: 0", "maxRetries: 0, maxCodeRetries: 0") for each in (root(first), *below)]


async def attempts(world: World, names: str) -> list[int]:
    return [await attempt_of(world, f"{name}/{DAY}") for name in names]


async def waits_at_its_gate(world: World, name: str) -> bool:
    run = await run_of(world, f"{name}/{DAY}")
    return run is not None and run.is_at_gate


async def complete_all_and_fail_the_first(world: World) -> None:
    """Complete every run; then a runs again and fails."""
    await ready(world, "a", DAY)
    await world.wait(minutes=5)
    world.runner.at_once = FAILED
    await rerun(world, f"a/{DAY}")
    await world.wait(minutes=5)
    world.runner.at_once = Succeeded()


async def end_jobs(world: World, *, failed: bool) -> None:
    """End all jobs that run; those that follow succeed at once."""
    for token in world.runner.running:
        world.runner.jobs[token] = FAILED if failed else Succeeded()
    world.runner.at_once = Succeeded()
    await world.wait(minutes=30)


@pytest.mark.parametrize("blocked", ["b", "bc"], ids=["one run", "two runs, one after the other"])
def test_a_result_follows_although_a_run_further_above_waits_for_a_failed_one(blocked: str) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_chain(*a_long_chain("abcdef"))
        async with world.worker():
            await complete_all_and_fail_the_first(world)
            for name in blocked:  # a person has to fix a before they can start
                await rerun(world, f"{name}/{DAY}")
                await world.wait(minutes=5)
            waiting = [await waits_at_its_gate(world, name) for name in blocked]
            await rerun(world, f"e/{DAY}")
            await world.wait(minutes=10)
            meanwhile = await attempts(world, "ef")
            await rerun(world, f"a/{DAY}")
            await world.wait(minutes=30)

            assert all(waiting)
            assert meanwhile == [2, 2]
            assert await attempts(world, "abcdef") == [3, 2, 2, 2, 3, 3]
            assert {await state_of(world, f"{name}/{DAY}") for name in "abcdef"} == {State.COMPLETED}

    scenario()


@on_virtual_time
async def test_each_run_of_many_diamonds_that_wait_is_judged_once() -> None:
    """Six diamonds, one below the other, have 64 paths."""
    levels = [["a"], *([f"left{number}", f"right{number}"] for number in range(6)), ["last"]]
    below = [after(name, above) for above, level in pairwise(levels) for name in level]
    world = await a_chain(root("a"), *below)
    judged: list[RunKey] = []

    class Reader(UpstreamReader):
        async def gate(self, key: RunKey, schedule: Schedule, memo: UpstreamMemo | None = None) -> GateResult:
            judged.append(key)
            return await super().gate(key, schedule, memo)

        async def needs_help(self, run: Run) -> bool:
            return await self._is_blocked(run, UpstreamMemo())

    async with world.worker() as worker:
        await ready(world, "a", DAY)
        await world.wait(minutes=5)
        world.runner.at_once = Running()
        await rerun(world, f"a/{DAY}")
        await world.settle()
        for level in levels[1:]:
            for name in level:
                await rerun(world, f"{name}/{DAY}")
            await world.wait(minutes=1)
        last = await run_of(world, f"last/{DAY}")
        assert last is not None
        assert last.is_at_gate

        assert not await Reader(world.tables, worker.parts.configs).needs_help(last)  # a is running
        assert len(judged) == len(set(judged)) == 13


@pytest.mark.parametrize("is_failed", [True, False])
def test_a_result_that_waits_for_a_run_above_follows_once_that_run_is_blocked(is_failed: bool) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = await a_chain(*a_long_chain("abcde"))
        async with world.worker():
            await ready(world, "a", DAY)
            await world.wait(minutes=5)
            world.runner.at_once = Running()
            await rerun(world, f"a/{DAY}")
            await world.settle()
            world.runner.at_once = Succeeded()
            await rerun(world, f"b/{DAY}")
            await rerun(world, f"d/{DAY}")
            await world.wait(minutes=2)
            waiting = await waits_at_its_gate(world, "b")
            meanwhile = await attempts(world, "de")
            await end_jobs(world, failed=is_failed)

            assert waiting
            assert meanwhile == [2, 1]  # e waits: b runs again as soon as a has ended
            assert await attempts(world, "abcde") == ([2, 2, 1, 2, 2] if is_failed else [2, 2, 2, 3, 2])

    scenario()


@on_virtual_time
async def test_a_result_follows_once_the_retry_of_a_run_above_is_blocked() -> None:
    retried = after("b", ["a"], drift=5).replace("maxRetries: 0", "maxCodeRetries: 1")
    world = await a_chain(*a_long_chain("abcde"), retried)
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=5)
        world.runner.at_once = Running()
        await rerun(world, f"b/{DAY}")
        await world.settle()
        world.runner.at_once = FAILED
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=2)
        world.runner.at_once = Succeeded()
        await rerun(world, f"d/{DAY}")
        await world.wait(minutes=2)
        meanwhile = await attempts(world, "de")
        await end_jobs(world, failed=True)

        assert meanwhile == [2, 1]
        assert await waits_at_its_gate(world, "b")
        assert await attempts(world, "abcde") == [2, 3, 1, 2, 2]


@on_virtual_time
async def test_a_result_follows_once_a_rerun_that_a_pause_held_is_blocked() -> None:
    world = await a_chain(*a_long_chain("abcde"))
    async with world.worker():
        await complete_all_and_fail_the_first(world)
        await Pauses(world.tables).put(PipelineId("b"), Pause("migration"))
        await rerun(world, f"b/{DAY}")
        await rerun(world, f"d/{DAY}")
        await world.wait(hours=2)
        meanwhile = await attempts(world, "bde")
        await Pauses(world.tables).remove(PipelineId("b"))
        await world.wait(minutes=10)

        assert meanwhile == [1, 2, 1]
        assert await waits_at_its_gate(world, "b")
        assert await attempts(world, "bde") == [2, 2, 2]


@on_virtual_time
async def test_a_result_follows_although_a_run_further_above_cannot_run_again() -> None:
    world = await a_chain(root("a"), root("b"), after("c", ["a", "b"]), after("d", ["c"]), after("e", ["d"]))
    async with world.worker():
        for name in ("a", "b"):
            await ready(world, name, DAY)
        await world.wait(minutes=2)
        world.runner.at_once = FAILED
        await rerun(world, f"b/{DAY}")
        await world.wait(minutes=10)
        world.runner.at_once = Succeeded()
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=10)
        # c is out of date and waits for b, which a person has to fix; d is run again by one.
        await rerun(world, f"d/{DAY}")
        await world.wait(minutes=10)
        attempts = [await attempt_of(world, f"{name}/{DAY}") for name in "acde"]
        await rerun(world, f"b/{DAY}")
        await world.wait(minutes=10)

        assert attempts == [2, 1, 2, 2]
        assert await state_of(world, f"b/{DAY}") is State.COMPLETED
        assert [await attempt_of(world, f"{name}/{DAY}") for name in "cd"] == [2, 3]


@on_virtual_time
async def test_a_result_follows_although_the_rerun_of_a_run_above_it_was_rejected() -> None:
    world = await a_chain(root("a"), after("b", ["a"]), after("c", ["b"]), after("d", ["c"]))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=2)
        await push(world.tables, world, after("b", ["a"], f"exclude: {{dates: ['{DAY}']}}"))
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=10)
        await rerun(world, f"c/{DAY}")
        await world.wait(minutes=10)

        assert [await attempt_of(world, f"{name}/{DAY}") for name in "abcd"] == [2, 1, 2, 2]
        assert len(await told(world, "b", "PIPELINE_EXCLUDED")) == 1


@on_virtual_time
async def test_a_run_that_waits_under_an_earlier_version_is_blocked_by_what_that_version_names() -> None:
    world = await a_chain(
        root("a"),
        root("x"),
        *[after(*each, drift=5) for each in (("b", ["a", "x"]), ("c", ["b"]), ("d", ["c"]), ("e", ["d"]))],
    )
    async with world.worker():
        for name in "ax":
            await ready(world, name, DAY)
        await world.wait(minutes=5)
        world.runner.at_once = FAILED
        await rerun(world, f"x/{DAY}")
        await world.wait(minutes=5)
        world.runner.at_once = Succeeded()
        await rerun(world, f"b/{DAY}")
        await world.wait(minutes=5)
        waiting = await waits_at_its_gate(world, "b")
        await push(world.tables, world, after("b", ["a"], drift=5))
        await rerun(world, f"d/{DAY}")
        await world.wait(minutes=10)

    assert waiting
    assert await attempts(world, "de") == [2, 2]


@on_virtual_time
async def test_a_result_follows_although_an_upstream_that_it_does_not_need_waits_for_a_failed_run() -> None:
    hourly = "grain: hour\n  trigger: {key: ready, check: equals, field: status, value: done}"
    world = await a_chain(
        root("x", "grain: hour"),
        after("h", ["x"], hourly, drift=5),
        after("g", ["{pipeline: h, periods: all, atLeast: 1}"], "grain: day", drift=5),
    )
    async with world.worker():
        for name in "xh":
            await ready(world, name, f"{DAY}T00")
        await world.wait(minutes=5)
        world.runner.at_once = FAILED
        for name in "xh":
            await ready(world, name, f"{DAY}T01")
        await world.wait(minutes=5)
        world.runner.at_once = Succeeded()
        before = await attempt_of(world, f"g/{DAY}")
        await rerun(world, f"h/{DAY}T00")
        await world.wait(minutes=10)
        blocked = await run_of(world, f"h/{DAY}T01")

    assert blocked is not None
    assert blocked.is_at_gate
    assert before == 1
    assert await attempt_of(world, f"g/{DAY}") == 2


@on_virtual_time
async def test_stacked_diamonds_are_woken_level_by_level_and_not_path_by_path() -> None:
    """Eight diamonds, one below the other, have 256 paths."""
    levels = [["a"], *([f"left{number}", f"right{number}"] for number in range(8)), ["last"]]
    below = [after(name, above) for above, level in pairwise(levels) for name in level]
    world = await a_chain(root("a"), *below)
    tables = CountingTables(world.tables)
    world.seen_by_workers = tables
    async with world.worker() as worker:
        await ready(world, "a", DAY)
        await world.wait(minutes=5)
        ended = next(
            each
            for each in reversed(await world.tables.changes(TableName.CONTROL, 0))
            if each.key.pk == "PIPELINE#a" and each.key.sk.startswith("TRIGGER#")
        )
        tables.rows.clear()
        await worker.router.handle(ended)

    assert await state_of(world, f"last/{DAY}") is State.COMPLETED
    assert tables.rows["read"] < 4000  # each path by itself: 30,000
