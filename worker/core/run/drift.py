"""Drift: how far a number has moved away from what a job was started on."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from worker.core.model.pipeline import PostRun
from worker.core.model.values import Json, Number, read_number


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Two numbers of one sensor, then and now, and how far apart they may be."""

    sensor_key: str
    field: str
    previous: Number
    current: Number
    threshold: Number

    @property
    def delta(self) -> Number:
        return self.current - self.previous

    @property
    def is_beyond(self) -> bool:
        return abs(self.delta) > self.threshold

    def detail(self) -> dict[str, Json]:
        """The numbers as consumers of drift events know them."""
        return {
            "previousCount": self.previous,
            "currentCount": self.current,
            "delta": self.delta,
            "driftThreshold": self.threshold,
            "driftField": self.field,
            "sensorKey": self.sensor_key,
        }


def measure(post_run: PostRun, sensor_key: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> Drift | None:
    """Compare a sensor with its baseline; None where either has no number to compare."""
    previous, current = read_number(before.get(post_run.drift_field)), read_number(after.get(post_run.drift_field))
    if previous is None or current is None:
        return None
    return Drift(
        sensor_key=sensor_key,
        field=post_run.drift_field,
        previous=previous,
        current=current,
        # By way of its text: a float's own digits would make 0.1 slightly more than a tenth.
        threshold=Decimal(repr(post_run.drift_threshold)),
    )
