"""Probe: a question that Interlock asks about data whose producer does not report it.

A probe's key is used like a sensor's: rules, triggers and post-run rules name it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from worker.core.model.templates import names
from worker.core.model.values import Json
from worker.core.time.periods import Period

# What a probe may use of a run: its period only, because all runs of the period share the result.
PROBE_VARIABLES = ("DATE", "HOUR", "PIPELINE", "PAR_DAY", "PAR_HOUR")
_OF_PERIOD = frozenset({"DATE", "HOUR", "PAR_DAY", "PAR_HOUR"})

EVERY_DEFAULT = timedelta(minutes=5)
TIMEOUT_DEFAULT = timedelta(seconds=30)
TTL_INTERVALS = 6  # the default `ttl`, in intervals


class ProbeType(StrEnum):
    HTTP = "http"
    COMMAND = "command"
    S3 = "s3"
    GLUE_PARTITION = "glue-partition"
    DYNAMODB_ITEM = "dynamodb-item"
    SQL = "sql"


class ProbeRun(StrEnum):
    """Lists when a probe is sent."""

    WHILE_WAITING = "while-waiting"  # while a run waits for its rules
    ALWAYS = "always"  # also if no run exists, so that its result can trigger one
    BEFORE_START = "before-start"  # while a run waits, and once more right before the job


@dataclass(frozen=True, slots=True)
class ActiveHours:
    """ActiveHours: the time of day in which an `always` probe is sent; it may end after midnight."""

    begin: time
    end: time

    def __str__(self) -> str:
        return f"{self.begin:%H:%M}-{self.end:%H:%M}"

    def includes(self, at: datetime, zone: ZoneInfo) -> bool:
        now = at.astimezone(zone).time()
        if self.begin <= self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Probe: `select` maps each field of the result to a path in the response; empty keeps the response.

    With `select_all`, the part of the response at that path is the result.
    """

    key: str
    type: ProbeType
    config: Mapping[str, Json]  # as `Job.config`: only the adapter of the type knows its meaning
    every: timedelta = EVERY_DEFAULT
    timeout: timedelta = TIMEOUT_DEFAULT
    ttl: timedelta = TTL_INTERVALS * EVERY_DEFAULT
    run: ProbeRun = ProbeRun.WHILE_WAITING
    select: Mapping[str, str] = field(default_factory=dict[str, str])
    select_all: str = ""
    active_hours: ActiveHours | None = None

    @property
    def is_dated(self) -> bool:
        """Return whether the request depends on the period, so that each period has its own result."""
        if self.type is ProbeType.COMMAND or self.config.get("method") == "POST":
            return True  # the period is part of what is sent
        return any(name in _OF_PERIOD for text in _texts(self.config) for name in names(text))

    def period_of_result(self, period: Period) -> Period | None:
        """Return the period that names the result for a run; None if one result is for every period."""
        return period if self.is_dated else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRunMonitor:
    """PostRunMonitor: for how long after a success, and how often, the probes of post-run rules are sent."""

    lasts: timedelta
    every: timedelta


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for member in value.values():
            yield from _texts(member)
    elif isinstance(value, Sequence):
        for member in value:
            yield from _texts(member)
