"""Context: a run with everything that a decision about it depends on, and the time."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from worker.core.model.calendars import reason_excluded
from worker.core.model.pipeline import Job, JobType, Pipeline, Schedule, local_date
from worker.core.run.decision import Decision, ignore
from worker.core.run.effects import FindJob, StopJob
from worker.core.run.facts import Fact
from worker.core.run.state import Run, StartStep
from worker.core.time.periods import Period

STOP_PATIENCE = timedelta(minutes=10)
# How long a run waits for its upstreams; after that it ends as timed out. Its own limits count from when they are met.
UPSTREAM_PATIENCE = timedelta(days=7)

# Default limits for a pipeline without a job, such as one that has only been in dry run.
_NO_JOB = Job(type=JobType.COMMAND, config={})


@dataclass(frozen=True, slots=True)
class Context:
    run: Run
    pipeline: Pipeline
    schedule: Schedule
    now: datetime

    @property
    def job(self) -> Job:
        return limits(self.pipeline)

    @property
    def excluded(self) -> str | None:
        """Return why nothing may run for this period; None if it may. Depends on the period's own date."""
        return exclusion_of(self.schedule, self.run.key.period)

    @property
    def is_timed_out(self) -> bool:
        return self.now >= self.run.timeout_at

    @property
    def is_window_over(self) -> bool:
        return self.run.window_ends_at is not None and self.now >= self.run.window_ends_at

    @property
    def evaluation_ends_at(self) -> datetime | None:
        """Return when the window of the rules ends; None if it begins only once the upstreams are complete."""
        return window_of(self.schedule, self.now)

    @property
    def new_timeout_at(self) -> datetime:
        return timeout_of(self.pipeline, self.schedule, self.now)

    @property
    def own_timeout_at(self) -> datetime:
        """Return the end of the run timeout if the run waits for its upstreams no longer."""
        return min(self.run.timeout_at, self.now + self.job.run_timeout)

    def reach_for_job(self) -> list[StopJob | FindJob]:
        """Return the actions that end a job that may be running; none while its starter holds the start."""
        if self.run.job is not None:
            return [StopJob(self.run.job)]
        if self.run.start_step in {StartStep.UNANSWERED, StartStep.ABANDONED}:
            return [FindJob(self.run.token, self.run.start_failures)]
        return []


def limits(pipeline: Pipeline) -> Job:
    return pipeline.job or _NO_JOB


def window_of(schedule: Schedule, now: datetime) -> datetime | None:
    """Return when the window of the rules of a new attempt ends; None while it waits for its upstreams."""
    return None if schedule.after else now + schedule.evaluation.window


def timeout_of(pipeline: Pipeline, schedule: Schedule, now: datetime) -> datetime:
    return now + limits(pipeline).run_timeout + (UPSTREAM_PATIENCE if schedule.after else timedelta(0))


def exclusion_of(schedule: Schedule, period: Period) -> str | None:
    return reason_excluded(schedule.exclusion, local_date(period, schedule))


def not_applicable(run: Run, fact: Fact) -> Decision:
    """Ignore a fact that does not fit the state: sources deliver at least once and out of order."""
    return ignore(f"{type(fact).__name__} does not apply to a run that is {run.state}")
