"""No page and no answer about a run holds up the event loop, whatever the patterns of its rules cost."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from tests.support.builders.cli_runs import a_stored_run, key_of
from tests.support.worlds.console import MORNING, YESTERDAY, ConsoleWorld, a_console_world
from worker.config.versions import PipelineVersions
from worker.core.model.patterns import TEXT_CHARS_MAX, compile_pattern
from worker.core.model.pipeline import PipelineId
from worker.core.model.rules import STEPS_PER_TURN
from worker.core.run.state import State
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables
from worker.web.live.facts import NamedRun
from worker.web.live.sentences import WaitSentences

# Each takes about as much as any accepted pattern, and fails. They differ, so that none profits from the moves of
# another.
PATTERNS: Final = [f".*a(b?.){{40}}.{{{900 + number}}}c" for number in range(5)]
TEXT: Final = "".join(random.Random(1).choice("ab") for _ in range(TEXT_CHARS_MAX))
COSTLY: Final = """\
pipeline: {id: orders}
schedule: {trigger: {key: ready, check: exists}}
job: {type: command, config: {command: load}}
validation:
  rules:
""" + "".join(f'    - {{key: export, check: matches, field: it, value: "{pattern}"}}\n' for pattern in PATTERNS)
RUN: Final = f"/runs/orders/stream/{YESTERDAY}"


class Turns:
    """Counts the steps that the patterns take, in total and between two turns of another task of the loop."""

    def __init__(self) -> None:
        self._seen = self._steps()
        self.longest = self.total = 0

    async def watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0)

    def look(self) -> None:
        seen = self._steps()
        taken, self._seen = seen - self._seen, seen
        self.total += taken
        self.longest = max(self.longest, taken)

    @staticmethod
    def _steps() -> int:
        return sum(compile_pattern(pattern).steps for pattern in PATTERNS)


async def a_waiting_run(tables: Tables) -> None:
    orders = PipelineId("orders")
    await Pipelines(tables).put(orders, COSTLY)
    versions = PipelineVersions(tables)
    version = await versions.current(orders)
    assert version is not None
    await versions.persist(version)
    await Sensors(tables).put(orders, f"export#{YESTERDAY}", {"it": TEXT})
    await Runs(tables).save(a_stored_run(State.EVALUATING, version.config_hash, key=key_of(YESTERDAY), since=MORNING))


async def page(world: ConsoleWorld) -> str:
    return (await world.get(RUN)).text


async def explanation(world: ConsoleWorld) -> str:
    return (await world.get(f"/api/v1{RUN}/explanation")).text


async def record(world: ConsoleWorld) -> str:
    return (await world.get(f"/api/v1{RUN}")).text


async def sentence_of_a_list(world: ConsoleWorld) -> str:
    run = NamedRun(key=str(key_of(YESTERDAY)), pipeline="orders", schedule="stream", period=YESTERDAY)
    return (await WaitSentences(world.tables, world.clock).of([run]))[run.key]


@pytest.mark.parametrize("ask", [page, explanation, record, sentence_of_a_list])
async def test_others_get_a_turn_while_rules_are_evaluated_and_each_is_evaluated_once(
    ask: Callable[[ConsoleWorld], Awaitable[str]],
) -> None:
    async with a_console_world() as world:
        await a_waiting_run(world.tables)
        turns = Turns()

        async with asyncio.TaskGroup() as group:
            watching = group.create_task(turns.watch(), name="watch")
            answer = await ask(world)
            turns.look()
            watching.cancel()

    assert "export.it is" in answer
    each = [compile_pattern(pattern).steps_max(TEXT) for pattern in PATTERNS]
    assert turns.longest <= STEPS_PER_TURN + max(each)  # what one turn allows, and the rule that goes beyond
    assert max(each) < turns.total <= sum(each)
