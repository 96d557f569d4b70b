"""How often each kind of target is called. Each rate lies below what its provider publishes (`docs/limits.md`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.pipeline import JobType


@dataclass(frozen=True, slots=True)
class Rate:
    per_second: float
    burst: int


DEFAULT_RATES: Final[Mapping[JobType, Rate]] = {
    JobType.GLUE: Rate(5, 20),
    JobType.EMR: Rate(2, 10),
    JobType.EMR_SERVERLESS: Rate(5, 20),
    JobType.STEP_FUNCTION: Rate(10, 100),
    JobType.DATABRICKS: Rate(10, 20),
    JobType.AIRFLOW: Rate(20, 40),
    JobType.LAMBDA: Rate(50, 100),
    JobType.HTTP: Rate(50, 100),
    JobType.COMMAND: Rate(1000, 1000),  # this machine itself: a poll reads a file
}
BURST_S: Final = 2  # a rate that was set by hand lets so many seconds' worth through at once


def with_own(rates: Mapping[JobType, float]) -> Mapping[JobType, Rate]:
    """The default rates, with those that were set by hand instead."""
    return {**DEFAULT_RATES, **{kind: Rate(rate, max(1, int(rate * BURST_S))) for kind, rate in rates.items()}}
