"""Defines how often each type of target is called, below its provider's limits (`docs/limits.md`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.model.pipeline import JobType


@dataclass(frozen=True, slots=True)
class ActionRate:
    """ActionRate limits one API action that its provider limits by itself."""

    per_second: float
    burst: int


@dataclass(frozen=True, slots=True)
class Rate:
    """Rate limits the calls to one target, polls above all.

    `lists_per_second`, if set, also limits its list calls. Starts and stops with a rate of their own neither wait for
    other calls nor delay them. If `is_shared`, the group's workers divide all of it among them.
    """

    per_second: float
    burst: int
    lists_per_second: float | None = None
    starts: ActionRate | None = None
    stops: ActionRate | None = None
    is_shared: bool = False


DEFAULT_RATES: Final[Mapping[JobType, Rate]] = {
    JobType.GLUE: Rate(5, 20, starts=ActionRate(5, 20), stops=ActionRate(5, 20), is_shared=True),
    JobType.EMR: Rate(0.5, 10, starts=ActionRate(0.5, 10), stops=ActionRate(0.5, 10), is_shared=True),
    JobType.EMR_SERVERLESS: Rate(5, 20, starts=ActionRate(5, 20), stops=ActionRate(5, 20), is_shared=True),
    JobType.STEP_FUNCTION: Rate(
        10, 100, lists_per_second=2, starts=ActionRate(150, 800), stops=ActionRate(25, 500), is_shared=True
    ),
    JobType.DATABRICKS: Rate(10, 20, is_shared=True),
    JobType.AIRFLOW: Rate(20, 40, is_shared=True),
    JobType.LAMBDA: Rate(50, 100, is_shared=True),
    JobType.HTTP: Rate(50, 100, is_shared=True),
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
    """Return a configured rate, which is that of each worker; all its actions change with it."""
    factor = per_second / default.per_second
    lists = default.lists_per_second
    return Rate(
        per_second,
        _burst(per_second),
        None if lists is None else lists * factor,
        starts=_scaled(default.starts, factor),
        stops=_scaled(default.stops, factor),
    )


def _scaled(action: ActionRate | None, factor: float) -> ActionRate | None:
    return None if action is None else ActionRate(action.per_second * factor, _burst(action.per_second * factor))


def _burst(per_second: float) -> int:
    return max(1, int(per_second * BURST_S))
