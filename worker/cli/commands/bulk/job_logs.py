"""`interlock logs`: show the output of a run's job, or where its target keeps it."""

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from worker.cli.terminal.arguments import PeriodMaybe, PipelineArgument, ScheduleOption, chosen_schedule, read_period
from worker.cli.terminal.console import Screen
from worker.cli.terminal.pipeline_lookup import say_unknown
from worker.cli.terminal.recent_periods import choose_period
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store_until_interrupted
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.settings import read_settings
from worker.core.errors import WorkerError
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import JobType, PipelineId
from worker.core.model.run_names import explain_command, shown_key
from worker.core.model.values import Json
from worker.core.run.state import Run
from worker.core.time.periods import Period
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.job_output import (
    OUTPUT,
    JobAttempt,
    attempt_of,
    is_program,
    job_config,
    job_folder,
    location_of,
    read_output,
    secrets_of,
)
from worker.store.repos.runs import Runs

FOLLOW_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsRequest:
    """LogsRequest says whose output to show: of the active or last run, and its last attempt, if None."""

    pipeline: PipelineId
    schedule: str | None
    period: Period | None
    attempt: int | None
    follow: bool
    as_json: bool


async def run_logs(screen: Screen, access: StoreAccess, request: LogsRequest) -> int:
    async with access.tables() as tables:
        version = await version_of(tables, request.pipeline)
        if version is None:
            return await say_unknown(screen, tables, request.pipeline)
        schedule, period = chosen_schedule(version.pipeline, request.schedule), request.period
        if period is None:
            now = access.clock.now()
            period = await choose_period(tables, version.pipeline, schedule, now, screen.remark)
        key = RunKey(request.pipeline, schedule.id, period)
        run = await Runs(tables).load(key)
        attempt = attempt_of(run, request.attempt) if isinstance(run, Run) else None
        if not isinstance(run, Run) or attempt is None:
            name = shown_key(key)
            what = f"run {name}" if not isinstance(run, Run) else f"attempt {request.attempt} of {name}"
            screen.remark(f"error: there is no {what}, or nothing is known of it", style="red")
            screen.remark(f"    `{explain_command(key, version.pipeline)}` shows what there is")
            return Exit.WRONG
        config = await job_config(tables, run)
        path = job_folder(access.url) / attempt.token / OUTPUT
        secrets, is_command = secrets_of(config, os.environ, attempt.job_type), is_program(attempt.job_type)
        part = read_output(path, None, secrets.values, is_active=attempt.is_active) if is_command else None
        if not is_command and not secrets.unreadable:
            return await _from_aws(screen, access, request, attempt, config)
        if part is None:
            return _elsewhere(screen, request, attempt, config)
        if secrets.unreadable:
            names = ", ".join(secrets.unreadable)
            screen.remark(f"the output is not shown: set {names} as for the worker, so that they can be hidden")
            return _elsewhere(screen, request, attempt, config, str(path))
        _show(screen, request, attempt, part.lines, is_cut=part.is_cut)
        if not part.lines and not request.follow and not request.as_json:
            screen.remark(f"Attempt {attempt.number} has printed nothing{' yet' if attempt.is_active else ''}.")
        while request.follow and attempt is not None and attempt.is_active:
            await access.clock.sleep(FOLLOW_S)
            latest = await Runs(tables).load(key)
            current = attempt_of(latest, attempt.number) if isinstance(latest, Run) else None
            is_active = current is not None and current.is_active
            if (news := read_output(path, part.end, secrets.values, is_active=is_active)) is not None:
                part = news
                _show(screen, request, attempt, part.lines, is_cut=part.is_cut)
            attempt = current
    return Exit.DONE


async def _from_aws(
    screen: Screen, access: StoreAccess, request: LogsRequest, attempt: JobAttempt, config: dict[str, Json]
) -> int:
    """Show the end of the log that AWS keeps of a job, or where the target keeps its output."""
    if attempt.job_type not in {JobType.GLUE, JobType.LAMBDA} or not attempt.job:
        return _elsewhere(screen, request, attempt, config)
    # The AWS libraries take longer to load than most commands take.
    from worker.app.aws_endpoint import aws_endpoint  # noqa: PLC0415
    from worker.jobs.aws.client import Aws  # noqa: PLC0415
    from worker.jobs.aws.log_tails import LogTails  # noqa: PLC0415
    from worker.operations.runs.job_tail import read_tail  # noqa: PLC0415

    secrets = secrets_of(config, os.environ, attempt.job_type)
    async with Aws(aws_endpoint(read_settings(os.environ, store=access.url))) as aws:
        try:
            part = await read_tail(LogTails(aws), attempt, config, secrets.values)
        except WorkerError as error:
            screen.remark(f"the log was not read: {error}", style="yellow")
            part = None
    if part is None:
        return _elsewhere(screen, request, attempt, config)
    _show(screen, request, attempt, part.lines, is_cut=part.is_cut)
    return Exit.DONE


def _elsewhere(
    screen: Screen, request: LogsRequest, attempt: JobAttempt, config: dict[str, Json], path: str = ""
) -> int:
    if not attempt.job and not path:
        where = ""
    elif path:
        where = path
    elif attempt.job_type == JobType.COMMAND:
        where = "the machine that ran the program, if its files still exist"
    else:
        where = location_of(attempt, config)
    if request.as_json:
        screen.record({"type": "location", "attempt": attempt.number, "location": where or None})
    elif where:
        screen.line(f"The output of attempt {attempt.number} is not here. See: {where}")
    else:
        screen.line(f"Attempt {attempt.number} started no job that is known, so there is no output.")
    return Exit.PROBLEMS


def _show(screen: Screen, request: LogsRequest, attempt: JobAttempt, lines: list[str], *, is_cut: bool) -> None:
    if is_cut:
        screen.remark("earlier output is left out", style="yellow")
        if request.as_json:
            screen.record({"type": "truncated", "what": "output", "shown": len(lines)})
    for line in lines:
        if request.as_json:
            screen.record({"type": "output", "attempt": attempt.number, "line": line})
        else:
            screen.line(line)
    screen.flush()


logs_app = typer.Typer()

LOGS_HELP = f"""Show the output of a run's job, or where it is.

For command jobs on this machine, the last 256 kB. For Glue and Lambda jobs, the last 64 kB of their log in \
CloudWatch. Both without secrets and control characters. For other jobs, the place where the target keeps the output. \
Without PERIOD it is the active run, else the last one that ran or was expected.

\b
Examples:
  interlock logs orders-daily
  interlock logs orders-daily 2026-03-03
  interlock logs orders-daily 2026-03-03 --attempt 1
  interlock logs orders-daily 2026-03-03 --follow

{EXIT_CODES}"""


@logs_app.command("logs", help=LOGS_HELP)
def logs(
    context: typer.Context,
    pipeline: PipelineArgument,
    period: PeriodMaybe = None,
    *,
    attempt: Annotated[
        int | None, typer.Option("--attempt", metavar="N", min=1, help="Which attempt; else the last.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends, or Ctrl-C.")] = False,
    schedule: ScheduleOption = None,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    async def work(screen: Screen, at: StoreAccess) -> int:
        request = LogsRequest(
            pipeline=PipelineId(pipeline),
            schedule=schedule,
            period=read_period(period) if period else None,
            attempt=attempt,
            follow=follow,
            as_json=as_json,
        )
        return await run_logs(screen, at, request)

    on_store_until_interrupted(context, store, work)
