"""`interlock cascade`: start one run because an upstream outside Interlock completed."""

import typer

from worker.cli.commands.requests import (
    ASKING_EXIT_CODES,
    Dry,
    PeriodArgument,
    RunSelector,
    Why,
    selected_key,
    show_asked,
    with_version,
)
from worker.cli.terminal.arguments import PipelineArgument, ScheduleOption, read_period, read_reason
from worker.cli.terminal.authors import AsWho, author_of
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.versions import Version
from worker.core.model.ids import PipelineId
from worker.core.run.forecast import Prospect
from worker.core.time.periods import Period
from worker.operations.runs.requests import RunRequests

cascade_app = typer.Typer()

CASCADE_HELP = f"""Start one run because an upstream outside Interlock completed.

Writes a cascade marker, as other systems may. The run is created if there is none; its rules are evaluated, and it \
waits for what its schedule runs after. If the run exists, nothing is written, and the command succeeds: it is safe to \
repeat. For pipelines in the same store, declare `schedule.after` instead.

\b
Examples:
  interlock cascade orders-daily 2026-03-03 --reason "export is done"
  interlock cascade orders-daily 2026-03-03 --reason "export done" --as mia
  interlock cascade orders-daily 2026-03-03 --reason "export done" --json

{ASKING_EXIT_CODES}"""


async def run_cascade(screen: Screen, access: StoreAccess, whom: RunSelector, period: Period, reason: str) -> int:
    async def ask(asking: RunRequests, version: Version) -> int:
        asked = await asking.cascade(selected_key(whom, version, period), version, reason)
        show_asked(screen, "cascade", asked, reason, version, as_json=whom.as_json)
        return Exit.PROBLEMS if asked.forecast.prospect is Prospect.REFUSED else Exit.DONE

    return await with_version(screen, access, whom, ask)


@cascade_app.command("cascade", help=CASCADE_HELP)
def cascade(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodArgument,
    *,
    reason: Why,
    as_who: AsWho = None,
    dry_run: Dry = False,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, access: StoreAccess) -> int:
        whom = RunSelector(
            pipeline=PipelineId(pipeline), schedule=schedule, by=author_of(as_who), is_dry=dry_run, as_json=as_json
        )
        return await run_cascade(screen, access, whom, read_period(period), read_reason(reason))

    on_store(context, store, work)
