"""Run a table of checks every minute to find things that did not happen.

A check that fails stops no other. When it fails twice in a row, Interlock emits `WATCHDOG_DEGRADED`, and a recovery
event when it works again. A check that raises `Impaired` is certain of its problem, so Interlock emits the event at
once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from scheduler.periodic import PeriodicTask
from scheduler.watchdog.check import Finding, Impaired, WatchdogCheck
from scheduler.watchdog.degraded import Degraded, Trouble
from worker.core.errors import WorkerError
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.logs import logger

EVERY: Final = timedelta(minutes=1)
LOOK_MAX: Final = timedelta(seconds=60)  # for a whole check: a stuck one must not block the others
FINDINGS_MAX: Final = 1000  # handled in one pass of a check; the next pass finds the rest again

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """CheckReport is the result of one check in one pass.

    A problem says why the check failed or one of its findings could not be handled. `left` counts the findings and
    pipelines that it leaves to later passes.
    """

    check: WatchdogCheck
    findings: Sequence[Finding] = ()
    problems: Sequence[str] = ()
    impaired: dict[str, str] | None = None
    left: int = 0


class Watchdog:
    """Runs the checks. It calls `end` after every pass with whether all vital checks work.

    It does nothing more once `may_act` returns False: another worker then holds the lease.
    """

    def __init__(
        self,
        checks: Sequence[WatchdogCheck],
        degraded: Degraded,
        clock: Clock,
        *,
        end: Callable[[datetime, bool], Awaitable[None]],
        may_act: Callable[[], bool],
    ) -> None:
        self._checks, self._degraded, self._clock = checks, degraded, clock
        self._end, self._may_act = end, may_act
        self._failed_last: set[str] = set()

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the checks, in the order in which they run."""
        return [check.name for check in self._checks]

    def task(self, every: timedelta = EVERY) -> PeriodicTask:
        return PeriodicTask("watchdog", every, self.run)

    async def run(self) -> None:
        """Make one pass. Raises `RetryLater` if the store does not answer; the heartbeat is not sent then."""
        now = self._clock.now()
        reports = await self.pass_over(now)
        if not self._may_act():
            return
        await self._degraded.note(self._troubles(reports))
        await self._end(now, not any(report.problems for report in reports if report.check.is_vital))

    async def pass_over(self, now: datetime, *, only: Collection[str] = (), dry_run: bool = False) -> list[CheckReport]:
        """Run the checks, or the named ones. A dry run finds problems and does nothing about them."""
        chosen = [check for check in self._checks if not only or check.name in only]
        return [await self._carry_out(check, now, dry_run=dry_run) for check in chosen]

    async def _carry_out(self, check: WatchdogCheck, now: datetime, *, dry_run: bool) -> CheckReport:
        try:
            async with asyncio.timeout(LOOK_MAX.total_seconds()):
                return await self._look(check, now, dry_run=dry_run)
        except TimeoutError:
            return CheckReport(check=check, problems=[f"it was not done within {LOOK_MAX}"])
        except WorkerError as problem:
            return CheckReport(check=check, problems=[str(problem)])
        except Exception as mistake:  # noqa: BLE001  a bug in one check must not stop the others
            _log.exception("mistake.met", check=check.name)
            return CheckReport(check=check, problems=[f"{type(mistake).__name__}: {mistake}; this is a mistake in it"])

    async def _look(self, check: WatchdogCheck, now: datetime, *, dry_run: bool) -> CheckReport:
        impaired: Impaired | None = None
        try:
            found = await check.look(now)
        except Impaired as problem:
            impaired, found = problem, problem.findings
        findings = found[:FINDINGS_MAX]
        problems = [str(impaired)] if impaired else list[str]()
        if not dry_run:
            dealt = await gather_bounded([partial(self._deal_with, check, finding) for finding in findings])
            problems += [problem for problem in dealt if problem is not None]
        parts = dict(impaired.parts) if impaired else None
        left = len(found) - len(findings) + check.left()
        return CheckReport(check=check, findings=findings, problems=problems, impaired=parts, left=left)

    async def _deal_with(self, check: WatchdogCheck, finding: Finding) -> str | None:
        """Handle a finding and return its problem, if any. One failed finding must not hide the others."""
        if not self._may_act():
            return None
        try:
            await finding.act()
        except WorkerError as problem:
            _log.warning("finding.postponed", check=check.name, about=finding.about, problem=str(problem))
            return f"{finding.about}: {problem}"
        except Exception as mistake:  # noqa: BLE001  as above
            _log.exception("mistake.met", check=check.name, about=finding.about)
            return f"{finding.about}: {type(mistake).__name__}: {mistake}; this is a mistake in the check"
        log = _log.debug if finding.is_routine else _log.info
        log("finding.handled", check=check.name, about=finding.about, finding=finding.sentence)
        return None

    def _troubles(self, reports: Sequence[CheckReport]) -> dict[str, Trouble]:
        """Return the troubles by name. The first failure of a check is uncertain: a store may be slow briefly."""
        troubles: dict[str, Trouble] = {}
        failed = {report.check.name for report in reports if report.problems and report.impaired is None}
        for report in reports:
            if report.impaired is not None:
                troubles |= {name: Trouble(problem) for name, problem in report.impaired.items()}
            elif report.problems:
                is_certain = report.check.name in self._failed_last
                troubles[report.check.name] = Trouble(_shown(report.problems), is_certain)
        self._failed_last = failed
        return troubles


def _shown(problems: Sequence[str]) -> str:
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"
