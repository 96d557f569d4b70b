"""Timestamps: points in time as producers write them."""

import re
from datetime import UTC, datetime
from functools import lru_cache

_RFC3339 = re.compile(
    r"\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)", re.ASCII
)


def parse_rfc3339(text: str) -> datetime | None:
    """Read an RFC 3339 instant, in UTC; None if the text is not one or names a day that does not exist.

    Only the strict form counts: upper-case `T`, then `Z` or `+hh:mm`. Digits finer than a microsecond are cut off.
    """
    if not _RFC3339.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):  # 30 February, or an hour that UTC puts outside the years
        return None


def format_utc(instant: datetime) -> str:
    """Write an instant for a message to people: to the second."""
    return format_rfc3339(instant.replace(microsecond=0))


def format_rfc3339(instant: datetime) -> str:
    """Write an instant as consumers expect it: in UTC, with a `Z`, and a fraction only if there is one."""
    # In other zones, the two instants of a repeated hour are equal and hash alike.
    return _utc_text(instant if instant.tzinfo is UTC else instant.astimezone(UTC))


@lru_cache(maxsize=4_096)  # a run's times are in every row and event that is written about it
def _utc_text(instant: datetime) -> str:
    return instant.isoformat().replace("+00:00", "Z")
