"""The words of the commands that ask for something: `rerun`, `replay`, `cancel`, `pause` and `resume`."""

from typing import Annotated

import typer

from worker.cli.commands.asking import Whom, run_cancel, run_replay, run_rerun
from worker.cli.commands.pauses import run_pause, run_resume
from worker.cli.commands.show import PipelineArgument, ScheduleOption
from worker.cli.terminal.arguments import read_period, read_reason
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreAccess, StoreUrl, on_store
from worker.core.model.pipeline import PipelineId
from worker.operations.runs.requests import Wish
from worker.store.repos.requests import DEFAULT_REASON

asking_app = typer.Typer()

ASKING_EXIT_CODES = """\b
Exit codes:
  0  asked, and as things stand it will be done
  1  rejected, or there is nothing to do; no request was written
  2  the command, the settings or the store is wrong: a person must act
     (also if there is no such pipeline, run or dead letter)
  3  the store does not answer, or somebody else asked just now: try again
"""

RERUN_HELP = f"""Ask for another attempt of a run that has ended, or for a run that never began.

The request is a row that a worker answers: by the manual budget, the calendar, and whether any sensor is newer than \
the last success. What will become of it is told at once; one that would be refused is not written, and nobody is \
alerted. A run under way is refused unless --supersede, which stops its job first.

\b
Examples:
  interlock rerun orders-daily 2026-03-03 --reason "export was corrected"
  interlock rerun orders-daily 2026-03-03 --supersede
  interlock rerun orders-daily 2026-03-03 --dry-run --json

{ASKING_EXIT_CODES}"""

REPLAY_HELP = f"""Ask for another attempt of every period of a range, outside the budgets.

The periods are those the schedule expects, or every day or hour where it expects none; excluded ones and those that \
have not begun are left out. Runs that never began are begun. At most 1,000 periods at a time.

\b
Examples:
  interlock replay orders-daily 2026-03-01 2026-03-07 --dry-run
  interlock replay orders-daily 2026-03-01 2026-03-07 --note "new rates" --yes
  interlock replay clickstream-hourly 2026-03-03T06 2026-03-03T12 --yes --json

{ASKING_EXIT_CODES}"""

CANCEL_HELP = f"""Ask for a run to be given up: its job is stopped, it is not retried, and late data does not reopen it.

Its deadline stays watched unless --waive-sla. A manual rerun reopens it.

\b
Examples:
  interlock cancel orders-daily 2026-03-03 --reason "wrong export"
  interlock cancel orders-daily 2026-03-03 --reason "holiday" --waive-sla
  interlock cancel orders-daily 2026-03-03 --reason "wrong export" --dry-run

{ASKING_EXIT_CODES}"""

PAUSE_HELP = f"""Let nothing new begin for a pipeline: no run is created, no attempt starts, requests wait.

Jobs that run are followed to their end, and deadlines are watched on.

\b
Examples:
  interlock pause orders-daily --reason "database upgrade"
  interlock pause orders-daily --reason "database upgrade" --until 2h
  interlock pause orders-daily --reason "upgrade" --until 2026-03-04T06:00:00Z

{EXIT_CODES}"""

RESUME_HELP = f"""End a pause; what came meanwhile is taken up.

\b
Examples:
  interlock resume orders-daily
  interlock resume orders-daily --json
  interlock resume orders-daily --store sqlite:///interlock.db

{EXIT_CODES}"""

PeriodArgument = Annotated[str, typer.Argument(metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730.")]
Why = Annotated[str, typer.Option("--reason", help="Why; it is recorded and shown to people.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would become of it, and ask nothing.")]


@asking_app.command(help=RERUN_HELP)
def rerun(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodArgument,
    *,
    reason: Why = DEFAULT_REASON,
    supersede: Annotated[bool, typer.Option("--supersede", help="Replace a run that is under way.")] = False,
    dry_run: Dry = False,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        whom = Whom(pipeline=PipelineId(pipeline), schedule=schedule, is_dry=dry_run, as_json=as_json)
        wish = Wish(reason=read_reason(reason), supersede=supersede)
        return await run_rerun(screen, at, whom, read_period(period), wish)

    on_store(context, store, work)


@asking_app.command(help=REPLAY_HELP)
def replay(
    context: typer.Context,
    pipeline: PipelineArgument,
    first: Annotated[str, typer.Argument(metavar="FROM", help="The first period.")],
    last: Annotated[str, typer.Argument(metavar="TO", help="The last period; a day means all of it.")],
    *,
    note: Annotated[str, typer.Option("--note", help="Why; kept with the requests.")] = "",
    dry_run: Dry = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        whom = Whom(pipeline=PipelineId(pipeline), schedule=schedule, is_dry=dry_run, as_json=as_json)
        span = (read_period(first), read_period(last))
        return await run_replay(screen, at, whom, span, note=note, consent=Consent.by_option(yes))

    on_store(context, store, work)


@asking_app.command(help=CANCEL_HELP)
def cancel(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodArgument,
    *,
    reason: Why,
    waive_sla: Annotated[bool, typer.Option("--waive-sla", help="Stop watching its deadline, too.")] = False,
    dry_run: Dry = False,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        whom = Whom(pipeline=PipelineId(pipeline), schedule=schedule, is_dry=dry_run, as_json=as_json)
        return await run_cancel(screen, at, whom, read_period(period), reason=read_reason(reason), waive_sla=waive_sla)

    on_store(context, store, work)


@asking_app.command(help=PAUSE_HELP)
def pause(
    context: typer.Context,
    pipeline: PipelineArgument,
    *,
    reason: Why,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="2h, 2026-03-04 or 2026-03-04T06:00:00Z; else until resumed.")
    ] = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        return await run_pause(screen, at, PipelineId(pipeline), reason=reason, until=until, as_json=as_json)

    on_store(context, store, work)


@asking_app.command(help=RESUME_HELP)
def resume(
    context: typer.Context, pipeline: PipelineArgument, *, store: StoreUrl = None, as_json: AsJson = False
) -> None:
    on_store(context, store, lambda screen, at: run_resume(screen, at, PipelineId(pipeline), as_json=as_json))
