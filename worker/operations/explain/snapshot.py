"""What there is to see of one run, loaded: the values that an explanation is made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.run.state import DryRun, ForeignRun, Pause, Run
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.operations.explain.timing import ScheduleTiming
from worker.store.repos.requests import RerunRequest
from worker.store.repos.sensors import Sensor

AnyRun: TypeAlias = Run | ForeignRun | DryRun


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVersion:
    """`applied` is the version this run goes by, `in_force` the one that new runs begin under.

    `problems` says why the text that is deployed cannot be used; then the last one that could is in force.
    """

    applied: str
    in_force: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumedSensor:
    """An undated sensor was taken as a signal, with this content, for this period."""

    content_hash: str
    period: Period | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """`sensors` has those that trigger and rules name, by the names they use; each under the key it is stored by."""

    key: RunKey
    now: datetime  # when it was looked at: the one instant for which everything is judged
    pipeline: Pipeline
    schedule: Schedule
    config: StoredVersion
    pause: Pause | None = None
    run: AnyRun | None = None
    request: RerunRequest | None = None  # the last one, answered or not
    sensors: Mapping[str, Sensor] = field(default_factory=dict[str, Sensor])
    consumed: ConsumedSensor | None = None
    watch: SlaWatch | None = None
    timing: ScheduleTiming | None = None  # of a schedule that time starts

    @property
    def own_run(self) -> Run | None:
        return self.run if isinstance(self.run, Run) else None


def moment(at: datetime, zone: ZoneInfo) -> str:
    """A time as the schedule's people read it: `2026-03-03 06:00 CET`."""
    return f"{at.astimezone(zone):%Y-%m-%d %H:%M %Z}"
