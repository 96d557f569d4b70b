"""`interlock runs`: query runs as data."""

from typing import Annotated

import typer

from worker.cli.commands.runs.filters import (
    Cursor,
    DeadlineWord,
    ErrorPrefix,
    Outcomes,
    Owner,
    PipelineGlob,
    States,
    Until,
    bad_filter_is_misuse,
    filter_of,
)
from worker.cli.terminal.arguments import PipelineArgument, ScheduleOption, read_period
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import StoreAccess
from worker.core.model.ids import PipelineId

runs_app = typer.Typer(
    name="runs", help="List, count, rerun, cancel and delete runs, also of the past.", no_args_is_help=True
)

_FILTERS = """Filters combine. --since and --until are about when a run ended, as a time or an age (7d, 2w, 12h); \
active runs match any --since. Rows written by an earlier release have no owner."""

LIST_HELP = f"""List runs by state, outcome, pipeline, owner, time, error or deadline, newest first.

Active runs come first. {_FILTERS} A list that is cut says so, and --after continues it; with --json the last record \
is `end`, with `complete` and `next`.

\b
Examples:
  interlock runs list --state failed --since 7d
  interlock runs list --pipeline 'orders-*' --error timeout --since 2w
  interlock runs list --state failed --deadline breached --json | jq .reason

{EXIT_CODES}"""

SHOW_HELP = f"""Show one run: its attempts, inputs, outputs and events.

\b
Examples:
  interlock runs show orders-daily 2026-03-03
  interlock runs show orders-daily 2026-03-03 --schedule cron
  interlock runs show orders-daily 2026-03-03 --json | jq .type

{EXIT_CODES}"""

STATS_HELP = f"""Show counts, success rates, durations and deadlines of ended runs.

Groups are any of state, outcome, pipeline, owner, day and hour, separated by commas. Times are whole hours of UTC; \
percentiles are exact to 10 %.

\b
Examples:
  interlock runs stats --since 30d --by day
  interlock runs stats --since 7d --by pipeline,outcome
  interlock runs stats --owner commerce-data --by hour --since 1d --json

{EXIT_CODES}"""

INPUTS_HELP = f"""Print the inputs of runs as JSON, one run a line.

{_FILTERS} The last record is `end`, with `complete` and `next`.

\b
Examples:
  interlock runs inputs --state failed --since 7d
  interlock runs inputs --pipeline orders-daily --since 1d | jq .inputs
  interlock runs inputs --error timeout --since 2w

{EXIT_CODES}"""

Since = Annotated[str, typer.Option("--since", metavar="TIME", help="7d, 2h, 2026-03-03 or 2026-03-03T12:00:00Z.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=100_000, help="How many runs at most.")]


@runs_app.command("list", help=LIST_HELP)
def list_runs(
    context: typer.Context,
    *,
    state: States = None,
    outcome: Outcomes = None,
    pipeline: PipelineGlob = "",
    owner: Owner = "",
    since: Since = "7d",
    until: Until = "",
    error: ErrorPrefix = "",
    deadline: DeadlineWord = "",
    limit: Limit = 100,
    inputs: Annotated[bool, typer.Option("--inputs", help="With the inputs of each run (only with --json).")] = False,
    after: Cursor = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    wanted = filter_of(
        state, outcome, pipeline=pipeline, owner=owner, since=since, until=until, error=error, deadline=deadline
    )

    async def work(screen: Screen, at: StoreAccess) -> int:
        from worker.cli.commands.runs.listing import ListRequest, run_list  # noqa: PLC0415

        request = ListRequest(wanted=wanted, limit=limit, cursor=after, with_inputs=inputs, as_json=as_json)
        with bad_filter_is_misuse():
            return await run_list(screen, at, request)

    on_store(context, store, work)


@runs_app.command("show", help=SHOW_HELP)
def show_run(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: Annotated[str, typer.Argument(metavar="PERIOD", help="The period of the run, such as 2026-03-03.")],
    *,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        from worker.cli.commands.runs.detail import run_show  # noqa: PLC0415

        return await run_show(screen, at, PipelineId(pipeline), read_period(period), schedule, is_json=as_json)

    on_store(context, store, work)


@runs_app.command("stats", help=STATS_HELP)
def show_stats(
    context: typer.Context,
    *,
    since: Since = "30d",
    until: Until = "",
    by: Annotated[str, typer.Option("--by", metavar="GROUPS", help="state, outcome, pipeline, owner, day, hour.")] = "",
    state: States = None,
    outcome: Outcomes = None,
    pipeline: PipelineGlob = "",
    owner: Owner = "",
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    wanted = filter_of(state, outcome, pipeline=pipeline, owner=owner, since=since, until=until)
    groups = [word.strip() for word in by.split(",") if word.strip()]

    async def work(screen: Screen, at: StoreAccess) -> int:
        from worker.cli.commands.runs.statistics import run_statistics  # noqa: PLC0415

        with bad_filter_is_misuse():
            return await run_statistics(screen, at, wanted, groups, is_json=as_json)

    on_store(context, store, work)


@runs_app.command("inputs", help=INPUTS_HELP)
def print_inputs(
    context: typer.Context,
    *,
    state: States = None,
    outcome: Outcomes = None,
    pipeline: PipelineGlob = "",
    owner: Owner = "",
    since: Since = "7d",
    until: Until = "",
    error: ErrorPrefix = "",
    deadline: DeadlineWord = "",
    limit: Limit = 100,
    after: Cursor = None,
    store: StoreUrl = None,
) -> None:
    wanted = filter_of(
        state, outcome, pipeline=pipeline, owner=owner, since=since, until=until, error=error, deadline=deadline
    )

    async def work(screen: Screen, at: StoreAccess) -> int:
        from worker.cli.commands.runs.listing import ListRequest, run_inputs  # noqa: PLC0415

        request = ListRequest(wanted=wanted, limit=limit, cursor=after, with_inputs=True, as_json=True)
        with bad_filter_is_misuse():
            return await run_inputs(screen, at, request)

    on_store(context, store, work)
