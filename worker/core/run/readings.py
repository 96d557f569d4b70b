"""What was read of a run's sensors: for an evaluation of its rules, or when its job has succeeded."""

from collections.abc import Mapping
from dataclasses import dataclass

from worker.core.model.rules import GroupResult
from worker.core.model.values import Json


@dataclass(frozen=True, slots=True)
class SensorReading:
    """A sensor as it was found. `key` is the one it is stored by, with its period if the key names one."""

    data: Mapping[str, Json]
    content_hash: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class Inputs:
    """A run's sensors as they are now, by the names its rules use, and what drift is measured against.

    They must be read after the run was: only then does the run's version prove that no change was missed in between.
    `post_run`: how the post-run rules judge them; None where no sensor of theirs changed since the start.
    """

    readings: Mapping[str, SensorReading]
    baseline: Mapping[str, Json]
    post_run: GroupResult | None = None
