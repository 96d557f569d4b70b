"""Writes the demo's made-up runs, so that its console has something to show.

The rows are those that a worker would have written: a run and its deadline with its events in one commit, and the
sensors they were started on. No alert is sent for them.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from worker.cli.demo.past_runs import DAILY, HOURLY, PastRun, due_tonight, past_runs, unusual_runs
from worker.config.versions import PipelineVersions
from worker.core.errors import ConfigError
from worker.core.model.content_hash import content_hash
from worker.core.model.job_data import JobInput, JobInputs
from worker.core.model.pipeline import PipelineId
from worker.core.time.timestamps import format_rfc3339
from worker.store.repos.events import unsent_event_write
from worker.store.repos.run_data import inputs_write
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.repos.sla_watches import save_write
from worker.store.table import Tables, Write

HALF_AN_HOUR: Final = timedelta(minutes=30)


async def write_history(tables: Tables, now: datetime) -> int:
    """Write all of it into a store that has the demo's pipelines; return how many runs there are."""
    versions = PipelineVersions(tables)
    hashes: dict[str, str] = {}
    for pipeline in {*(each.id for each in DAILY), *HOURLY}:
        version = await versions.current(PipelineId(pipeline))
        if version is None:
            raise ConfigError(f"the demo's pipeline {pipeline} is not in the store; push it first")
        await versions.persist(version)
        hashes[pipeline] = version.config_hash
    runs = [*past_runs(now), *unusual_runs(now)]
    for each in runs:
        await _write(tables, _with_version(each, hashes[each.run.key.pipeline]))
    watch = due_tonight(now, hashes["stock-levels"])
    if watch is not None:
        await tables.commit(save_write(watch))
    return len(runs)


async def _write(tables: Tables, past: PastRun) -> None:
    run, extra = past.run, list[Write]()
    if past.sensor:
        key = f"{past.sensor}#{run.key.period}"
        # Before the run, as in life: a worker that looks in between finds a sensor whose run is still to come.
        await Sensors(tables).put(run.key.pipeline, key, past.data)
        if past.also:
            arrived = format_rfc3339((run.created_at - HALF_AN_HOUR).replace(microsecond=0))
            await Sensors(tables).put(run.key.pipeline, f"{past.also}#{run.key.period}", {"updatedAt": arrived})
        digest = content_hash(past.data)
        run = replace(run, late_reported=digest, started_on={key: digest} if run.is_ended else {})
        if run.is_ended:
            inputs = JobInputs(attempt=run.attempt, inputs={key: JobInput(content_hash=digest, data=past.data)})
            extra.append(inputs_write(run.key, inputs, run.since))
    if past.watch is not None:
        extra.append(save_write(past.watch))
    await Runs(tables).save(run, *extra, *map(unsent_event_write, past.events))


def _with_version(past: PastRun, config_hash: str) -> PastRun:
    watch = None if past.watch is None else replace(past.watch, config_hash=config_hash)
    return replace(past, run=replace(past.run, config_hash=config_hash), watch=watch)
