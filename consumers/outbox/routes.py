"""Define routes, which say where an event goes. In embedded mode they replace the rules of a bus."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from consumers.outbox.patterns import EventPattern
from worker.core.errors import Rejected
from worker.core.model.events import Event
from worker.core.model.values import Json
from worker.core.time.timestamps import parse_rfc3339
from worker.store.rows import instant_text

SOURCE: Final = "interlock"


# Delivers an event durably. Any event may arrive twice, with the same id. Raises `RetryLater`, and `Rejected` for an
# event that can never be delivered.
Deliver: TypeAlias = Callable[[Event], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    name: str
    pattern: EventPattern
    deliver: Deliver
    is_waiting: Callable[[], bool] = lambda: False  # its destination is unavailable: `deliver` returns when it is back
    only_counts: bool = False  # it sends nothing


def envelope(event: Event, page: str = "") -> dict[str, Json]:
    """Return the event as a bus carries it. Patterns and consumers of the Lambda edition read this form.

    `page` is the address of the run's page in the console, if there is one.

    A bus gives each publication an id of its own. So our id is in the detail as well, where it identifies a repeat.
    """
    at = instant_text(event.at)
    return {
        "id": event.id,
        "source": SOURCE,
        "detail-type": event.type,
        "time": at,
        "detail": _present(
            {
                "eventId": event.id,
                "pipelineId": event.pipeline,
                "scheduleId": event.schedule or None,
                "date": event.period or None,
                "message": event.message or None,
                "timestamp": at,
                "detail": event.detail or None,
                "links": {"page": page} if page else None,
            }
        ),
    }


def event_in(carried: Mapping[str, Json]) -> Event:
    """Return the event in an envelope of ours. Raises `Rejected` for any other envelope."""
    said = carried.get("detail")
    at = parse_rfc3339(str(carried.get("time")))
    if not isinstance(said, Mapping) or at is None:
        raise Rejected("this is not the envelope of an Interlock event; drop the dead letter")
    detail = said.get("detail")
    return Event(
        id=str(carried["id"]),
        type=str(carried["detail-type"]),
        at=at,
        pipeline=str(said.get("pipelineId", "")),
        schedule=str(said.get("scheduleId", "")),
        period=str(said.get("date", "")),
        message=str(said.get("message", "")),
        detail=detail if isinstance(detail, Mapping) else {},
    )


def _present(detail: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in detail.items() if value is not None}
