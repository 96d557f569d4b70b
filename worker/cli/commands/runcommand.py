"""The words of `interlock run`."""

from pathlib import Path
from typing import Annotated

import typer

from worker.cli.commands.run import LogLevel, RunRequest, run_worker
from worker.cli.terminal.files import Sources
from worker.cli.terminal.store_access import RUN_EXIT_CODES, StoreUrl, on_store
from worker.runtime.clock import Clock

run_app = typer.Typer()

RUN_HELP = f"""Run a worker: wait for sensors and times, start jobs when their rules hold, tell what happened.

The store is one SQLite file, or tables in DynamoDB. A file is made with --pipelines if it is not there. Several \
workers may share a store: each run has one of them, and when one dies another takes over. Alerts go to Slack if a \
token is set, else they are lines; the log goes to standard error (JSON if it is not a terminal). Successes are \
gathered into a digest every 15 minutes.

Sensors come from other commands, while this one runs: `interlock sensor put`.

\b
Settings from the environment:
  INTERLOCK_STORE             the store, as --store
  INTERLOCK_JOB_ENVIRONMENT   variables that command jobs get: NAME,NAME
  INTERLOCK_HTTP_ALLOW        where HTTP jobs may go beside public hosts
  INTERLOCK_TIMING            default or fast: how soon a death is noticed
  INTERLOCK_SLACK_TOKEN       a bot's token, or secretsmanager://NAME#KEY
  INTERLOCK_SLACK_CHANNEL     where alerts go
  INTERLOCK_HEALTH            HOST:PORT for /healthz, /readyz and /metrics
  and more, for AWS: see docs/running.md

\b
Examples:
  interlock run --pipelines pipelines/
  interlock run --store sqlite:///interlock.db --each-success
  interlock run --store dynamodb://interlock?region=eu-west-1

SIGTERM and Ctrl-C end it in order within 25 seconds; a second one has nothing finished any more, and a
third ends it at once, which costs nothing but a repeat. A full disk under the log or the alerts does not end it.

{RUN_EXIT_CODES}"""


@run_app.command("run", help=RUN_HELP)
def run(
    context: typer.Context,
    *,
    pipelines: Annotated[
        Path | None,
        typer.Option(metavar="DIR", exists=True, help="Push these files first; any error in them and nothing runs."),
    ] = None,
    calendars: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="Directory of calendar files.", show_default="beside DIR"),
    ] = None,
    each_success: Annotated[bool, typer.Option("--each-success", help="A line for every success.")] = False,
    log_level: Annotated[
        LogLevel, typer.Option(metavar="LEVEL", help="Log this and worse: debug, info, warning, error.")
    ] = LogLevel.INFO,
    store: StoreUrl = None,
) -> None:
    clock: Clock = context.obj
    sources = None
    if pipelines is not None:
        sources = Sources(paths=[pipelines], calendars=calendars, today=clock.now().date())
    request = RunRequest(sources=sources, each_success=each_success, log_level=log_level)
    on_store(context, store, lambda screen, at: run_worker(screen, at, request))
