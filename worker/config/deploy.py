"""Deploys and removes configurations, in an order in which a crash in between is harmless."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from worker.config.render import config_hash, to_json
from worker.config.versions import PipelineVersions
from worker.core.dependencies.graph import edges_of
from worker.core.errors import RetryLater, WorkerError
from worker.core.model.content_hash import content_hash
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.run.state import PATH_MAX
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.ids import NewId, random_id
from worker.store.repos.config_log import ConfigChange, ConfigLog, ConfigLogEntry, append_many_write
from worker.store.repos.deployments import Deployments, noted_write
from worker.store.repos.pipelines import Pipelines, version_write
from worker.store.repos.schedule_marks import ScheduleMarks
from worker.store.table import StaleWrite, Tables

_NOTE_TRIES_MAX: Final = 5
# Many pipelines are deployed in groups: of each pipeline, two rows are written together with those of its group.
GROUP_MAX: Final = 25
GROUP_BYTES_MAX: Final = 1_000_000  # a transaction of DynamoDB holds 4 MB
GROUPS_AT_ONCE: Final = 3
GROUP_TRIES: Final = Backoff(attempts_max=5, first_s=0.5, longest_s=8.0)


async def upstreams_of(configs: PipelineVersions, pipelines: Iterable[Pipeline]) -> dict[PipelineId, Pipeline]:
    """Return the deployed pipelines above the given ones, level by level; the given ones are left out."""
    given = {pipeline.id: pipeline for pipeline in pipelines}
    found: dict[PipelineId, Pipeline] = {}
    level = [edge.upstream for pipeline in given.values() for edge in edges_of(pipeline)]
    for _ in range(PATH_MAX + 1):
        missing = [name for name in dict.fromkeys(level) if name not in given and name not in found]
        read = await gather_bounded([partial(configs.current, name) for name in missing])
        new = [version.pipeline for version in read if version is not None]
        found.update({pipeline.id: pipeline for pipeline in new})
        level = [edge.upstream for pipeline in new for edge in edges_of(pipeline)]
        if not level:
            break
    return found


async def deploy(tables: Tables, pipeline: Pipeline, clock: Clock, new_id: NewId = random_id) -> None:
    """Store the version, put it in force, then notify the workers, so that they can find it."""
    version, text = config_hash(pipeline), to_json(pipeline)
    store = Pipelines(tables)
    await store.keep_version(pipeline.id, version, text, clock.now())
    await _note(tables, pipeline.id, text, clock)
    await store.put(pipeline.id, text)
    entry = ConfigLogEntry(id=new_id(), pipeline=pipeline.id, change=ConfigChange.CHANGED, config_hash=version)
    await ConfigLog(tables).append(entry, clock.now())


async def deploy_many(
    tables: Tables, pipelines: Sequence[Pipeline], clock: Clock, deployed: Callable[[PipelineId], None]
) -> None:
    """Deploy pipelines, several at once, and call `deployed` for each one that is in force.

    Each is deployed in the same order of steps as by `deploy`. After an error no other group begins, those under way
    finish, and the error is raised. Deploying all of them again continues.
    """
    groups = deque(_groups(pipelines))
    problems: list[WorkerError] = []

    async def work() -> None:
        while groups and not problems:
            group = groups.popleft()
            try:
                await _deploy_group_patiently(tables, group, clock, deployed)
            except WorkerError as problem:
                problems.append(problem)

    async with asyncio.TaskGroup() as tasks:
        for number in range(GROUPS_AT_ONCE):
            tasks.create_task(work(), name=f"deploy:{number}")
    if problems:
        raise problems[0]


async def _deploy_group_patiently(
    tables: Tables, group: "Sequence[_ToDeploy]", clock: Clock, deployed: Callable[[PipelineId], None]
) -> None:
    """Deploy a group; try again what the store did not take, because it may be throttled."""
    in_force: dict[PipelineId, _ToDeploy] = {}
    for tries in range(1, GROUP_TRIES.attempts_max + 1):
        try:
            return await _deploy_group(tables, group, clock, in_force, deployed)
        except RetryLater:
            if tries == GROUP_TRIES.attempts_max:
                raise
            await clock.sleep(GROUP_TRIES.wait_s(tries))
    return None


async def _deploy_group(
    tables: Tables,
    group: "Sequence[_ToDeploy]",
    clock: Clock,
    in_force: "dict[PipelineId, _ToDeploy]",
    deployed: Callable[[PipelineId], None],
) -> None:
    """Deploy those of a group that are not in force yet, then notify the workers of all that are."""
    problems: list[WorkerError] = []

    async def put(each: _ToDeploy) -> None:
        try:
            await Pipelines(tables).put(each.pipeline, each.text)
        except WorkerError as problem:
            problems.append(problem)
        else:
            in_force[each.pipeline] = each
            deployed(each.pipeline)

    if left := [each for each in group if each.pipeline not in in_force]:
        await _keep_group(tables, left, clock)
        async with asyncio.TaskGroup() as tasks:
            for each in left:
                tasks.create_task(put(each), name=f"deploy:{each.pipeline}")
    if in_force:
        await tables.commit(append_many_write([each.entry() for each in in_force.values()], clock.now()))
    if problems:
        raise problems[0]


async def _keep_group(tables: Tables, group: "Sequence[_ToDeploy]", clock: Clock) -> None:
    """Store the versions and deployments of a group in one commit; one by one if some are there already."""
    now = clock.now()
    seen = await Deployments(tables).load([each.pipeline for each in group])
    versions = [version_write(each.pipeline, each.version, each.text, now) for each in group]
    notes = [noted_write(each.pipeline, seen.get(each.pipeline), content_hash(each.text), now) for each in group]
    try:
        await tables.commit(*versions, *(write for write in notes if write is not None))
    except StaleWrite:
        for each in group:
            await Pipelines(tables).keep_version(each.pipeline, each.version, each.text, now)
            await _note(tables, each.pipeline, each.text, clock)


@dataclass(frozen=True, slots=True)
class _ToDeploy:
    pipeline: PipelineId
    version: str
    text: str

    def entry(self) -> ConfigLogEntry:
        return ConfigLogEntry(
            id=random_id(), pipeline=self.pipeline, change=ConfigChange.CHANGED, config_hash=self.version
        )


def _groups(pipelines: Iterable[Pipeline]) -> Iterator[list[_ToDeploy]]:
    group: list[_ToDeploy] = []
    size = 0
    for pipeline in pipelines:
        each = _ToDeploy(pipeline.id, config_hash(pipeline), to_json(pipeline))
        if group and (len(group) == GROUP_MAX or size + len(each.text) > GROUP_BYTES_MAX):
            yield group
            group, size = [], 0
        group.append(each)
        size += len(each.text)
    if group:
        yield group


async def withdraw(tables: Tables, pipeline: PipelineId, clock: Clock) -> None:
    """Remove a configuration from force and notify the workers. Versions, runs and events stay.

    Safe to repeat after a crash.
    """
    await Pipelines(tables).remove(pipeline)
    await ScheduleMarks(tables).forget(pipeline)
    await _tell(tables, clock, pipeline, ConfigChange.REMOVED)
    await Deployments(tables).forget(pipeline)  # last: until then `is_withdrawn_halfway` finds the removal


async def is_withdrawn_halfway(tables: Tables, pipeline: PipelineId) -> bool:
    """Return whether a process died while it removed the configuration."""
    deployed = await Deployments(tables).accepted(pipeline)
    return deployed is not None and await Pipelines(tables).get(pipeline) is None


async def accept(tables: Tables, pipeline: PipelineId, clock: Clock) -> bool:
    """Let the cron of a pipeline older than this installation fire from now on; False if it already does."""
    is_news = await Deployments(tables).accept(pipeline, clock.now())
    # Notify in any case: an earlier attempt may have stopped in between.
    await _tell(tables, clock, pipeline, ConfigChange.CHANGED)
    return is_news


async def forget_times(tables: Tables, pipeline: PipelineId) -> None:
    """Delete a pipeline's schedule marks: no time counts as missed while it was not deployed.

    After the next deployment its cron starts from that time.
    """
    await Deployments(tables).forget(pipeline)
    await ScheduleMarks(tables).forget(pipeline)


async def _note(tables: Tables, pipeline: PipelineId, text: str, clock: Clock) -> None:
    for _ in range(_NOTE_TRIES_MAX):
        try:
            return await Deployments(tables).note(pipeline, content_hash(text), clock.now(), is_new=True)
        except StaleWrite:
            continue  # a worker recorded the earlier deployment
    raise RetryLater(f"others deploy {pipeline} again and again at this moment; try again later")


async def _tell(tables: Tables, clock: Clock, pipeline: PipelineId, change: ConfigChange) -> None:
    entry = ConfigLogEntry(id=random_id(), pipeline=pipeline, change=change)
    await ConfigLog(tables).append(entry, clock.now())
