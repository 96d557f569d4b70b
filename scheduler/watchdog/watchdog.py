"""Run a table of checks to find things that did not happen, each at its own interval.

A check that fails or is slow stops and delays no other. When it fails twice in a row, or does not run at all, Interlock
emits `WATCHDOG_DEGRADED`, and a recovery event when it works again. A check that raises `Impaired` is certain of its
problem, so Interlock emits the event at once. Checks only record their results; a job of its own commits them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from scheduler.periodic import PeriodicTask
from scheduler.watchdog.check import EVERY, Finding, Impaired, WatchdogCheck
from scheduler.watchdog.check_states import CheckState
from scheduler.watchdog.degraded import Degraded, Trouble
from worker.core.errors import WorkerError
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.runtime.logs import logger

COMMIT: Final = "watchdog-commit"
COMMIT_EVERY: Final = timedelta(seconds=10)
APART: Final = timedelta(seconds=0.5)  # from the first turn of a check to that of the next
OVERDUE_TURNS: Final = 3
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnd:
    """PassEnd is the state of all checks, about once a minute. Sound: all vital checks work."""

    at: datetime
    is_sound: bool
    checks: Sequence[CheckState]


@dataclass(frozen=True, slots=True)
class _Record:
    """_Record is the last report of a check, its time by both clocks, and its failures in a row."""

    report: CheckReport
    at: datetime
    at_s: float
    failed_in_a_row: int


class CheckFailed(WorkerError):
    """CheckFailed: a check had a problem. Its report has all of them; this is for those who count."""


class Watchdog:
    """Runs the checks. `commit` records what does not work, and calls `end` about once a minute.

    It does nothing more once `may_act` returns False: another worker then holds the lease.
    """

    def __init__(
        self,
        checks: Sequence[WatchdogCheck],
        degraded: Degraded,
        clock: Clock,
        *,
        end: Callable[[PassEnd], Awaitable[None]],
        may_act: Callable[[], bool],
    ) -> None:
        self._checks, self._degraded, self._clock = checks, degraded, clock
        self._end, self._may_act = end, may_act
        self._began_s = clock.monotonic()
        self._records: dict[str, _Record] = {}
        self._noted: dict[str, Trouble] | None = None  # None: not known, or not all of it could be committed
        self._ended_s: float | None = None

    @property
    def names(self) -> Sequence[str]:
        """Return the names of the checks, in the order in which they run."""
        return [check.name for check in self._checks]

    def tasks(self) -> Sequence[PeriodicTask]:
        """Return one task for each check, which starts a moment after the one before it, and one that commits."""
        checks = [
            PeriodicTask(check.name, check.every, partial(self.run_check, check), after=number * APART)
            for number, check in enumerate(self._checks)
        ]
        return [*checks, PeriodicTask(COMMIT, COMMIT_EVERY, self.commit, after=len(checks) * APART)]

    async def run_check(self, check: WatchdogCheck) -> None:
        """Run one check and record its report. Raises `CheckFailed` if the report has problems."""
        report = await self._carry_out(check, self._clock.now(), dry_run=False)
        before = self._records.get(check.name)
        is_failure = bool(report.problems) and report.impaired is None
        in_a_row = (before.failed_in_a_row if before else 0) + 1 if is_failure else 0
        self._records[check.name] = _Record(report, self._clock.now(), self._clock.monotonic(), in_a_row)
        if report.problems:
            raise CheckFailed(_shown(report.problems))

    async def commit(self) -> None:
        """Emit what changed since the last commit, and send the signs of life that are due.

        Raises `RetryLater` if the store does not answer; the heartbeat is not sent then.
        """
        # Before each check has had its turn, what a previous holder left degraded cannot be known to work.
        if not self._may_act() or not all(
            each.name in self._records or self._is_overdue(each) for each in self._checks
        ):
            return
        now_s, troubles = self._clock.monotonic(), self._troubles()
        is_pass_due = self._ended_s is None or now_s - self._ended_s >= EVERY.total_seconds()
        if is_pass_due or troubles != self._noted:
            self._noted = None
            self._noted = troubles if await self._degraded.note(troubles) else None
        if is_pass_due and self._may_act():
            await self._end(PassEnd(at=self._clock.now(), is_sound=self._is_sound(), checks=self._states()))
            self._ended_s = now_s

    def _is_overdue(self, check: WatchdogCheck) -> bool:
        """Return whether a check does not run at all; one that only takes long gives up itself."""
        record = self._records.get(check.name)
        since_s = self._clock.monotonic() - (record.at_s if record else self._began_s)
        return since_s > (OVERDUE_TURNS * check.every + LOOK_MAX).total_seconds()

    def _states(self) -> Sequence[CheckState]:
        return [
            CheckState(name=each.name, every=each.every, ended_at=record.at, problem=_shown(record.report.problems))
            for each in self._checks
            if (record := self._records.get(each.name)) is not None
        ]

    def _is_sound(self) -> bool:
        vital = [check for check in self._checks if check.is_vital]
        return not any(self._is_overdue(each) or self._records[each.name].report.problems for each in vital)

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

    def _troubles(self) -> dict[str, Trouble]:
        """Return the troubles by name. The first failure of a check is uncertain: a store may be slow briefly."""
        troubles: dict[str, Trouble] = {}
        for check in self._checks:
            record = self._records.get(check.name)
            if self._is_overdue(check):
                troubles[check.name] = Trouble(f"it did not run in the last {OVERDUE_TURNS} intervals")
            elif record is None:
                continue
            elif record.report.impaired is not None:
                troubles |= {name: Trouble(problem) for name, problem in record.report.impaired.items()}
            elif record.report.problems:
                troubles[check.name] = Trouble(_shown(record.report.problems), record.failed_in_a_row > 1)
        return troubles


def _shown(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problems[0]}{more}"
