"""`interlock inbox watch` and `interlock inbox parts`: a folder as a bucket, and what was collected."""

import asyncio
import os
from pathlib import Path
from typing import Annotated, Final

import typer

from consumers.inbox.consumer import SensorInbox
from consumers.inbox.folder import FolderObjects, FolderWatch
from consumers.inbox.notifications import ObjectNotification
from consumers.inbox.rules import Rules
from consumers.inbox.rules_file import rules_from
from worker.cli.commands.inbox import RulesFile, inbox_app
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store, on_store_until_interrupted
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.truncation import RAISE_LIMIT, Truncation, report
from worker.config.settings import INBOX
from worker.core.errors import ConfigError, Rejected
from worker.core.model.ids import PipelineId
from worker.store.repos.delivery.part_collections import CollectionKey, PartCollections
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sensors import Sensors

LISTED_MAX: Final = 1000

WATCH_HELP = f"""Turn the files of a folder into sensors, as a worker does with the objects of a bucket.

The folder stands for the bucket that the rules name. Runs until Ctrl-C. Files that are already there count too; each \
is reported once for each content. Write a file under a name that ends in .tmp, then rename it.

\b
Examples:
  interlock inbox watch landing/ --rules inbox.yaml
  interlock inbox watch /data/in --bucket landing --rules inbox.yaml

{EXIT_CODES}"""

PARTS_HELP = f"""List the objects that a rule with `collect` has for a sensor.

SENSOR is the sensor's key with its period. The list says if it is cut.

\b
Examples:
  interlock inbox parts orders parts#2026-03-03
  interlock inbox parts orders parts#2026-03-03 --limit 20000 --json

{EXIT_CODES}"""


async def run_watch(screen: Screen, access: StoreAccess, rules: Rules, folder: Path, bucket: str) -> int:
    """Report files until cancelled; a file that no rule can use is shown, and does not stop the others."""
    async with access.tables() as tables:
        inbox = SensorInbox(tables, rules, access.clock, FolderObjects(folder, bucket))

        async def take_in(news: ObjectNotification) -> None:
            try:
                await inbox.take_in(news)
            except Rejected as refusal:
                screen.remark(str(refusal), style="red")

        screen.line(f"watching {folder} as the bucket {bucket}; stop with Ctrl-C")
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(inbox.collector.run(), name="collections")
            tasks.create_task(FolderWatch(folder, bucket, access.clock, take_in).run(), name="folder")
    return Exit.DONE


async def run_parts(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, sensor: str, *, limit: int, as_json: bool
) -> int:
    """List the objects of a collection in the order of their keys, at most `limit`."""
    async with access.tables() as tables:
        found = await Sensors(tables).get(pipeline, sensor)
        if found is None and await Pipelines(tables).get(pipeline) is None:
            return await say_unknown(screen, tables, pipeline)
        rule = None if found is None else found.data.get("rule")
        if found is None or not isinstance(rule, str):
            raise Rejected(
                f"{pipeline} has no sensor {sensor!r} that a rule with `collect` writes; give its key with the period, "
                f"as `interlock sensor list {pipeline}` shows it"
            )
        key = CollectionKey(rule=rule, pipeline=pipeline, sensor=sensor)
        parts = sorted([part async for part in PartCollections(tables).parts(key)], key=lambda part: part.key)
    for part in parts[:limit]:
        state = "missing" if part.is_missing else "there" if part.etag else "deleted"
        if as_json:
            record = {"key": part.key, "etag": part.etag, "size": part.size, "state": state}
            screen.record({"type": "inbox-part", **record, "version": part.version})
        else:
            screen.line(f"{part.key}  {part.size:,} bytes  {state}")
    if len(parts) > limit:
        cut = Truncation(what="objects", shown=limit, total=len(parts), hint=RAISE_LIMIT)
        report(screen, [cut], as_json=as_json)
    elif not as_json:
        screen.line(f"{counted(len(parts), 'object')}: {found.data.get('reason')}")
    return Exit.DONE


@inbox_app.command(help=WATCH_HELP)
def watch(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to watch, with all folders in it.")],
    *,
    rules: RulesFile = None,
    bucket: Annotated[
        str, typer.Option(metavar="NAME", help="The bucket it stands for.", show_default="the folder's name")
    ] = "",
    store: StoreUrl = None,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        if not await asyncio.to_thread(folder.is_dir):
            raise ConfigError(f"{folder} is no folder; create it, or name another")
        found = rules_from(rules or os.environ.get(INBOX, ""))
        return await run_watch(screen, at, found, folder, bucket or folder.resolve().name)

    on_store_until_interrupted(context, store, work)


@inbox_app.command(help=PARTS_HELP)
def parts(
    context: typer.Context,
    pipeline: Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline of the sensor.")],
    sensor: Annotated[str, typer.Argument(metavar="SENSOR", help="The sensor's key with its period.")],
    *,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="List at most this many.")] = LISTED_MAX,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_parts(screen, at, PipelineId(pipeline), sensor, limit=limit, as_json=as_json)

    on_store(context, store, work)
