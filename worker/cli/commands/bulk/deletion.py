"""`interlock runs delete`: delete an ended run, so that only a request starts it again."""

from dataclasses import dataclass
from typing import Annotated

import typer

from worker.cli.terminal.arguments import PipelineArgument, ScheduleOption, chosen_schedule, read_period, read_reason
from worker.cli.terminal.authors import AsWho, author_of
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.errors import ConfigError, RetryLater
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.model.run_names import shown_key
from worker.core.model.values import Json
from worker.core.time.periods import Period
from worker.operations.operator_actions import Requester
from worker.operations.pipelines.lookup import suggestion, version_of
from worker.operations.runs.deletion import DeletionOutcome, DeletionSpec, RunDeletion
from worker.store.table import StaleWrite, Tables

deletion_app = typer.Typer()

DELETE_HELP = f"""Delete an ended run, with everything about it.

Removes the run with its deadline, inputs, outputs and marks, and records who deleted it and why. Late data and \
repeated records do not start it again; `interlock trigger`, `rerun` and `replay` do. With --forget, the next change \
of its sensor starts it again.

\b
Examples:
  interlock runs delete orders 2026-03-03 --reason "test data"
  interlock runs delete orders 2026-03-03 --reason "test" --with-history -y
  interlock runs delete orders 2026-03-03 --reason "start over" --forget -y

{EXIT_CODES}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionCommand:
    """DeletionCommand holds what the user asked for. Without `schedule`, the pipeline must have only one."""

    pipeline: PipelineId
    schedule: str | None
    period: Period
    wanted: DeletionSpec
    by: Requester
    consent: Consent
    is_dry: bool
    as_json: bool


async def run_delete(screen: Screen, access: StoreAccess, command: DeletionCommand) -> int:
    wanted, by, as_json = command.wanted, command.by, command.as_json
    async with access.tables() as tables:
        run = await _run_key(tables, command.pipeline, command.schedule, command.period)
        planned = await RunDeletion(tables, access.clock, by, is_rehearsed=True).delete(run, wanted)
        if planned is None:
            screen.remark(f"error: there is no run {shown_key(run)}", style="red")
            screen.remark(f"    `interlock runs list --pipeline {run.pipeline}` lists what there is")
            return Exit.WRONG
        if command.is_dry:
            show_deletion(screen, planned, as_json=as_json)
            return Exit.DONE
        if not command.consent.obtain(screen, f"Delete {shown_key(run)} ({_what(planned)})?"):
            screen.remark("nothing was deleted")
            return Exit.DONE
        try:
            outcome = await RunDeletion(tables, access.clock, by).delete(run, wanted)
        except StaleWrite as error:
            raise RetryLater(f"{shown_key(run)} changes all the time; run the command again") from error
        show_deletion(screen, outcome or planned, as_json=as_json)
        return Exit.DONE


async def _run_key(tables: Tables, pipeline: PipelineId, schedule: str | None, period: Period) -> RunKey:
    """Return the run's key. A pipeline that is gone has no schedules, so that one must be named."""
    if schedule is not None:
        return RunKey(pipeline, ScheduleId(schedule), period)
    version = await version_of(tables, pipeline)
    if version is None:
        hint = await suggestion(tables, pipeline) or "to delete its old run, add --schedule ID"
        raise ConfigError(f"there is no pipeline {pipeline} in the store; {hint}")
    return RunKey(pipeline, chosen_schedule(version.pipeline, None).id, period)


def _what(outcome: DeletionOutcome) -> str:
    parts = [counted(outcome.rows, "row")]
    if outcome.history:
        parts.append(f"{counted(outcome.history, 'row')} of its history")
    return " and ".join(parts)


def show_deletion(screen: Screen, outcome: DeletionOutcome, *, as_json: bool) -> None:
    if as_json:
        screen.record(deletion_record(outcome))
        return
    verb = "Would delete" if outcome.is_dry else "Deleted"
    state = "It had been deleted before. " if outcome.was_deleted else ""
    again = "the next change of its sensor starts it" if outcome.is_forgotten else "only a request starts it"
    screen.line(f"{verb} {shown_key(outcome.key)} ({_what(outcome)}). {state}From then on, {again} again.")


def deletion_record(outcome: DeletionOutcome) -> dict[str, Json]:
    return {
        "type": "deletion",
        "pipeline": outcome.key.pipeline,
        "schedule": outcome.key.schedule,
        "period": str(outcome.key.period),
        "deleted": not outcome.is_dry,
        "wasDeleted": outcome.was_deleted,
        "rows": outcome.rows,
        "historyRows": outcome.history,
        "forgotten": outcome.is_forgotten,
    }


@deletion_app.command("delete", help=DELETE_HELP)
def delete_run(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: Annotated[str, typer.Argument(metavar="PERIOD", help="2026-03-03, 2026-03-03T07 or 2026-03-03T0730.")],
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded.")],
    schedule: ScheduleOption = None,
    with_history: Annotated[
        bool, typer.Option("--with-history", help="Also delete the job log and the rerun record.")
    ] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Let the next change of its sensor start it again.")] = False,
    as_who: AsWho = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask. Needed where there is no terminal.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        wanted = DeletionSpec(reason=read_reason(reason), with_history=with_history, forget=forget)
        command = DeletionCommand(
            pipeline=PipelineId(pipeline),
            schedule=schedule,
            period=read_period(period),
            wanted=wanted,
            by=author_of(as_who),
            consent=Consent.by_option(yes),
            is_dry=dry_run,
            as_json=as_json,
        )
        return await run_delete(screen, at, command)

    on_store(context, store, work)
