"""`interlock pipelines list|show|remove`: the configurations in the store."""

import json
from dataclasses import dataclass
from datetime import date

from worker.cli.consent import Consent
from worker.cli.console import Screen, counted
from worker.cli.onstore import Exit, StoreAccess
from worker.cli.validate import show_problems
from worker.config import Loaded, load_text
from worker.core.pipeline import Pipeline, PipelineId
from worker.core.values import Json
from worker.deployment import withdraw
from worker.loading.problems import suggest
from worker.render import config_hash, to_mapping, to_yaml
from worker.store.pipelines import Pipelines, StoredConfig
from worker.store.table import Tables

HASH_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Entry:
    """A configuration in the store, and what could be understood of it."""

    id: PipelineId
    loaded: Loaded

    @property
    def pipeline(self) -> Pipeline | None:
        return self.loaded.pipeline


def entry_of(stored: StoredConfig, today: date) -> Entry:
    """Rows in the store are read leniently: others deploy, too."""
    loaded = load_text(stored.text or "", file=f"stored/{stored.pipeline}", lenient=True, today=today)
    return Entry(stored.pipeline, loaded)


async def run_list(screen: Screen, access: StoreAccess, *, as_json: bool) -> int:
    today = access.clock.now().date()
    async with access.tables() as tables:
        entries = [entry_of(stored, today) async for stored in Pipelines(tables).list()]
    unreadable = sum(entry.pipeline is None for entry in entries)
    if as_json:
        for entry in entries:
            screen.record(record_of(entry))
    else:
        screen.table([row_of(entry) for entry in entries], styles=["" if e.pipeline else "red" for e in entries])
        remark = f", {unreadable} cannot be read: see `interlock pipelines show ID`" if unreadable else ""
        screen.line(f"{counted(len(entries), 'pipeline')}{remark}")
    return Exit.PROBLEMS if unreadable else Exit.DONE


def row_of(entry: Entry) -> tuple[str, str, str, str, str]:
    if entry.pipeline is None:
        return (entry.id, "", "", "", "cannot be read")
    schedules = ", ".join(schedule.id for schedule in entry.pipeline.schedules)
    job = entry.pipeline.job.type.value if entry.pipeline.job else ""
    return (entry.id, config_hash(entry.pipeline)[:HASH_SHOWN], job, schedules, entry.pipeline.owner)


def record_of(entry: Entry) -> dict[str, Json]:
    pipeline = entry.pipeline
    if pipeline is None:
        return {"type": "pipeline", "id": entry.id, "errors": [error.message for error in entry.loaded.errors]}
    return {
        "type": "pipeline",
        "id": entry.id,
        "configHash": config_hash(pipeline),
        "job": pipeline.job.type.value if pipeline.job else None,
        "schedules": [schedule.id for schedule in pipeline.schedules],
        "owner": pipeline.owner,
    }


async def run_show(screen: Screen, access: StoreAccess, pipeline: PipelineId, *, as_json: bool) -> int:
    """Print the configuration in force as a file that can be pushed again."""
    async with access.tables() as tables:
        stored = await Pipelines(tables).get(pipeline)
        if stored is None:
            return await say_unknown(screen, tables, pipeline)
    entry = entry_of(stored, access.clock.now().date())
    if entry.pipeline is None:
        screen.document(stored.text or "")
        show_problems(Screen(out=screen.err, err=screen.err), entry.loaded.errors)
        return Exit.PROBLEMS
    if as_json:
        screen.document(json.dumps(to_mapping(entry.pipeline), indent=2, ensure_ascii=False))
    else:
        screen.document(f"# version {config_hash(entry.pipeline)}\n{to_yaml(entry.pipeline)}")
    return Exit.DONE


async def run_remove(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, *, consent: Consent, as_json: bool
) -> int:
    """Take a configuration out of force; everything that happened stays."""
    async with access.tables() as tables:
        if await Pipelines(tables).get(pipeline) is None:
            return await say_unknown(screen, tables, pipeline)
        if not consent.obtain(screen, f"Remove pipeline {pipeline}? No new run of it will start."):
            screen.remark("nothing was removed")
            return Exit.DONE
        await withdraw(tables, pipeline, access.clock)
    if as_json:
        screen.record({"type": "removed", "id": pipeline})
    else:
        screen.line(f"removed {pipeline}; its runs, events, sensors and earlier versions stay")
    return Exit.DONE


async def say_unknown(screen: Screen, tables: Tables, pipeline: PipelineId) -> int:
    hint = await suggestion(tables, pipeline) or "`interlock pipelines list` shows what there is"
    screen.remark(f"there is no pipeline {pipeline} in the store", style="red")
    screen.remark(f"    {hint}")
    return Exit.PROBLEMS


async def suggestion(tables: Tables, pipeline: PipelineId) -> str:
    """`did you mean …?`, or nothing if no pipeline of the store has a name like it."""
    return suggest(pipeline, [stored.pipeline async for stored in Pipelines(tables).list()])
