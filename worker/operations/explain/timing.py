"""Explains why no run started at a cron time, from the rows that the scheduler wrote."""

from dataclasses import dataclass
from datetime import datetime

from worker.core.schedule.due import ON_TIME, ScheduleKey
from worker.core.time.timestamps import format_rfc3339
from worker.store.repos.deployments import Deployed, Deployments
from worker.store.repos.schedule_marks import ScheduleMark, ScheduleMarks
from worker.store.table import Tables

NOT_ACCEPTED = (
    "the pipeline is older than this installation, and its cron starts nothing until it is accepted "
    "(`interlock migrate accept`), or a changed file of it is pushed"
)


@dataclass(frozen=True, slots=True)
class ScheduleTiming:
    """Holds since when a schedule may start runs (None: not yet), and up to which time it was handled."""

    deployed: Deployed | None
    mark: ScheduleMark | None


async def timing_of(tables: Tables, key: ScheduleKey) -> ScheduleTiming:
    """Load the timing of a schedule. Raises `RetryLater`, and `Rejected` for a corrupt row."""
    deployed = await Deployments(tables).accepted(key.pipeline)
    return ScheduleTiming(deployed, (await ScheduleMarks(tables).load([key])).get(key))


def why_not_begun(at: datetime, timing: ScheduleTiming, now: datetime) -> str:
    """Return why there is no run for a past cron time, as far as the rows show."""
    deployed, mark = timing.deployed, timing.mark
    if deployed is None:
        return NOT_ACCEPTED
    if at <= deployed.since:
        return f"the pipeline was deployed later, at {format_rfc3339(deployed.since)}"
    if mark is not None and mark.passed is not None and mark.passed.first <= at <= mark.passed.last:
        return mark.passed.reason
    if mark is not None and at <= mark.considered:
        return "it was let go when its time came, or its run is not kept any more"
    if now - at <= ON_TIME:
        return "its time has only just come"
    return "it was not looked at since: no worker holds the scheduler's duty, or the pipeline is paused"
