"""What we tell the world, as one value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from worker.core.model.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened, to be told. Others' events are kept too, so no name in it is taken for granted."""

    id: str
    type: str
    at: datetime
    pipeline: str = ""
    schedule: str = ""
    period: str = ""
    message: str = ""
    detail: Mapping[str, Json] = field(default_factory=dict[str, Json])
