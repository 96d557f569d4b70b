"""`interlock watchdog run` and `list`: run the watchdog's checks once, now; list when each ran."""

import asyncio
from collections.abc import Coroutine, Generator, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import typer

from scheduler.watchdog.check_states import CheckState, load_states
from scheduler.watchdog.checks.table import Watched, make_watchdog
from scheduler.watchdog.watchdog import CheckReport, Watchdog
from worker.app.components import build_engine
from worker.cli.terminal.console import Screen, counted, shown_time
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError
from worker.core.model.keys import SessionId
from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.core.time.timestamps import format_rfc3339
from worker.runtime.clock import Clock
from worker.runtime.ids import random_id
from worker.runtime.logs import logs_kept_back
from worker.store.repos.installation import installed_at
from worker.store.table import Tables

T = TypeVar("T")

EXPECTED = "expected-runs"  # this check finds what the other checks examine


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRequest:
    checks: Sequence[str] = ()
    dry_run: bool = False
    as_json: bool = False


class LeftToWorkers(asyncio.TaskGroup):
    """LeftToWorkers accepts tasks and executes none of them.

    The decisions are in the rows, from which a worker continues.
    """

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        coro.close()
        return asyncio.get_running_loop().create_task(_nothing(), name=name, context=context)


async def _nothing() -> Any:  # noqa: ANN401  it stands for a task of any kind
    """Do nothing, in place of the task that a worker will execute."""


@dataclass(frozen=True, slots=True)
class _Visitor:
    """_Visitor is the session of this command: it may decide, and leaves every action to the workers."""

    session: SessionId

    def may_act(self) -> bool:
        return True

    def may_judge_time(self) -> bool:
        return True

    async def is_over(self, session: SessionId) -> bool:  # noqa: ARG002  it takes over no runs of others
        return False


async def run_watchdog(screen: Screen, at: StoreAccess, request: PassRequest) -> int:
    async with at.tables() as tables:
        watchdog = await _watchdog(tables, at.clock)
        _require_known(watchdog, request.checks)
        only = {EXPECTED, *request.checks} if request.checks else set[str]()
        with logs_kept_back():  # the command shows below what the log would say
            reports = await watchdog.pass_over(at.clock.now(), only=only, dry_run=request.dry_run)
    for report in reports:
        show_report(screen, report, request)
    return Exit.PROBLEMS if any(report.problems for report in reports) else Exit.DONE


async def _watchdog(tables: Tables, clock: Clock) -> Watchdog:
    visitor = _Visitor(SessionId(f"command-{random_id()}"))
    began_at = await installed_at(tables, GROUP, clock.now())
    parts = build_engine(tables, {}, visitor, clock, LeftToWorkers(), began_at=began_at)
    return make_watchdog(
        tables,
        parts.engine,
        clock,
        Watched(looks_once=True),
        configs=parts.configs,
        watches=parts.watches,
        resync=parts.resync,
        may_act=visitor.may_act,
    )


async def list_checks(screen: Screen, at: StoreAccess, *, as_json: bool) -> int:
    """List the checks as the worker that runs them stored them. Return exit code 1 if none ever did."""
    async with at.tables() as tables:
        states = await load_states(tables)
    if not states:
        screen.remark("No worker has stored its checks. Start one with `interlock run`; it does so within 2 minutes.")
        return Exit.PROBLEMS
    show_checks(screen, states, as_json=as_json)
    return Exit.DONE


def show_checks(screen: Screen, states: Sequence[CheckState], *, as_json: bool) -> None:
    if as_json:
        for each in states:
            screen.record(_state_record(each))
        return
    rows = [
        (each.name, format_duration(each.every), *map(shown_time, (each.ended_at, each.next_at)), each.problem or "ok")
        for each in states
    ]
    styles = ["", *("red" if each.problem else "" for each in states)]
    screen.table([("check", "interval", "last", "next", "result"), *rows], styles=styles)


def _state_record(state: CheckState) -> Mapping[str, Json]:
    return {
        "type": "watchdog-check",
        "check": state.name,
        "everySeconds": int(state.every.total_seconds()),
        "last": format_rfc3339(state.ended_at),
        "next": format_rfc3339(state.next_at),
        "problem": state.problem,
    }


def _require_known(watchdog: Watchdog, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in watchdog.names]
    if unknown:
        raise ConfigError(f"there is no check {unknown[0]!r}; a check is one of {', '.join(watchdog.names)}")


def show_report(screen: Screen, report: CheckReport, request: PassRequest) -> None:
    telling = [finding for finding in report.findings if not finding.is_routine]
    if request.as_json:
        screen.record(
            {
                "type": "check",
                "check": report.check.name,
                "findings": [finding.sentence for finding in telling],
                "looked": len(report.findings),
                "leftOut": report.left,
                "problems": list(report.problems),
                "dryRun": request.dry_run,
            }
        )
        return
    verb = "would be dealt with" if request.dry_run else "dealt with"
    found = f"{counted(len(telling), 'finding')} {verb}" if telling else "nothing found"
    screen.line(f"{report.check.name}: {found}")
    for finding in telling:
        screen.line(f"    {finding.sentence}")
    if report.left:
        screen.line(f"    {report.left:,} more left out: the workers get to them in turn", style="yellow")
    for problem in report.problems:
        screen.line(f"    {problem}", style="red")


watchdog_app = typer.Typer(
    name="watchdog",
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Run the watchdog's checks now: missed runs, late data, stuck jobs.

The worker that holds the scheduler's lease runs them every minute. Running them by hand is safe at the same time: \
each alert is sent once.""",
)

RUN_HELP = f"""Run every check once and show what it finds.

With --dry-run, no alert is sent and nothing changes. The checks start where the workers' last scan ended. A worker \
takes over the runs that they create within a minute.

\b
Examples:
  interlock watchdog run --dry-run
  interlock watchdog run --check missed-schedules --check trigger-deadlines
  interlock watchdog run --json | jq 'select(.problems | length > 0)'

{EXIT_CODES}"""


@watchdog_app.command("run", help=RUN_HELP)
def run(
    context: typer.Context,
    *,
    check: Annotated[
        list[str] | None, typer.Option("--check", metavar="NAME", help="Only this check; may be repeated.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the findings only; change nothing.")] = False,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    request = PassRequest(checks=check or [], dry_run=dry_run, as_json=as_json)
    on_store(context, store, lambda screen, at: run_watchdog(screen, at, request))


LIST_HELP = f"""List the checks with their interval, last and next run.

The worker that holds the scheduler's lease stores them once a minute.

{EXIT_CODES}"""


@watchdog_app.command("list", help=LIST_HELP)
def list_(context: typer.Context, *, store: StoreUrl = None, as_json: AsJson = False) -> None:
    on_store(context, store, lambda screen, at: list_checks(screen, at, as_json=as_json))


@watchdog_app.callback()
def watchdog() -> None:
    """A group of its own, so that more commands may follow."""
