"""A world of several pipelines that run after each other: jobs succeed at once unless the test says otherwise."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.support.worlds.engine import World, a_world
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.keys import RunKey, run_key_of_name
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import FailureCategory, Run, State
from worker.core.time.timestamps import format_rfc3339
from worker.jobs.runner import Failed, JobStatus, Running, StartAnswer, StartRequest, Succeeded
from worker.store.repos.events import Events, StoredEvent
from worker.store.repos.requests import Requests, RerunRequest
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.table import Tables

ROOT = """
pipeline: {{id: {name}}}
schedule:
  trigger: {{key: ready, check: equals, field: status, value: done}}
  {more}
job: {{type: command, config: {{command: "true"}}, maxRetries: 0, maxDriftReruns: {drift}}}
"""
AFTER = """
pipeline: {{id: {name}}}
schedule:
  {more}
  after:
{after}
job: {{type: command, config: {{command: "true"}}, maxRetries: 0, maxDriftReruns: {drift}}}
"""


def root(name: str, more: str = "", drift: int = 1) -> str:
    return ROOT.format(name=name, more=more, drift=drift)


def after(name: str, upstreams: Iterable[str], more: str = "", drift: int = 1) -> str:
    """The text of a pipeline; each upstream is a name, or a YAML mapping."""
    items = "\n".join(f"    - {each if each.startswith('{') else f'{{pipeline: {each}}}'}" for each in upstreams)
    return AFTER.format(name=name, more=more, after=items, drift=drift)


async def a_chain(*texts: str) -> World:
    world = await a_world()
    world.runner.at_once = Succeeded()
    await push(world.tables, world, *texts)
    return world


async def push(tables: Tables, world: World, *texts: str) -> None:
    for text in texts:
        loaded = load_text(text)
        assert loaded.pipeline is not None, loaded.errors
        await deploy(tables, loaded.pipeline, world.clock)


def key_of(name: str) -> RunKey:
    """`orders/2026-03-03` or `orders/nightly/2026-03-03`."""
    pipeline, _, rest = name.partition("/")
    key = run_key_of_name(name if "/" in rest else f"{pipeline}/stream/{rest}")
    assert key is not None
    return key


@dataclass
class Starts:
    """What the jobs of each run are to do, in order of its attempts; the default is to succeed at once."""

    plans: dict[str, list[JobStatus]] = field(default_factory=dict[str, list[JobStatus]])
    tokens: dict[str, str] = field(default_factory=dict[str, str])


async def ready(world: World, pipeline: str, period: str, **data: Json) -> None:
    day, _, hour = period.partition("T")
    named: dict[str, Json] = {"date": day, **({"hour": hour} if hour else {})}
    await Sensors(world.tables).put(PipelineId(pipeline), f"ready#{period}", {"status": "done", **named, **data})


async def run_of(world: World, name: str) -> Run | None:
    found = await Runs(world.tables).load(key_of(name))
    assert found is None or isinstance(found, Run)
    return found


async def state_of(world: World, name: str) -> State | None:
    run = await run_of(world, name)
    return None if run is None else run.state


async def attempt_of(world: World, name: str) -> int:
    run = await run_of(world, name)
    return 0 if run is None else run.attempt


async def rerun(world: World, name: str, reason: str = "replay", *, is_followed: bool = False) -> None:
    key, requests = key_of(name), Requests(world.tables)
    request = RerunRequest(
        reason=reason,
        requested_at=format_rfc3339(world.clock.now()),
        id=f"person-{next(world.numbers)}",
        is_followed=is_followed,
    )
    await requests.ask_rerun(key, request, await requests.rerun_of(key))


async def told(world: World, pipeline: str, *types: str) -> list[StoredEvent]:
    found = await Events(world.tables).latest(PipelineId(pipeline))
    return [each for each in reversed(found) if not types or each.event.type in types]


FAILED = Failed(FailureCategory.PERMANENT, "exit code 3")

__all__ = ["FAILED", "Running", "StartAnswer", "StartRequest", "Succeeded"]
