"""`interlock cascade`: start one run because an upstream outside Interlock completed."""

import typer

from worker.cli.commands.requests import PeriodArgument, Why
from worker.cli.terminal.arguments import PipelineArgument, ScheduleOption, chosen_schedule, read_period, read_reason
from worker.cli.terminal.authors import AsWho, author_of
from worker.cli.terminal.console import Screen
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.versions import PipelineVersions
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.time.timestamps import format_rfc3339
from worker.operations.operator_actions import OperatorAction, action_event
from worker.runtime.ids import random_id
from worker.store.repos.events import event_write
from worker.store.repos.requests import CascadeRequest, Requests

cascade_app = typer.Typer()

CASCADE_HELP = f"""Start one run because an upstream outside Interlock completed.

Writes a cascade marker, as other systems may. The run is created if there is none; its rules are evaluated, and it \
waits for what its schedule runs after. For pipelines in the same store, declare `schedule.after` instead.

\b
Examples:
  interlock cascade orders-daily 2026-03-03 --reason "export is done"
  interlock cascade orders-daily 2026-03-03 --reason "export done" --as mia
  interlock cascade orders-daily 2026-03-03 --reason "export done" --json

{EXIT_CODES}"""


@cascade_app.command("cascade", help=CASCADE_HELP)
def cascade(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodArgument,
    *,
    reason: Why,
    as_who: AsWho = None,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, access: StoreAccess) -> int:
        why, by, now = read_reason(reason), author_of(as_who), access.clock.now()
        async with access.tables() as tables:
            version = await PipelineVersions(tables).current(PipelineId(pipeline))
            if version is None:
                return await say_unknown(screen, tables, PipelineId(pipeline))
            named = chosen_schedule(version.pipeline, schedule)
            key = RunKey(PipelineId(pipeline), named.id, read_period(period))
            request = CascadeRequest(reason=why, requested_at=format_rfc3339(now), id=random_id(), by=by.name)
            action = OperatorAction.on_run("cascade", key, why, "a cascade marker was written")
            told = event_write(action_event(by, action, event_id=random_id(), at=now))
            await Requests(tables).ask_cascade(key, request, now, told)
        if as_json:
            screen.record(
                {"type": "cascade", "pipeline": pipeline, "schedule": key.schedule, "period": str(key.period)}
            )
        else:
            screen.line(
                f"Cascade marker written for {pipeline}/{key.period}; a worker begins the run if there is none."
            )
        return Exit.DONE

    on_store(context, store, work)
