"""Defines the loaded values from which an explanation of one run is made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.rules import GroupResult
from worker.core.run.state import DryRun, ForeignRun, Pause, Run
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.operations.explain.timing import ScheduleTiming
from worker.operations.explain.upstream_gates import UpstreamsSeen
from worker.store.repos.requests import RerunRequest
from worker.store.repos.sensors import Sensor

AnyRun: TypeAlias = Run | ForeignRun | DryRun


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """Says which versions apply: `applied` to this run, `in_force` to new runs.

    `problems` says why the deployed text cannot be used; then the last usable version is in force.
    """

    applied: str
    in_force: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumedSensor:
    """Says that an undated sensor with this content triggered the run of this period."""

    content_hash: str
    period: Period | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """Holds the state of one run. `sensors` are those of trigger and rules, by the name used there.

    Each sensor has the key under which it is stored. The valid result of a probe is one of them. `absences` says why a
    probe has none, and `probes` describes the results that are stored. `rules_result` comes with them:
    patterns can take long, so the rules are evaluated once, in turns with everything else on the loop.
    """

    key: RunKey
    now: datetime  # the time of the snapshot; every gate is evaluated for this instant
    pipeline: Pipeline
    schedule: Schedule
    config: StoredVersion
    rules_result: GroupResult  # of the pipeline's rules, on these sensors at `now`
    pause: Pause | None = None
    run: AnyRun | None = None
    request: RerunRequest | None = None  # the last one, answered or not
    sensors: Mapping[str, Sensor] = field(default_factory=dict[str, Sensor])
    absences: Mapping[str, str] = field(default_factory=dict[str, str])
    probes: Mapping[str, str] = field(default_factory=dict[str, str])
    consumed: ConsumedSensor | None = None
    watch: SlaWatch | None = None
    timing: ScheduleTiming | None = None  # of a schedule that cron starts
    upstreams: UpstreamsSeen = field(default_factory=UpstreamsSeen)  # of a schedule that runs after others

    @property
    def own_run(self) -> Run | None:
        return self.run if isinstance(self.run, Run) else None


def moment(at: datetime, zone: ZoneInfo) -> str:
    """Format a time in the schedule's zone: `2026-03-03 06:00 CET`."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M %Z}"
