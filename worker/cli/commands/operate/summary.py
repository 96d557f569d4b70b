"""`interlock summary`: a running job says how many records it saw, processed, skipped and failed on."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.errors import ConfigError
from worker.core.model.keys import RunKey, run_key_of_name
from worker.core.model.summaries import summary_text
from worker.operations.record_ledgers import holder_in
from worker.operations.runs.summaries import parse_counts, put_summary

SUMMARY_HELP = "Save how many records a running job saw, processed, skipped and failed on."

PUT_HELP = f"""Save counts of the running job: seen, processed, skipped, errored.

They are the summary of the run: among its outputs, in `history`, in the console and in the event JOB_COMPLETED, and
post-run rules can check them. A later put changes the counts that it names; put before the job ends.

\b
Examples:
  interlock summary put seen=1200 processed=3 skipped=1197 errored=0
  interlock summary put errored=2 --run orders/daily/2026-11-16

{EXIT_CODES}"""

summary_app = typer.Typer(name="summary", no_args_is_help=True, rich_markup_mode="rich", help=SUMMARY_HELP)


def target(run: str | None, attempt: int | None) -> tuple[RunKey, int | None]:
    """Return the run that was named, else the command job's. Raises `ConfigError` if there is neither."""
    inside = holder_in(lambda name: os.environ.get(name, ""))
    if run is None and inside is None:
        raise ConfigError("outside of a command job, name the run with --run PIPELINE/SCHEDULE/PERIOD")
    if run is None and inside is not None:
        run, attempt = inside.run, attempt or inside.attempt
    key = run_key_of_name(run or "")
    if key is None:
        raise ConfigError(f"{run!r} names no run; use PIPELINE/SCHEDULE/PERIOD, such as orders/daily/2026-11-16")
    return key, attempt


async def run_put(
    screen: Screen, access: StoreAccess, key: RunKey, attempt: int | None, words: Sequence[str], *, as_json: bool
) -> int:
    """Save the counts, and show the whole summary."""
    counts = parse_counts(words)
    async with access.tables() as tables:
        summary = await put_summary(tables, access.clock, key, attempt, counts)
    if as_json:
        names = {"pipeline": key.pipeline, "schedule": key.schedule, "period": str(key.period)}
        screen.record({"type": "run-summary", **names, "summary": dict(summary)})
    else:
        screen.line(f"{key}: {summary_text(summary)}")
    return Exit.DONE


@summary_app.callback()
def summary_group() -> None:
    """Keep `put` a word of its own: a group with one command would otherwise lose it."""


@summary_app.command(help=PUT_HELP)
def put(
    context: typer.Context,
    counts: Annotated[list[str], typer.Argument(metavar="NAME=NUMBER", help="seen, processed, skipped, errored.")],
    *,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="RUN", help="PIPELINE/SCHEDULE/PERIOD.", show_default="the command job's run"),
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Its attempt.", show_default="the current one")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_put(screen, at, *target(run, attempt), counts, as_json=as_json)

    on_store(context, store, work)
