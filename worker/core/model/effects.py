"""Effects that runs and SLA watches share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from worker.core.model.events import EventType
from worker.core.model.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """Write an event. With `once`, at most once per type, schedule and period.

    `once` is for events that no row of the run remembers. `about` separates subjects of one type, so that an event
    about one does not suppress an event about another.
    """

    type: EventType
    message: str
    detail: Mapping[str, Json] = field(default_factory=dict[str, Json])
    once: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Change nothing, for this reason. With `is_held_back`, the fact must be delivered again later.

    `until` is the time from which it may be delivered, if that is known.
    """

    reason: str
    is_held_back: bool = False
    until: datetime | None = None
