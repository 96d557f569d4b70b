"""`interlock lineage`: show which pipelines run after which, and how far their runs are."""

from typing import Annotated

import typer

from worker.cli.terminal.arguments import read_period
from worker.cli.terminal.console import Screen
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.versions import PipelineVersions
from worker.core.model.ids import PipelineId
from worker.core.run.state import PATH_MAX
from worker.core.time.periods import Period
from worker.operations.pipelines.lineage import LineageReader
from worker.operations.pipelines.lineage_text import LineageFormat, as_dot, as_mermaid, as_text

lineage_app = typer.Typer()

LINEAGE_HELP = f"""Show which pipelines run after which.

Without PIPELINE the whole graph is shown. With --period, each pipeline shows the runs that belong to that run of \
PIPELINE, with their state, duration and deadline.

\b
Examples:
  interlock lineage
  interlock lineage gold-orders --period 2026-11-15
  interlock lineage gold-orders --up 1 --down 0 --format mermaid
  interlock lineage --json

{EXIT_CODES}"""


async def run_lineage(
    screen: Screen,
    access: StoreAccess,
    pipeline: str | None,
    period: Period | None,
    *,
    shown: LineageFormat,
    reach: tuple[int, int],
) -> int:
    async with access.tables() as tables:
        configs = PipelineVersions(tables)
        named = PipelineId(pipeline) if pipeline else None
        if named is not None and await configs.current(named) is None:
            return await say_unknown(screen, tables, named)
        found = await LineageReader(tables, configs, access.clock).of(named, period, up=reach[0], down=reach[1])
    if shown is LineageFormat.JSON:
        screen.record({"type": "lineage", **found.record})
        return Exit.DONE
    render = {LineageFormat.TEXT: as_text, LineageFormat.MERMAID: as_mermaid, LineageFormat.DOT: as_dot}[shown]
    if shown is LineageFormat.TEXT and not found.edges and named is None:
        screen.line("No pipeline runs after another.")
        return Exit.DONE
    for line in render(found):
        screen.line(line)
    return Exit.DONE


@lineage_app.command(help=LINEAGE_HELP)
def lineage(
    context: typer.Context,
    pipeline: Annotated[str | None, typer.Argument(metavar="PIPELINE", help="The pipeline's id.")] = None,
    *,
    period: Annotated[str | None, typer.Option(help="Show the runs that belong to this period of PIPELINE.")] = None,
    up: Annotated[int, typer.Option(min=0, max=PATH_MAX, help="How many pipelines upwards.")] = PATH_MAX,
    down: Annotated[int, typer.Option(min=0, max=PATH_MAX, help="How many pipelines downwards.")] = PATH_MAX,
    shown: Annotated[
        LineageFormat | None, typer.Option("--format", help="How to print it.", show_default="text")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    if as_json and shown not in {None, LineageFormat.JSON}:
        raise typer.BadParameter(f"--json and --format {shown} contradict each other; give one of them")
    chosen = shown or (LineageFormat.JSON if as_json else LineageFormat.TEXT)
    if period is not None and pipeline is None:
        raise typer.BadParameter("name the pipeline whose period it is", param_hint="--period")

    async def show(screen: Screen, access: StoreAccess) -> int:
        wanted = None if period is None else read_period(period)
        return await run_lineage(screen, access, pipeline, wanted, shown=chosen, reach=(up, down))

    on_store(context, store, show)
