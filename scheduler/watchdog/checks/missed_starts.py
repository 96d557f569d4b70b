"""Check for runs that did not start: at their cron time, or on a date in `include`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from scheduler.watchdog.alerts import APART_MAX, Alert, Alerts
from scheduler.watchdog.check import Finding, few
from scheduler.watchdog.due import SOURCE, DueExpectation, DueWork, alert_of
from worker.core.model.events import EventType
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.core.run.sensor_match import LOOK_BACK
from worker.core.schedule.checkpoints import CheckKind
from worker.core.time.timestamps import format_rfc3339
from worker.engine.root_causes import RootCauses, with_cause
from worker.store.repos.pauses import Pauses

LOOK_AGAIN: Final = timedelta(minutes=15)  # how often to check an emitted alert again, if alerts are repeated


class BeginChecks:
    def __init__(self, work: DueWork, alerts: Alerts, pauses: Pauses, causes: RootCauses) -> None:
        self._work, self._alerts, self._pauses, self._causes = work, alerts, pauses, causes

    async def missed_schedules(self, now: datetime) -> Sequence[Finding]:
        return await self._not_begun(now, CheckKind.BEGIN, _missed_schedule)

    async def missed_inclusion_dates(self, now: datetime) -> Sequence[Finding]:
        return await self._not_begun(now, CheckKind.INCLUDED_DATE, _missed_date)

    async def _not_begun(
        self, now: datetime, concern: CheckKind, alert: Callable[[DueExpectation], Alert]
    ) -> Sequence[Finding]:
        missing = await self._work.without_run(now, concern)
        return [
            Finding(
                about=str(pipeline),
                sentence=few([f"{each.due.key} has not begun" for each in group], APART_MAX),
                act=partial(self._tell, pipeline, group, alert, now),
            )
            for pipeline, group in missing.items()
        ]

    async def _tell(
        self,
        pipeline: PipelineId,
        group: Sequence[DueExpectation],
        alert: Callable[[DueExpectation], Alert],
        now: datetime,
    ) -> None:
        pause = await self._pauses.load(pipeline)
        if pause is not None and not pause.is_over(now):
            self._work.put_off(group, pause, now)
            return
        missing = await self._work.still_missing(pipeline, group)
        await self._alerts.tell([await self._with_cause(each, alert(each)) for each in missing])
        for each in group:
            self._settle(each, now)

    async def _with_cause(self, each: DueExpectation, alert: Alert) -> Alert:
        """Name the root cause in the alert of a run that its upstreams keep from starting."""
        if not each.schedule.after:
            return alert
        return replace(alert, tell=with_cause(alert.tell, await self._causes.of(each.due.key)))

    def _settle(self, each: DueExpectation, now: datetime) -> None:
        repeat = self._alerts.repeat_after
        if repeat is None or now - each.due.moment.at > LOOK_BACK:
            self._work.ledger.settle(each.due)
        else:
            self._work.ledger.look_again(each.due, now + min(repeat, LOOK_AGAIN))


def _missed_schedule(each: DueExpectation) -> Alert:
    cron, expected_at, at = each.schedule.cron, each.schedule.expected_at, each.due.moment.run.at
    detail: dict[str, Json] = {"source": SOURCE, "cron": cron.text if cron else ""}
    if expected_at is not None:
        detail["expectedTime"] = str(expected_at)
    detail["actionHint"] = "find out why it did not start (`interlock explain`), then start it with `interlock rerun`"
    when = f" at {format_rfc3339(at)}" if at else ""
    return alert_of(each, EventType.SCHEDULE_MISSED, f"did not start{when}, as scheduled", detail)


def _missed_date(each: DueExpectation) -> Alert:
    hint = "its date is listed in `include`; find out why it did not start, then start it with `interlock rerun`"
    detail: dict[str, Json] = {"source": SOURCE, "actionHint": hint}
    what = "did not start on a date listed in `include`"
    return alert_of(each, EventType.IRREGULAR_SCHEDULE_MISSED, what, detail, old_mark="irregular-missed-check")
