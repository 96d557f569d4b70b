"""What time the store says it is: each of its answers has a date, and ours is compared with it now and then."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

from worker.runtime.clock import Clock

EVERY_S: Final = 1.0  # reading a date is cheap, and calls are many


class Observe(Protocol):
    """Takes what the store said, and when it was asked and heard on our own clock."""

    def __call__(self, said: datetime, *, sent: datetime, received: datetime) -> None: ...


class StoreTime:
    """Hands the dates of answers on, one a second at most."""

    def __init__(self, clock: Clock, observe: Observe) -> None:
        self._clock, self._observe = clock, observe
        self._heard_at = float("-inf")

    def hear(self, answer: Mapping[str, Any], sent: datetime) -> None:
        """Heed an answer that was asked for at `sent`; one without a date says nothing."""
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
    # A date in GMT may be said to know no zone.
    return said.replace(tzinfo=UTC) if said is not None and said.tzinfo is None else said
