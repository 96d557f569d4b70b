"""`interlock archive`: archive events and ended runs up to now, as a worker does while it runs."""

import os
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.settings import ARCHIVE, read_settings
from worker.core.errors import ConfigError
from worker.core.time.timestamps import format_utc
from worker.store.archive_url import parse_archive


async def run_archive(screen: Screen, access: StoreAccess, *, to: str | None, as_json: bool) -> int:
    """Archive every window that is due, one after the other."""
    settings = read_settings(os.environ, store=access.url)
    place = parse_archive("--to", to) if to else settings.archive.target
    if place is None:
        raise ConfigError(f"no archive is named; set {ARCHIVE}, or use --to s3://BUCKET/PREFIX or --to file:DIRECTORY")
    from worker.app.archive import open_archiver  # noqa: PLC0415  the wiring takes long to load

    total: Counter[str] = Counter()
    up_to: datetime | None = None
    async with AsyncExitStack() as stack:
        tables = await stack.enter_async_context(access.tables())
        archiver = await open_archiver(stack, settings, place, tables=tables, clock=access.clock)
        while (report := await archiver.step(lambda: True)) is not None:
            total.update(events=report.events, runs=report.runs, objects=report.objects)
            up_to = max(up_to or report.window.end, report.window.end)
            if as_json and report.objects:
                screen.record(
                    {
                        "type": "archivedWindow",
                        "start": format_utc(report.window.start),
                        "end": format_utc(report.window.end),
                        "events": report.events,
                        "runs": report.runs,
                        "objects": report.objects,
                        "again": report.is_again,
                    }
                )
    _show_total(screen, str(place), total, up_to, as_json=as_json)
    return Exit.DONE


def _show_total(screen: Screen, place: str, total: Counter[str], up_to: datetime | None, *, as_json: bool) -> None:
    if as_json:
        numbers = {name: total[name] for name in ("events", "runs", "objects")}
        reached = None if up_to is None else format_utc(up_to)
        screen.record({"type": "archive", "target": place, "upTo": reached, **numbers})
    elif up_to is None:
        screen.line("the archive is up to date")
    else:
        what = f"{counted(total['events'], 'event')} and {counted(total['runs'], 'run')}"
        screen.line(f"archived {what} in {counted(total['objects'], 'object')}, up to {format_utc(up_to)}")


archive_app = typer.Typer()

ARCHIVE_HELP = f"""Archive events and ended runs before the store deletes them.

A worker with {ARCHIVE} does this once a minute. The command does the same until nothing is due: windows that ended at \
least 2 minutes ago. It continues where the last archiving to the same target stopped, and running it twice, or while \
a worker archives, is safe.

\b
Examples:
  interlock archive --to file:archive
  interlock archive --to s3://example-history/interlock
  interlock archive --json

{EXIT_CODES}"""


@archive_app.command("archive", help=ARCHIVE_HELP)
def archive(
    context: typer.Context,
    *,
    to: Annotated[
        str | None,
        typer.Option(metavar="URL", help="s3://BUCKET/PREFIX or file:DIRECTORY.", show_default=ARCHIVE),
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    on_store(context, store, lambda screen, at: run_archive(screen, at, to=to, as_json=as_json))
