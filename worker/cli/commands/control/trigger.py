"""`interlock trigger`: start one run without a sensor. Its rules are evaluated as ever."""

from typing import Annotated

import typer

from worker.cli.commands.requests import (
    ASKING_EXIT_CODES,
    GOOD,
    Dry,
    PeriodArgument,
    RunSelector,
    Why,
    exit_code,
    remark_if_odd,
    selected_key,
    show_asked,
    with_version,
)
from worker.cli.terminal.arguments import (
    PipelineArgument,
    ScheduleOption,
    chosen_schedule,
    read_period,
    read_reason,
    read_requester,
)
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_access import AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import StoreAccess
from worker.config.versions import Version
from worker.core.model.ids import PipelineId
from worker.core.schedule.period_range import wrong_grain
from worker.core.time.periods import Period
from worker.operations.runs.requests import RunRequests, TriggerSpec

trigger_app = typer.Typer()

TRIGGER_HELP = f"""Start one run without waiting for its sensor or cron time.

Creates the run of a period that has none, as though its trigger had held. Only the trigger is replaced: the job \
starts when the rules pass, a pause holds the run, and an excluded period does not run. If the run exists, the request \
is rejected; use `interlock rerun`. The event TRIGGER_ACCEPTED records who asked and why.

\b
Examples:
  interlock trigger orders-daily 2026-03-03 --reason "export came by mail"
  interlock trigger orders-daily 2026-03-03 --reason "late partner" --as mia
  interlock trigger orders-daily 2026-03-03 --reason "by mail" --dry-run

{ASKING_EXIT_CODES}"""


async def run_trigger(screen: Screen, access: StoreAccess, whom: RunSelector, period: Period, wish: TriggerSpec) -> int:
    async def ask(asking: RunRequests, version: Version) -> int:
        asked = await asking.trigger(selected_key(whom, version, period), version, wish)
        show_asked(screen, "trigger", asked, wish.reason, version, as_json=whom.as_json, by=wish.by)
        schedule = chosen_schedule(version.pipeline, whom.schedule)
        if whom.as_json or asked.forecast.prospect not in GOOD:
            return exit_code([asked])
        if grain := wrong_grain(period, schedule):
            screen.remark(f"warning: {period} {grain}; {grain.hint}", style="yellow")
        else:
            remark_if_odd(screen, asked.key, schedule, access.clock.now())
        return exit_code([asked])

    return await with_version(screen, access, whom, ask)


@trigger_app.command("trigger", help=TRIGGER_HELP)
def trigger(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodArgument,
    *,
    reason: Why,
    who: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Who asks; recorded.", show_default="your user name")
    ] = None,
    dry_run: Dry = False,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        whom = RunSelector(pipeline=PipelineId(pipeline), schedule=schedule, is_dry=dry_run, as_json=as_json)
        wish = TriggerSpec(read_reason(reason), read_requester(who))
        return await run_trigger(screen, at, whom, read_period(period), wish)

    on_store(context, store, work)
