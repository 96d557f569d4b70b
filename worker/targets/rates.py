"""Defines how often each type of target is called, below its provider's limits (`docs/limits.md`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.model.pipeline import JobType


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate limits all calls to one target; `lists_per_second`, if set, also limits its list calls."""

    per_second: float
    burst: int
    lists_per_second: float | None = None


DEFAULT_RATES: Final[Mapping[JobType, Rate]] = {
    JobType.GLUE: Rate(5, 20),
    JobType.EMR: Rate(0.5, 10),
    JobType.EMR_SERVERLESS: Rate(5, 20),
    JobType.STEP_FUNCTION: Rate(10, 100, lists_per_second=2),
    JobType.DATABRICKS: Rate(10, 20),
    JobType.AIRFLOW: Rate(20, 40),
    JobType.LAMBDA: Rate(50, 100),
    JobType.HTTP: Rate(50, 100),
    JobType.COMMAND: Rate(1000, 1000),  # this machine: a poll reads a file
}
# Targets that only probes ask, by the first part of their name; an HTTP probe shares the limits of jobs of its host.
PROBE_RATES: Final[Mapping[str, Rate]] = {
    "s3": Rate(50, 100),
    "glue-partition": Rate(10, 20),
    "dynamodb-item": Rate(50, 100),
    "sql": Rate(10, 20),
    "athena": Rate(2, 5),
}
BURST_S: Final = 2  # the burst of a configured rate, in seconds of that rate


def with_own(rates: Mapping[JobType, float]) -> Mapping[JobType, Rate]:
    """Return the default rates, with the configured rates replacing the defaults."""
    return {**DEFAULT_RATES, **{kind: _own(DEFAULT_RATES[kind], rate) for kind, rate in rates.items()}}


def _own(default: Rate, per_second: float) -> Rate:
    lists = default.lists_per_second
    share = None if lists is None else lists * per_second / default.per_second
    return Rate(per_second, max(1, int(per_second * BURST_S)), share)
