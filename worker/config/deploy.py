"""Deploys and removes configurations, in an order in which a crash in between is harmless."""

from collections.abc import Iterable
from functools import partial
from typing import Final

from worker.config.render import config_hash, to_json
from worker.config.versions import PipelineVersions
from worker.core.dependencies.graph import edges_of
from worker.core.errors import RetryLater
from worker.core.model.content_hash import content_hash
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.run.state import PATH_MAX
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.ids import random_id
from worker.store.repos.config_log import ConfigChange, ConfigLog, ConfigLogEntry
from worker.store.repos.deployments import Deployments
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.schedule_marks import ScheduleMarks
from worker.store.table import StaleWrite, Tables

_NOTE_TRIES_MAX: Final = 5


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


async def deploy(tables: Tables, pipeline: Pipeline, clock: Clock) -> None:
    """Store the version, put it in force, then notify the workers, so that they can find it."""
    version, text = config_hash(pipeline), to_json(pipeline)
    store = Pipelines(tables)
    await store.keep_version(pipeline.id, version, text, clock.now())
    await _note(tables, pipeline.id, text, clock)
    await store.put(pipeline.id, text)
    await _tell(tables, clock, pipeline.id, ConfigChange.CHANGED, version)


async def withdraw(tables: Tables, pipeline: PipelineId, clock: Clock) -> None:
    """Remove a configuration from force and notify the workers. Versions, runs and events stay."""
    await Pipelines(tables).remove(pipeline)
    await forget_times(tables, pipeline)
    await _tell(tables, clock, pipeline, ConfigChange.REMOVED)


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


async def _tell(
    tables: Tables, clock: Clock, pipeline: PipelineId, change: ConfigChange, version: str | None = None
) -> None:
    entry = ConfigLogEntry(id=random_id(), pipeline=pipeline, change=change, config_hash=version)
    await ConfigLog(tables).append(entry, clock.now())
