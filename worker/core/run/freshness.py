"""When sensors last changed, as far as producers say, and whether any did since a run succeeded."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from worker.core.model.values import Json, read_number
from worker.core.time.timestamps import parse_rfc3339

UPDATED_AT = "updatedAt"
_SECONDS_END = 253_402_300_800  # the year 10000, where dates end
_MILLIS_FROM = 10**12  # a smaller number of milliseconds would lie before 2001: it is seconds
_MILLIS_END = 10**14


def changed_at(data: Mapping[str, Json]) -> datetime | None:
    """Read `updatedAt`: RFC 3339, or seconds or milliseconds since 1970; None where the producer does not say."""
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
    """Say whether a rerun may find other data than the success did: yes, unless every sensor that tells is older."""
    times = [at for data in sensors if (at := changed_at(data))]
    return not times or max(times) > succeeded_at
