"""Putting a configuration in force, and taking it back, in the order in which a crash in between does no harm."""

import secrets

from worker.clock import Clock
from worker.core.pipeline import Pipeline, PipelineId
from worker.render import config_hash, to_json
from worker.store.configlog import ConfigChange, ConfigLog, ConfigLogEntry
from worker.store.pipelines import Pipelines
from worker.store.table import Tables


async def deploy(tables: Tables, pipeline: Pipeline, clock: Clock) -> None:
    """Keep the version, then put it in force, then tell the workers: whoever hears of it finds it."""
    version, text = config_hash(pipeline), to_json(pipeline)
    store = Pipelines(tables)
    await store.keep_version(pipeline.id, version, text)
    await store.put(pipeline.id, text)
    await _tell(tables, clock, pipeline.id, ConfigChange.CHANGED, version)


async def withdraw(tables: Tables, pipeline: PipelineId, clock: Clock) -> None:
    """Take a configuration out of force, and tell the workers. Versions, runs and events stay."""
    await Pipelines(tables).remove(pipeline)
    await _tell(tables, clock, pipeline, ConfigChange.REMOVED)


async def _tell(
    tables: Tables, clock: Clock, pipeline: PipelineId, change: ConfigChange, version: str | None = None
) -> None:
    entry = ConfigLogEntry(id=secrets.token_hex(8), pipeline=pipeline, change=change, config_hash=version)
    await ConfigLog(tables).append(entry, clock.now())
