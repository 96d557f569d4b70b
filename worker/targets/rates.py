"""How often each kind of target is called. Each rate lies below what its provider publishes (`docs/limits.md`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.model.pipeline import JobType


@dataclass(frozen=True, slots=True)
class Rate:
    """Calls of all kinds to one target; of these, `lists_per_second` may be lists, if there is a limit of their own."""

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
    JobType.COMMAND: Rate(1000, 1000),  # this machine itself: a poll reads a file
}
BURST_S: Final = 2  # a rate that was set by hand lets so many seconds' worth through at once


def with_own(rates: Mapping[JobType, float]) -> Mapping[JobType, Rate]:
    """The default rates, with those that were set by hand instead."""
    return {**DEFAULT_RATES, **{kind: _own(DEFAULT_RATES[kind], rate) for kind, rate in rates.items()}}


def _own(default: Rate, per_second: float) -> Rate:
    lists = default.lists_per_second
    share = None if lists is None else lists * per_second / default.per_second
    return Rate(per_second, max(1, int(per_second * BURST_S)), share)
