"""Pipeline: a pipeline as a value, after its file was read and validated.

`worker/config/load.py` makes these values at the boundary, and they are always valid: every zone exists, every duration
is positive, every name is legal. So the core can compute with them and has no error to report.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from worker.core.model.calendars import Exclusion
from worker.core.model.deadlines import ClockTime, Deadline
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.probes import PostRunMonitor, Probe
from worker.core.model.rules import Group, Json, Rule
from worker.core.time.cron import Cron
from worker.core.time.periods import Granularity, Period, date_in_zone

UTC_ZONE = ZoneInfo("UTC")

# How far from now a period may begin, unless its schedule says otherwise: a mistyped year must not become a run. Data
# for tomorrow may be announced today, in any zone.
MAX_AHEAD = timedelta(hours=48)

# How far back `periods: latest` may look, unless the dependency says otherwise.
LOOK_BACK_DEFAULT = timedelta(days=7)


class StartBy(StrEnum):
    """Lists what creates a run of a schedule. The other source only determines what is expected."""

    TRIGGER = "trigger"
    CRON = "cron"
    BOTH = "both"


class Match(StrEnum):
    """Lists how a sensor key is compared with the key that a trigger or a post-run rule names."""

    EXACT = "exact"
    PREFIX = "prefix"


class Undated(StrEnum):
    """Lists what a trigger sensor without a date means."""

    ONCE = "once"
    DAILY = "daily"


class Misfire(StrEnum):
    """Lists how to handle cron times that passed while no worker was running."""

    SKIP = "skip"
    LATEST = "latest"
    ALL = "all"


class JobType(StrEnum):
    GLUE = "glue"
    EMR = "emr"
    EMR_SERVERLESS = "emr-serverless"
    STEP_FUNCTION = "step-function"
    DATABRICKS = "databricks"
    AIRFLOW = "airflow"
    LAMBDA = "lambda"
    HTTP = "http"
    COMMAND = "command"


class OnUnknownStart(StrEnum):
    """Lists what to do if a target without idempotency may or may not have started the job."""

    HOLD = "hold"
    RESTART = "restart"


class PeriodMapping(StrEnum):
    """Lists which periods of an upstream a run waits for."""

    SAME = "same"  # the same day, hour or minute
    ALL = "all"  # every shorter period inside ours
    LATEST = "latest"  # the newest one at or before ours
    PREVIOUS = "previous"  # the one before ours


class Requirement(StrEnum):
    """Lists what an upstream run must have reached."""

    COMPLETED = "completed"
    ENDED = "ended"  # a failed run counts too


class OnRerun(StrEnum):
    """Lists what an upstream run that completes again does to the runs that started on it."""

    RERUN = "rerun"
    ALERT = "alert"
    IGNORE = "ignore"


class Overlap(StrEnum):
    """Lists whether a new attempt may start while the last one may still be running."""

    FORBID = "forbid"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """Trigger: the sensor condition that starts a run; `rule.key` is the sensor's key."""

    rule: Rule
    match: Match = Match.EXACT
    undated: Undated = Undated.ONCE
    deadline: Deadline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependency:
    """Dependency: a pipeline whose runs must have completed before a run of ours may start.

    `schedule` None means its only schedule. `periods` None means what the grains imply. `at_least` lowers how many of
    the needed periods must be satisfied.
    """

    pipeline: PipelineId
    schedule: ScheduleId | None = None
    periods: PeriodMapping | None = None
    require: Requirement = Requirement.COMPLETED
    within: timedelta = LOOK_BACK_DEFAULT
    at_least: int | None = None
    on_rerun: OnRerun = OnRerun.RERUN

    def __str__(self) -> str:
        return self.pipeline if self.schedule is None else f"{self.pipeline}/{self.schedule}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    window: timedelta = timedelta(hours=1)
    interval: timedelta = timedelta(minutes=5)
    reopen: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MisfirePolicy:
    policy: Misfire = Misfire.LATEST
    max_lateness: timedelta = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sla:
    """Sla: at least one of the deadlines of the run and of its evaluation is set.

    With an expected duration of zero there is no warning, only the breach. `evaluation_deadline` and `max_evaluation`
    say by when the rules must hold.
    """

    deadline: Deadline | None = None
    expected_duration: timedelta | None = None
    max_duration: timedelta | None = None
    evaluation_deadline: Deadline | None = None
    max_evaluation: timedelta | None = None
    zone: ZoneInfo = UTC_ZONE
    day_offset: int = 0
    critical: bool = False

    @property
    def leading_deadline(self) -> Deadline | None:
        """Return the time of day that says how often data is due: the run's, else that of its evaluation."""
        return self.deadline or self.evaluation_deadline

    @property
    def counts_from_arrival(self) -> bool:
        return self.max_duration is not None or self.max_evaluation is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    id: ScheduleId
    zone: ZoneInfo = UTC_ZONE
    cron: Cron | None = None
    trigger: Trigger | None = None
    start: StartBy = StartBy.TRIGGER
    exclusion: Exclusion = field(default_factory=Exclusion)
    include_dates: tuple[date, ...] = ()
    expected_at: ClockTime | None = None
    evaluation: Evaluation = field(default_factory=Evaluation)
    misfire: MisfirePolicy = field(default_factory=MisfirePolicy)
    sla: Sla | None = None
    max_ahead: timedelta = MAX_AHEAD
    grain: Granularity | None = None  # the only kind of period it accepts; None: what its other fields imply
    after: tuple[Dependency, ...] = ()

    @property
    def hour_zone(self) -> ZoneInfo:
        """Return the zone that names its hours and minutes: UTC for cron, else the producers' own.

        In UTC no name repeats.
        """
        return self.zone if self.cron is None else UTC_ZONE

    @property
    def starts_by_cron(self) -> bool:
        return self.cron is not None and self.start is not StartBy.TRIGGER

    @property
    def starts_by_trigger(self) -> bool:
        return self.trigger is not None and self.start is not StartBy.CRON

    @property
    def starts_by_upstreams(self) -> bool:
        """Return whether the end of an upstream run creates a run; else `after` only holds runs back."""
        return bool(self.after) and self.trigger is None and self.start is not StartBy.CRON


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    type: JobType
    # Canonical spelling, checked against the type's own fields; only the runner of that type knows their meaning.
    config: Mapping[str, Json]
    max_retries: int = 0
    max_code_retries: int = 1
    max_drift_reruns: int = 1
    max_manual_reruns: int = 1
    poll_window: timedelta = timedelta(hours=1)
    poll_interval: timedelta = timedelta(seconds=60)
    run_timeout: timedelta = timedelta(hours=4)
    on_unknown_start: OnUnknownStart = OnUnknownStart.HOLD
    overlap: Overlap = Overlap.FORBID


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRun:
    rules: Group
    match: Match = Match.EXACT
    drift_field: str = "sensor_count"
    drift_threshold: float = 0
    sensor_timeout: timedelta = timedelta(hours=2)
    evaluation: Evaluation | None = None
    monitor: PostRunMonitor | None = None


@dataclass(frozen=True, slots=True)
class ArchetypeRef:
    """ArchetypeRef: the archetype that a pipeline file extended, as it was then."""

    id: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    id: PipelineId
    owner: str = ""
    description: str = ""
    schedules: tuple[Schedule, ...]
    rules: Group
    job: Job | None
    post_run: PostRun | None = None
    dry_run: bool = False
    archetype: ArchetypeRef | None = None
    probes: tuple[Probe, ...] = ()

    def schedule(self, schedule_id: ScheduleId) -> Schedule | None:
        return next((schedule for schedule in self.schedules if schedule.id == schedule_id), None)

    def probe(self, key: str) -> Probe | None:
        return next((probe for probe in self.probes if probe.key == key), None)


def local_date(period: Period, schedule: Schedule) -> date:
    """Return the date in the pipeline's zone that decides whether a period is excluded."""
    return date_in_zone(period, zone=schedule.zone, hour_zone=schedule.hour_zone)
