"""`interlock watchdog run`: one pass of the watchdog, here and now, beside whoever holds the duty."""

import asyncio
from collections.abc import Coroutine, Generator, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, TypeVar

from scheduler.watchdog.checks.table import Watched, make_watchdog
from scheduler.watchdog.watchdog import Report, Watchdog
from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_access import Exit, StoreAccess
from worker.config.settings import GROUP
from worker.core.errors import ConfigError
from worker.core.model.keys import SessionId
from worker.engine.commits import random_id
from worker.engine.engine import Engine
from worker.engine.intake.router import Router
from worker.runtime.clock import Clock
from worker.runtime.logs import logs_kept_back
from worker.store.repos.installation import installed_at
from worker.store.table import Tables

T = TypeVar("T")

EXPECTED = "expected-runs"  # what the other checks look at is found by this one


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRequest:
    checks: Sequence[str] = ()
    dry_run: bool = False
    as_json: bool = False


class LeftToWorkers(asyncio.TaskGroup):
    """Takes on tasks and does none of them: what was decided is in the rows, and a worker takes it up from there."""

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
    """What is left to do of it here."""


@dataclass(frozen=True, slots=True)
class _Visitor:
    """Whoever runs the command: it decides, and leaves what it decided to others at once."""

    session: SessionId

    def may_act(self) -> bool:
        return True

    def may_judge_time(self) -> bool:
        return True

    async def is_over(self, session: SessionId) -> bool:  # noqa: ARG002  it has nobody to outlive
        return False


async def run_watchdog(screen: Screen, at: StoreAccess, request: PassRequest) -> int:
    async with at.tables() as tables:
        watchdog = await _watchdog(tables, at.clock)
        _require_known(watchdog, request.checks)
        only = {EXPECTED, *request.checks} if request.checks else set[str]()
        with logs_kept_back():  # what they would say is shown below
            reports = await watchdog.pass_over(at.clock.now(), only=only, dry_run=request.dry_run)
    for report in reports:
        show_report(screen, report, request)
    return Exit.PROBLEMS if any(report.problems for report in reports) else Exit.DONE


async def _watchdog(tables: Tables, clock: Clock) -> Watchdog:
    visitor = _Visitor(SessionId(f"command-{random_id()}"))
    began_at = await installed_at(tables, GROUP, clock.now())
    engine = Engine(tables, {}, visitor, clock, LeftToWorkers())
    router = Router(tables, engine, clock, began_at=began_at)
    return make_watchdog(tables, engine, router, clock, Watched(looks_once=True), may_act=visitor.may_act)


def _require_known(watchdog: Watchdog, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in watchdog.names]
    if unknown:
        raise ConfigError(f"there is no check {unknown[0]!r}; a check is one of {', '.join(watchdog.names)}")


def show_report(screen: Screen, report: Report, request: PassRequest) -> None:
    telling = [finding for finding in report.findings if not finding.is_routine]
    if request.as_json:
        screen.record(
            {
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
