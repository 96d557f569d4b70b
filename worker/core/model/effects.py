"""Effects that runs and SLA watches share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from worker.core.model.events import EventType
from worker.core.model.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitEvent:
    """Write an event. `once`: at most once per type, schedule and period, where no row of the run remembers it.

    `about` tells apart what one type may be told of, so that the one does not silence the other.
    """

    type: EventType
    message: str
    detail: Mapping[str, Json] = field(default_factory=dict[str, Json])
    once: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Nothing changes, for this reason. `is_held_back`: for now only (`until` then, if that is known), and the fact
    must come again.
    """

    reason: str
    is_held_back: bool = False
    until: datetime | None = None
