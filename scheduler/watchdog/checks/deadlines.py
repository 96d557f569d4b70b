"""Check deadlines: data that did not arrive in time, and deadlines without an SLA watch."""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

from scheduler.watchdog.alerts import APART_MAX, Alert, Alerts
from scheduler.watchdog.check import Finding, few
from scheduler.watchdog.due import SOURCE, DueExpectation, DueWork, alert_of
from worker.config.versions import PipelineVersions
from worker.core.model.deadlines import SlaTimes
from worker.core.model.events import EventType
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.core.run.create import deadline_detail
from worker.core.run.facts import SignalOverdue
from worker.core.run.state import Status
from worker.core.schedule.checkpoints import CheckKind
from worker.core.sla.watch import RunExpected
from worker.core.time.timestamps import format_rfc3339
from worker.engine.engine import Engine, Handled
from worker.engine.sla_watches import SlaMonitor
from worker.store.repos.pauses import Pauses
from worker.store.repos.sla_watches import watch_key
from worker.store.table import Row, TableName, Tables


class DeadlineChecks:
    def __init__(
        self,
        tables: Tables,
        engine: Engine,
        configs: PipelineVersions,
        watches: SlaMonitor,
        *,
        work: DueWork,
        alerts: Alerts,
    ) -> None:
        self._tables, self._engine, self._configs, self._watches = tables, engine, configs, watches
        self._work, self._alerts = work, alerts
        self._pauses = Pauses(tables)

    # --- Missing data -------------------------------------------------------------------------------------------------

    async def trigger_deadlines(self, now: datetime) -> Sequence[Finding]:
        missing = await self._work.without_run(now, CheckKind.SIGNAL)
        return [
            Finding(
                about=str(pipeline),
                sentence=few([f"no trigger sensor arrived for {each.due.key}" for each in group], APART_MAX),
                act=partial(self._give_up, pipeline, group, now),
            )
            for pipeline, group in missing.items()
        ]

    async def _give_up(self, pipeline: PipelineId, group: Sequence[DueExpectation], now: datetime) -> None:
        pause = await self._pauses.load(pipeline)
        if pause is not None and not pause.is_over(now):
            self._work.put_off(group, pause, now)
            return
        missing, held_back = await self._work.still_missing(pipeline, group), list[DueExpectation]()
        if len(missing) > APART_MAX:
            # Write no rows: data that still arrives closes its own run, because it was written too late.
            await self._alerts.tell([_no_signal(each) for each in missing])
        else:
            held_back = [each for each in missing if not await self._close(each)]
        for each in group:
            self._work.ledger.settle(each.due)
        self._work.put_off(held_back, None, now)

    async def _close(self, each: DueExpectation) -> bool:
        """Close a run without data; return False if a pause has just begun and holds it back."""
        deadline_at = each.due.moment.run.trigger_deadline_at
        if deadline_at is None:
            return True
        overdue = SignalOverdue(key=each.due.key, birth=self._engine.new_run(each.version), deadline_at=deadline_at)
        return await self._engine.handle(each.due.key, overdue) is Handled.SETTLED

    # --- Deadlines without a watch ------------------------------------------------------------------------------------

    async def sla_watches(self, now: datetime) -> Sequence[Finding]:
        """Find runs without an SLA watch that may never start. A run that starts arms its own watch."""
        due = self._work.ledger.due(now, CheckKind.WATCH)
        rows = await self._work.rows(due)
        watched = await self._tables.get_many(TableName.CONTROL, [watch_key(each.key) for each in due])
        unwatched = [each for each in due if watch_key(each.key) not in watched and _may_breach(rows.get(each.key))]
        return [
            Finding(
                about=str(pipeline),
                sentence=few([f"the deadline of {each.due.key} is not watched" for each in group], APART_MAX),
                act=partial(self._arm_all, group, now),
            )
            for pipeline, group in self._work.left(due, unwatched).items()
        ]

    async def _arm_all(self, group: Sequence[DueExpectation], now: datetime) -> None:
        late = [each for each in group if _times(each).is_over(now)]
        if len(late) > APART_MAX:
            # After a long outage: one summary of the breaches, and a watch for each deadline that is still ahead.
            await self._alerts.tell([_breached(each) for each in late])
        else:
            late = []
        for each in group:
            if each not in late:
                await self._arm(each)
            self._work.ledger.settle(each.due)

    async def _arm(self, each: DueExpectation) -> None:
        await self._configs.persist(each.version)
        expected = RunExpected(times=_times(each), config_hash=each.version.config_hash)
        await self._watches.handle(each.due.key, expected)


def _may_breach(row: Row | None) -> bool:
    """Return whether a watch is needed: a run of ours has armed its own, and an ended one needs none."""
    return row is None or (row.get("status") == Status.RUNNING and "state" not in row)


def _times(each: DueExpectation) -> SlaTimes:
    run = each.due.moment.run
    return SlaTimes(run.warning_at, run.breach_at, run.evaluation_at)


def _no_signal(each: DueExpectation) -> Alert:
    deadline_at = each.due.moment.run.trigger_deadline_at or each.due.moment.at
    detail: dict[str, Json] = {
        "source": SOURCE,
        **deadline_detail(each.schedule, deadline_at),
        "actionHint": "find out why the data is late; when it has arrived, request a rerun",
    }
    what = f"does not start: no trigger sensor arrived by {format_rfc3339(deadline_at)}"
    return alert_of(each, EventType.SENSOR_DEADLINE_EXPIRED, what, detail)


def _breached(each: DueExpectation) -> Alert:
    breach_at = format_rfc3339(_times(each).last)
    sla = each.schedule.sla
    if each.due.moment.run.breach_at is None:
        unready: dict[str, Json] = {
            "status": "not started",
            "source": "schedule",
            "deadlineAt": breach_at,
            **({"evaluationDeadline": str(sla.evaluation_deadline)} if sla and sla.evaluation_deadline else {}),
            "actionHint": "find out why the data is late; no run was started for it",
        }
        return alert_of(each, EventType.EVALUATION_SLA_BREACH, f"did not start by {breach_at}", unready)
    detail: dict[str, Json] = {
        "status": "not started",
        "source": "schedule",  # the value of every deadline that follows the clock, whatever noticed the breach
        "breachAt": breach_at,
        **({"deadline": str(sla.deadline)} if sla and sla.deadline else {}),
        "actionHint": "inform the users of the data; find out why the run did not start",
    }
    return alert_of(each, EventType.SLA_BREACH, f"breached its deadline of {breach_at} and did not start", detail)
