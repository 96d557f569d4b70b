"""The words of the commands that show what is: `explain`, `status`, `events` and `history`."""

from typing import Annotated

import typer

from worker.cli.console import Screen
from worker.cli.explain import Question, run_explain
from worker.cli.naming import read_period
from worker.cli.onstore import EXIT_CODES, AsJson, StoreAccess, StoreUrl, on_store
from worker.core.pipeline import PipelineId

reading_app = typer.Typer()

EXPLAIN_HELP = f"""Say why a pipeline runs or does not: every gate in order, and the smallest change that makes it run.

The gates are the configuration, schedule, calendar, pause, trigger, run, rules, budgets and deadline. Each condition \
shows the value seen and the value wanted. Without PERIOD it is that of the last run, or the last one expected.

\b
Examples:
  interlock explain orders-daily
  interlock explain orders-daily 2026-03-03
  interlock explain orders-daily 2026-03-03 --json | jq .needed

{EXIT_CODES}"""

PipelineArgument = Annotated[str, typer.Argument(metavar="PIPELINE", help="The pipeline's id.")]
ScheduleOption = Annotated[
    str | None, typer.Option("--schedule", metavar="ID", help="Which schedule, where there are several.")
]


@reading_app.command(help=EXPLAIN_HELP)
def explain(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: Annotated[
        str | None, typer.Argument(metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730.")
    ] = None,
    *,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        meant = read_period(period) if period else None
        asked = Question(pipeline=PipelineId(pipeline), period=meant, schedule=schedule)
        return await run_explain(screen, at, asked, as_json=as_json)

    on_store(context, store, work)
