"""A diamond of pipelines, with a worker that dies at any of its writes, records delivered again in any order, and bugs.

Two promises are checked on the whole history of rows: a run never starts before the upstream attempts that it names
have completed, and once all is quiet, every run was started on the attempts that its upstreams have.
`DEPENDENCY_CRASHES=all` tries every write; without it, some of them.
"""

import os
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.clock.virtual_time import run
from tests.support.fakes.mortal_tables import MortalTables
from tests.support.fakes.runner import StartScript
from tests.support.worlds.dependencies import after, push, ready, rerun, root, run_of
from tests.support.worlds.engine import DAY, Worker, World, a_world
from worker.core.dependencies.gate import GateResult, ItemResult
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.core.run.facts import UpstreamEnded
from worker.core.run.state import Pause, Run, State
from worker.engine.intake.dependents import Dependents
from worker.engine.upstreams import UpstreamReader
from worker.jobs.runner import Running, StartAnswer, StartRequest, Succeeded
from worker.store.repos.pauses import Pauses
from worker.store.repos.run_rows import run_from_row
from worker.store.table import TableName, Tables

NEEDS: Final = {"a": "", "b": "a", "c": "a", "d": "bc"}
NAMES: Final = "abcd"
POINTS: Final = 120  # more than a life has; those beyond its end try nothing
SAMPLE: Final = range(3, POINTS, 19)
CHOSEN: Final = range(POINTS) if os.environ.get("DEPENDENCY_CRASHES") == "all" else SAMPLE


async def a_diamond(at: int | None = None, *, is_applied: bool = False) -> tuple[World, list[MortalTables]]:
    made: list[MortalTables] = []

    def wrap(tables: Tables) -> Tables:
        made.append(MortalTables(tables, at, is_applied=is_applied))
        return made[0]

    world = await a_world(wrap)
    world.runner.at_once = Succeeded()
    await push(world.tables, world, root("a"), after("b", ["a"]), after("c", ["a"]), after("d", ["b", "c"]))
    return world, made


async def live(world: World, mortal: MortalTables) -> None:
    """Play the life; when its worker dies, another one takes over and reads every record again."""
    for name, step in (("first", lambda: ready(world, "a", DAY)), ("again", lambda: rerun(world, f"a/{DAY}"))):
        async with world.worker(name) as worker:
            await world.adopt_orphans(worker)
            await step()
            await quiet(world, mortal)
        if mortal.died.is_set():
            mortal.died.clear()
            world.read_to.clear()
            async with world.worker(f"{name}-next") as worker:
                await world.adopt_orphans(worker)
                await world.wait(minutes=15)
                await world.adopt_orphans(worker)
                await world.wait(minutes=15)


async def quiet(world: World, mortal: MortalTables) -> None:
    for _ in range(8):
        if not mortal.died.is_set():
            await world.wait(minutes=1)


async def redeliver(world: World, worker: Worker, seed: int) -> None:
    changes = [*await world.tables.changes(TableName.CONTROL, 0, 10_000)]
    random.Random(seed).shuffle(changes)
    for change in changes:
        try:
            await worker.router.handle(change)
        except RetryLater:
            continue


async def history(world: World) -> list[Run]:
    changes = await world.tables.changes(TableName.CONTROL, 0, 10_000)
    images = (each.image for each in changes if each.image and each.key.sk.startswith(keys.TRIGGER))
    return [found for image in images if isinstance(found := run_from_row(image), Run)]


async def check(world: World, attempts: int) -> None:
    """Assert both promises, that each run has had its attempts, and that each attempt was started once."""
    completed: set[tuple[str, str]] = set()
    for seen in await history(world):
        if seen.state is State.TRIGGERING:
            missing = set(seen.started_after.items()) - completed
            named = {name[0] for name in seen.started_after}
            assert not missing, f"early start of {seen.key}: {missing}"
            assert named == set(NEEDS[seen.key.pipeline]), f"early start of {seen.key}, which knows only {named}"
        if seen.state is State.COMPLETED:
            completed.add((str(seen.key), f"{seen.run_id[:8]}.{seen.attempt}"))
    runs = {name: await run_of(world, f"{name}/{DAY}") for name in NAMES}
    for name, found in runs.items():
        assert found is not None, f"forgotten: {name} never began"
        assert found.state is State.COMPLETED, (name, found.state, found.reason)
        for upstream, attempt in found.started_after.items():
            now = runs[upstream[0]]
            assert now is not None
            assert attempt == f"{now.run_id[:8]}.{now.attempt}", f"stale: {name} was started on {upstream} {attempt}"
        assert found.attempt == attempts, f"{name} has {found.attempt} attempts"
    tokens = world.runner.tokens
    assert len(tokens) == len(set(tokens)) == len(NAMES) * attempts


@pytest.mark.parametrize("is_applied", [False, True])
@pytest.mark.parametrize("at", CHOSEN)
def test_a_worker_that_dies_at_a_write_changes_nothing_in_the_end(at: int, is_applied: bool) -> None:
    async def scenario() -> None:
        world, [mortal] = await a_diamond(at, is_applied=is_applied)
        await live(world, mortal)
        await check(world, 2)

    run(scenario())


def test_records_that_come_again_in_any_order_start_nothing() -> None:
    async def scenario() -> None:
        world, [mortal] = await a_diamond()
        await live(world, mortal)
        async with world.worker("again-1") as worker, world.worker("again-2", reads_feed=False) as other:
            await redeliver(world, worker, 1)
            await redeliver(world, other, 2)
            await world.wait(minutes=10)
        await check(world, 2)

    run(scenario())


def test_a_slow_side_of_the_diamond_causes_one_rerun_of_its_end() -> None:
    async def scenario() -> None:
        world, _ = await a_diamond()
        await with_slow_side(world)
        await check(world, 2)

    run(scenario())


async def with_slow_side(world: World) -> None:
    """Let `c` take long the first time, and be paused while the others run again."""
    world.runner.scripts.extend(slow_if_c(world) for _ in range(3))
    async with world.worker():
        await ready(world, "a", DAY)
        await world.wait(minutes=5)
        for token in world.runner.running:
            world.runner.jobs[token] = Succeeded()
        await world.wait(minutes=5)
        await Pauses(world.tables).put(PipelineId("c"), Pause("migration"))
        await rerun(world, f"a/{DAY}")
        await world.wait(minutes=10)
        await Pauses(world.tables).remove(PipelineId("c"))
        await world.wait(minutes=20)


def slow_if_c(world: World) -> StartScript:
    """A start whose job runs until the test ends it, if it is a job of `c`."""

    def start(request: StartRequest) -> StartAnswer:
        world.runner.at_once = Running() if request.context.pipeline == "c" else Succeeded()
        answer = world.runner.accept(request)
        world.runner.at_once = Succeeded()
        return answer

    return start


# --- bugs: each of them must be found ---------------------------------------------------------------------------------


def _some_item_is_passed(gate: GateResult) -> bool:
    return any(item.is_passed for item in gate.items)


def _yes(_: ItemResult) -> bool:
    return True


def early_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GateResult, "is_passed", property(_some_item_is_passed))


def lost_wake_up(patch: pytest.MonkeyPatch) -> None:
    real = Dependents.run_ended

    async def deaf(self: Dependents, key: keys.RunKey) -> None:
        if key.pipeline != "c":
            await real(self, key)

    patch.setattr(Dependents, "run_ended", deaf)


def double_rerun(patch: pytest.MonkeyPatch) -> None:
    async def at_rest(_: UpstreamReader, __: GateResult) -> None:
        return None

    patch.setattr(UpstreamReader, "_unsettled", at_rest)
    patch.setattr(ItemResult, "is_at_rest", property(_yes))


def forgotten_rerun(patch: pytest.MonkeyPatch) -> None:
    real = UpstreamReader.ended

    async def forget(self: UpstreamReader, found: Run, *rest: Any) -> UpstreamEnded:  # noqa: ANN401 - as it is called
        fact = await real(self, found, *rest)
        return fact if found.key.pipeline != "d" else replace(fact, upstreams={})

    patch.setattr(UpstreamReader, "ended", forget)


BUGS: Final[dict[Callable[[pytest.MonkeyPatch], None], str]] = {
    early_start: "early start|attempts",
    lost_wake_up: "forgotten|stale|attempts",
    double_rerun: "attempts|stale",
    forgotten_rerun: "stale|attempts",
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_is_found(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world, _ = await a_diamond()
        await with_slow_side(world)
        await check(world, 2)

    bug(monkeypatch)

    with pytest.raises(AssertionError, match=BUGS[bug]):
        run(scenario())
