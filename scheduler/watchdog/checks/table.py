"""Assemble the table of checks that the watchdog makes, in order."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from scheduler.watchdog.alerts import Alerts
from scheduler.watchdog.check import Finding, Impaired, WatchdogCheck
from scheduler.watchdog.check_states import states_data
from scheduler.watchdog.checks.active import LATE, ActiveChecks
from scheduler.watchdog.checks.deadlines import DeadlineChecks
from scheduler.watchdog.checks.health import (
    ARCHIVE,
    CRON_SLICES,
    ArchiveCheck,
    ArchiveProblem,
    CronSliceCheck,
    DeadLetterCheck,
    LagCheck,
    Lags,
    NoteDeadLetters,
    UnheldSlices,
    unnoted,
)
from scheduler.watchdog.checks.missed_starts import BeginChecks
from scheduler.watchdog.checks.orphans import OrphanCheck, Poll
from scheduler.watchdog.checks.post_run import PostRunCheck
from scheduler.watchdog.checks.rollups import RollupCheck
from scheduler.watchdog.checks.signals import SignalChecks
from scheduler.watchdog.dead_mans_switch import ALERT_PATH, AlertPathCheck, Heartbeat, Ping
from scheduler.watchdog.degraded import Degraded
from scheduler.watchdog.due import DueWork
from scheduler.watchdog.expectations import Expectations
from scheduler.watchdog.expectations_loader import ExpectationsLoader
from scheduler.watchdog.rotation import ONCE, SLICE, RoundRobin
from scheduler.watchdog.watchdog import PassEnd, Watchdog
from worker.config.versions import PipelineVersions
from worker.core.errors import Rejected
from worker.core.model.ids import PipelineId
from worker.core.schedule.checkpoints import DEFAULT_PATIENCE, GracePeriods
from worker.engine.engine import Engine
from worker.engine.intake.resync import PipelineResync
from worker.engine.root_causes import RootCauses
from worker.engine.sla_watches import SlaMonitor
from worker.engine.upstreams import UpstreamReader
from worker.runtime.clock import Clock
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.pauses import Pauses
from worker.store.table import Tables

EXPECTED_RUNS: Final = "expected-runs"
DAMAGED_NAMED_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Says what the watchdog checks besides rows, and how it alerts. A lag of None is not checked."""

    poll: Poll | None = None  # polls a job at its target; None: as the engine does
    reader_lags: Lags | None = None
    relay_lags: Lags | None = None
    probes_alerts: bool = False  # a receiver at the end of the alert path answers probes
    ping: Ping | None = None
    repeat_after: timedelta | None = None
    archive: ArchiveProblem | None = None  # None: there is no archive to check
    unheld_slices: UnheldSlices | None = None  # of cron
    note_dead_letters: NoteDeadLetters = unnoted
    patience: GracePeriods = field(default_factory=lambda: DEFAULT_PATIENCE)
    late: timedelta = LATE
    looks_once: bool = False  # there is only one pass: what is missing in it counts as lost


def make_watchdog(
    tables: Tables,
    engine: Engine,
    clock: Clock,
    watched: Watched,
    *,
    configs: PipelineVersions,
    watches: SlaMonitor,
    resync: PipelineResync,
    may_act: Callable[[], bool],
) -> Watchdog:
    """Create a watchdog for one holder of the scheduler lease: its state must not outlive the lease."""
    ledger = Expectations(watched.patience)
    keeper = ExpectationsLoader(tables, configs, ledger, looks_back=watched.repeat_after is not None)
    alerts = Alerts(tables, clock, repeat_after=watched.repeat_after)
    heartbeat = Heartbeat(tables, watched.ping)

    async def end(ended: PassEnd) -> None:
        await keeper.note_settled(ended.at, states_data(ended.checks))
        await heartbeat.beat(ended.at, ended.is_sound)

    checks = (
        *_checks_of_runs(
            tables,
            engine,
            configs=configs,
            watches=watches,
            resync=resync,
            ledger=ledger,
            keeper=keeper,
            alerts=alerts,
            watched=watched,
        ),
        *_checks_of_ourselves(tables, clock, watched),
    )
    return Watchdog(checks, Degraded(tables, clock), clock, end=end, may_act=may_act)


def _checks_of_runs(
    tables: Tables,
    engine: Engine,
    *,
    configs: PipelineVersions,
    watches: SlaMonitor,
    resync: PipelineResync,
    ledger: Expectations,
    keeper: ExpectationsLoader,
    alerts: Alerts,
    watched: Watched,
) -> list[WatchdogCheck]:
    async def refresh(now: datetime) -> Sequence[Finding]:
        damaged = await keeper.refresh(now)
        if damaged:
            raise Impaired(_unwatched(damaged))
        return ()

    work = DueWork(tables, ledger, resync)
    rotation = RoundRobin(ONCE if watched.looks_once else SLICE)
    active = ActiveChecks(tables, engine, ledger, late=watched.late, rotation=rotation)
    causes = RootCauses(tables, configs, UpstreamReader(tables, configs))
    begin = BeginChecks(work, alerts, Pauses(tables), causes)
    deadlines = DeadlineChecks(tables, engine, configs, watches, work=work, alerts=alerts)
    signals = SignalChecks(
        tables,
        engine,
        configs,
        watches,
        resync=resync,
        ledger=ledger,
        looks_once=watched.looks_once,
    )
    orphans = OrphanCheck(tables, configs, alerts, watched.poll or engine.poll_job)
    return [
        # Without it nothing is expected, so nothing would be reported as missed.
        WatchdogCheck(name=EXPECTED_RUNS, look=refresh, is_vital=True),
        WatchdogCheck(name="stale-triggers", look=active.stale_runs, left=lambda: rotation.left),
        WatchdogCheck(
            name="sensor-trigger-reconciliation",
            look=signals.reconciliation,
            left=lambda: signals.reconciled.left,
        ),
        WatchdogCheck(name="missed-schedules", look=begin.missed_schedules),
        WatchdogCheck(name="missed-inclusion-schedules", look=begin.missed_inclusion_dates),
        WatchdogCheck(name="sla-scheduling", look=deadlines.sla_watches),
        WatchdogCheck(name="trigger-deadlines", look=deadlines.trigger_deadlines),
        WatchdogCheck(name="post-run-sensors", look=PostRunCheck(tables, ledger, alerts).missing_sensors),
        WatchdogCheck(name="relative-sla-breaches", look=signals.relative_deadlines, left=lambda: signals.watched.left),
        WatchdogCheck(name="unjudged-deadlines", look=active.unjudged_deadlines),
        WatchdogCheck(name="orphaned-jobs", look=orphans.orphaned_jobs, left=lambda: orphans.left),
        WatchdogCheck(name="daily-rollups", look=RollupCheck(tables).due),
    ]


def _unwatched(damaged: Mapping[PipelineId, Rejected]) -> dict[str, str]:
    """Return the unreadable pipelines by name, so that a known damaged one hides no other."""
    names = sorted(damaged)
    parts = {f"{EXPECTED_RUNS} {name}": str(damaged[name]) for name in names[:DAMAGED_NAMED_MAX]}
    if more := names[DAMAGED_NAMED_MAX:]:
        parts[EXPECTED_RUNS] = f"{len(more)} more pipelines cannot be read, such as {more[0]}: {damaged[more[0]]}"
    return parts


def _checks_of_ourselves(tables: Tables, clock: Clock, watched: Watched) -> list[WatchdogCheck]:
    letters = DeadLetterCheck(DeadLetters(tables), watched.note_dead_letters)
    checks = [WatchdogCheck(name="dead-letters", look=letters.depth)]
    if watched.reader_lags is not None:
        checks.append(WatchdogCheck(name="consumer-lag", look=LagCheck("consumer-lag", watched.reader_lags).lag))
    if watched.relay_lags is not None:
        checks.append(
            WatchdogCheck(name="relay-lag", look=LagCheck("relay-lag", watched.relay_lags).lag, is_vital=True)
        )
    if watched.unheld_slices is not None:
        checks.append(WatchdogCheck(name=CRON_SLICES, look=CronSliceCheck(watched.unheld_slices).look))
    if watched.archive is not None:
        checks.append(WatchdogCheck(name=ARCHIVE, look=ArchiveCheck(watched.archive).look))
    if watched.probes_alerts:
        checks.append(WatchdogCheck(name=ALERT_PATH, look=AlertPathCheck(tables, clock).look, is_vital=True))
    return checks
