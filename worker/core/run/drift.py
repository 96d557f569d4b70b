"""Drift and freshness: how far a post-run value moved, and whether sensors changed since a success."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

from worker.core.model.pipeline import PostRun
from worker.core.model.values import Json, Number, read_number
from worker.core.time.timestamps import parse_rfc3339


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Holds two values of one sensor, then and now, and the threshold for their difference."""

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
        """Return the values under the names that consumers of drift events expect."""
        return {
            "previousCount": self.previous,
            "currentCount": self.current,
            "delta": self.delta,
            "driftThreshold": self.threshold,
            "driftField": self.field,
            "sensorKey": self.sensor_key,
        }


def measure(post_run: PostRun, sensor_key: str, before: Mapping[str, Json], after: Mapping[str, Json]) -> Drift | None:
    """Compare a sensor with its baseline; return None if either has no number to compare."""
    previous, current = read_number(before.get(post_run.drift_field)), read_number(after.get(post_run.drift_field))
    if previous is None or current is None:
        return None
    return Drift(
        sensor_key=sensor_key,
        field=post_run.drift_field,
        previous=previous,
        current=current,
        # Converted through its text: a float's own digits would make 0.1 slightly more than a tenth.
        threshold=Decimal(repr(post_run.drift_threshold)),
    )


UPDATED_AT = "updatedAt"
_SECONDS_END = 253_402_300_800  # the year 10000, beyond the range of dates
_MILLIS_FROM = 10**12  # as milliseconds, a smaller number would lie before 2001, so it is seconds
_MILLIS_END = 10**14


def changed_at(data: Mapping[str, Json]) -> datetime | None:
    """Read `updatedAt`: RFC 3339, or seconds or milliseconds since 1970; None if it is missing."""
    value = data.get(UPDATED_AT)
    if isinstance(value, str) and (instant := parse_rfc3339(value)):
        return instant
    number = read_number(value)
    if number is None:
        return None
    if 0 < number < _SECONDS_END:
        return datetime.fromtimestamp(float(number), UTC)
    return datetime.fromtimestamp(float(number) / 1000, UTC) if _MILLIS_FROM <= number < _MILLIS_END else None


def is_fresh(sensors: Iterable[Mapping[str, Json]], succeeded_at: datetime) -> bool:
    """Return whether a rerun may find other data than the success: unless all known times are older.

    A sensor without a readable `updatedAt` has no known time.
    """
    times = [at for data in sensors if (at := changed_at(data))]
    return not times or max(times) > succeeded_at
