"""`interlock pipelines list|show|remove`: list, show and remove the configurations in the store."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from worker.cli.commands.push import PushRequest, run_push
from worker.cli.commands.validate import show_problems
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.files import Sources
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.deploy import is_withdrawn_halfway, withdraw
from worker.config.load import Loaded, load_text
from worker.config.render import config_hash, to_mapping, to_yaml
from worker.config.versions import PipelineVersions, Unusable
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.model.values import Json
from worker.core.run.state import Pause
from worker.core.time.timestamps import format_rfc3339
from worker.engine.dependency_index import DependencyIndex
from worker.runtime.clock import Clock
from worker.store.repos.pauses import pause_key, pause_of
from worker.store.repos.pipelines import Pipelines, StoredConfig
from worker.store.rows import BadRow
from worker.store.table import Row, TableName, Tables

HASH_SHOWN = 12
DOWNSTREAMS_NAMED_MAX: Final = 5
DOWNSTREAMS_LISTED_MAX: Final = 100
HEADINGS = ("pipeline", "version", "job", "schedules", "owner", "")


@dataclass(frozen=True, slots=True)
class PipelineEntry:
    """PipelineEntry holds a stored configuration, what could be read of it, and its pause if any."""

    id: PipelineId
    loaded: Loaded
    pause: Pause | None = None

    @property
    def pipeline(self) -> Pipeline | None:
        return self.loaded.pipeline


def entry_of(stored: StoredConfig, today: date) -> PipelineEntry:
    """Read a stored configuration leniently, because other tools deploy too."""
    loaded = load_text(stored.text or "", file=f"stored/{stored.pipeline}", lenient=True, today=today)
    return PipelineEntry(stored.pipeline, loaded)


async def run_list(screen: Screen, access: StoreAccess, *, as_json: bool) -> int:
    async with access.tables() as tables:
        entries = await _entries(tables, access.clock.now())
    unreadable = sum(entry.pipeline is None for entry in entries)
    if as_json:
        for entry in entries:
            screen.record(record_of(entry))
    else:
        if entries:
            styles = ["dim", *(style_of(entry) for entry in entries)]
            screen.table([HEADINGS, *(row_of(entry) for entry in entries)], styles=styles)
        remark = f", {unreadable} cannot be read: see `interlock pipelines show ID`" if unreadable else ""
        screen.line(f"{counted(len(entries), 'pipeline')}{remark}")
    return Exit.PROBLEMS if unreadable else Exit.DONE


async def _entries(tables: Tables, now: datetime) -> list[PipelineEntry]:
    entries = [entry_of(stored, now.date()) async for stored in Pipelines(tables).list()]
    rows = await tables.get_many(TableName.CONTROL, [pause_key(entry.id) for entry in entries])
    pauses = {key: pause for key, row in rows.items() if (pause := _pause(row)) and not pause.is_over(now)}
    return [replace(entry, pause=pauses.get(pause_key(entry.id))) for entry in entries]


def _pause(row: Row) -> Pause | None:
    try:
        return pause_of(row)
    except BadRow as problem:
        return Pause(f"its row cannot be read: {problem}")


def row_of(entry: PipelineEntry) -> tuple[str, ...]:
    if entry.pipeline is None:
        return (entry.id, "", "", "", "", state_of(entry))
    schedules = ", ".join(schedule.id for schedule in entry.pipeline.schedules)
    job = entry.pipeline.job.type.value if entry.pipeline.job else ""
    version = config_hash(entry.pipeline)[:HASH_SHOWN]
    return (entry.id, version, job, schedules, entry.pipeline.owner, state_of(entry))


def state_of(entry: PipelineEntry) -> str:
    if entry.pipeline is None:
        return "cannot be read"
    if entry.pause is not None:
        until = f" until {format_rfc3339(entry.pause.until)}" if entry.pause.until else ""
        return f"paused{until}: {entry.pause.reason}"
    return "in dry run" if entry.pipeline.dry_run else ""


def style_of(entry: PipelineEntry) -> str:
    return "red" if entry.pipeline is None else "yellow" if entry.pause else ""


def record_of(entry: PipelineEntry) -> dict[str, Json]:
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
        "dryRun": pipeline.dry_run,
        "paused": None if entry.pause is None else entry.pause.reason,
        "pausedUntil": format_rfc3339(entry.pause.until) if entry.pause and entry.pause.until else None,
    }


async def run_show(screen: Screen, access: StoreAccess, pipeline: PipelineId, *, as_json: bool) -> int:
    """Print the deployed configuration as a file that can be pushed again."""
    async with access.tables() as tables:
        stored = await Pipelines(tables).get(pipeline)
        if stored is None:
            return await say_unknown(screen, tables, pipeline)
        versions = PipelineVersions(tables)
        judged, in_force = await versions.judged_of(stored), await versions.current(pipeline)
    entry = entry_of(stored, access.clock.now().date())
    if entry.pipeline is None:
        screen.document(stored.text or "")
        show_problems(Screen(out=screen.err, err=screen.err), entry.loaded.errors)
        return Exit.PROBLEMS
    if as_json:
        screen.document(json.dumps(to_mapping(entry.pipeline), indent=2, ensure_ascii=False))
    else:
        screen.document(f"# version {config_hash(entry.pipeline)}\n{to_yaml(entry.pipeline)}")
    if isinstance(judged, Unusable):
        staying = f"version {in_force.config_hash} stays in force" if in_force else "none is in force"
        screen.remark(f"this version was rejected: {judged.problems[0]}; {staying}", style="red")
        return Exit.PROBLEMS
    return Exit.DONE


async def run_remove(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, *, consent: Consent, as_json: bool
) -> int:
    """Remove a configuration from the store; its runs, events, sensors and earlier versions stay."""
    async with access.tables() as tables:
        is_deployed = await Pipelines(tables).get(pipeline) is not None
        if not is_deployed and not await is_withdrawn_halfway(tables, pipeline):
            return await say_unknown(screen, tables, pipeline)
        below = await _downstreams(tables, access.clock, pipeline)
        waits = f" {_named(below)} will wait for it." if below else ""
        if not consent.obtain(screen, f"Remove pipeline {pipeline}? No new run of it will start.{waits}"):
            screen.remark("nothing was removed")
            return Exit.DONE
        await withdraw(tables, pipeline, access.clock)
    if as_json:
        listed: list[Json] = [*below[:DOWNSTREAMS_LISTED_MAX]]
        screen.record({"type": "removed", "id": pipeline, "downstreams": listed, "downstreamsTotal": len(below)})
    else:
        screen.line(f"removed {pipeline}; its runs, events, sensors and earlier versions stay")
    if below:
        what = f"{_named(below)} will wait for {pipeline}"
        screen.remark(f"{what}; push it again, or remove it from their `after`", style="yellow")
    return Exit.DONE


async def _downstreams(tables: Tables, clock: Clock, pipeline: PipelineId) -> tuple[PipelineId, ...]:
    """Return the pipelines that run after one."""
    index = DependencyIndex(tables, PipelineVersions(tables), clock)
    await index.refresh()
    return index.graph.downstreams(pipeline)


def _named(pipelines: Sequence[PipelineId]) -> str:
    more = len(pipelines) - DOWNSTREAMS_NAMED_MAX
    shown = ", ".join(sorted(pipelines)[:DOWNSTREAMS_NAMED_MAX])
    return f"{shown} and {more} more" if more > 0 else shown


pipelines_app = typer.Typer(
    name="pipelines",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Push, list, show and remove pipelines in the store.",
)

PUSH_HELP = f"""Push pipeline files to the store: check, show changes, confirm, write.

Files are checked strictly, and nothing is written if any has an error. Runs under way finish with the configuration \
they began with. A pipeline without a file stays in the store: `interlock pipelines remove` takes it out. If the store \
fails meanwhile, the command names what was not written; push again to continue.

\b
Examples:
  interlock pipelines push pipelines/ --dry-run
  interlock pipelines push pipelines/orders-daily.yaml --yes
  interlock pipelines push pipelines/ --yes --json

{EXIT_CODES}"""

LIST_HELP = f"""List pipelines with version, job, schedules, owner and state.

\b
Examples:
  interlock pipelines list
  interlock pipelines list --json
  interlock pipelines list --store sqlite:///interlock.db

{EXIT_CODES}"""

SHOW_HELP = f"""Show a pipeline's configuration as a file that you can edit and push.

Calendars it uses are written into it.

\b
Examples:
  interlock pipelines show orders-daily
  interlock pipelines show orders-daily --json
  interlock pipelines show orders-daily --yaml

{EXIT_CODES}"""

REMOVE_HELP = f"""Remove a pipeline from the store, so that no new run of it starts.

Its runs, events, sensors and earlier versions stay. Push its file to bring it back. Pipelines that run after it are \
named: their runs wait.

\b
Examples:
  interlock pipelines remove orders-daily --yes
  interlock pipelines remove fraud-scores --yes --json
  interlock pipelines remove payment-files -y

{EXIT_CODES}"""

Id = Annotated[str, typer.Argument(metavar="ID", help="The pipeline's id.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")]


@pipelines_app.command(help=PUSH_HELP)
def push(
    context: typer.Context,
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH", exists=True, help="Pipeline files, or directories of them.")
    ],
    *,
    calendars: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Directory of calendar files.", show_default="next to PATH"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and write nothing.")] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Accept pipelines that run after ones that do not exist yet.")
    ] = False,
    yes: Yes = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    clock: Clock = context.obj
    sources = Sources(paths=paths, calendars=calendars, today=clock.now().date())
    request = PushRequest(
        sources=sources, consent=Consent.by_option(yes), dry_run=dry_run, as_json=as_json, allow_missing=allow_missing
    )
    on_store(context, store, lambda screen, at: run_push(screen, at, request))


@pipelines_app.command("list", help=LIST_HELP)
def list_pipelines(context: typer.Context, *, store: StoreUrl = None, as_json: AsJson = False) -> None:
    on_store(context, store, lambda screen, at: run_list(screen, at, as_json=as_json))


@pipelines_app.command(help=SHOW_HELP)
def show(
    context: typer.Context,
    pipeline: Id,
    *,
    as_json: Annotated[bool, typer.Option("--json/--yaml", help="The form of the file.")] = False,
    store: StoreUrl = None,
) -> None:
    on_store(context, store, lambda screen, at: run_show(screen, at, PipelineId(pipeline), as_json=as_json))


@pipelines_app.command(help=REMOVE_HELP)
def remove(
    context: typer.Context, pipeline: Id, *, yes: Yes = False, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    consent, name = Consent.by_option(yes), PipelineId(pipeline)
    on_store(context, store, lambda screen, at: run_remove(screen, at, name, consent=consent, as_json=as_json))
