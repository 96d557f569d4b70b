"""Explains why no run started at a cron time, from the rows that the scheduler wrote."""

from dataclasses import dataclass
from datetime import UTC, datetime

from worker.core.schedule.due import ON_TIME, ScheduleKey
from worker.store.repos.deployments import Deployed, Deployments
from worker.store.repos.schedule_marks import ScheduleMark, ScheduleMarks
from worker.store.table import Tables

NOT_ACCEPTED = (
    "the pipeline is older than this installation; its cron starts nothing until you accept it "
    "(`interlock migrate accept`), or push a changed file"
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
        return f"the pipeline was deployed later, at {deployed.since.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    if mark is not None and mark.passed is not None and mark.passed.first <= at <= mark.passed.last:
        return mark.passed.reason
    if mark is not None and at <= mark.considered:
        return "Interlock skipped it at the time, or its run has expired"
    if now - at <= ON_TIME:
        return "it became due only just now"
    return "not evaluated since: no worker has the scheduler role, or the pipeline is paused"
