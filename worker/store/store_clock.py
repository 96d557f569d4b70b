"""Store time: compares the date in the store's answers with this worker's clock."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

from worker.runtime.clock import Clock

EVERY_S: Final = 1.0  # reading a date is cheap, but there are many calls


class Observe(Protocol):
    """Receives the store's time, and when this worker sent the request and received the answer."""

    def __call__(self, said: datetime, *, sent: datetime, received: datetime) -> None: ...


class StoreTime:
    """Passes on the dates of answers, at most one a second."""

    def __init__(self, clock: Clock, observe: Observe) -> None:
        self._clock, self._observe = clock, observe
        self._heard_at = float("-inf")

    def hear(self, answer: Mapping[str, Any], sent: datetime) -> None:
        """Read the date of an answer to a request sent at `sent`; an answer without a date is ignored."""
        at = self._clock.monotonic()
        if at - self._heard_at < EVERY_S:
            return
        said = _date(answer)
        if said is not None:
            self._heard_at = at
            self._observe(said, sent=sent, received=self._clock.now())


def _date(answer: Mapping[str, Any]) -> datetime | None:
    text: Any = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        said = parsedate_to_datetime(text) if isinstance(text, str) else None
    except ValueError:
        return None
    # `parsedate_to_datetime` may return a GMT date without a time zone.
    return said.replace(tzinfo=UTC) if said is not None and said.tzinfo is None else said
