"""Group events that are not about a run into incidents, and recognise the events that end an incident."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from worker.core.model.events import Event, EventType
from worker.core.model.values import Json

# An incident without an event for this long counts as over, even without an event that ends it: the next event opens a
# new incident.
QUIET: Final = timedelta(hours=12)
NAME_MAX: Final = 200

_ALARM: Final = "ALARM"
_UNKNOWN: Final = "EVENT"  # no known event ends it
_OVER: Final = frozenset({EventType.WATCHDOG_RECOVERED, EventType.CONFIG_ACCEPTED, EventType.DATA_RESYNCED})


@dataclass(frozen=True, slots=True)
class Incident:
    """Incident is identified by `kind` and `name`; `is_over` means that this event ends it."""

    kind: str
    name: str
    is_over: bool = False

    @property
    def has_recovery(self) -> bool:
        """Return whether some event reports the end of this incident."""
        return self.kind != _UNKNOWN

    @property
    def is_silent_alone(self) -> bool:
        """Return whether the end is not worth an alert if no alert reported the start.

        An alarm also reports OK when it is created.
        """
        return self.is_over and self.kind == _ALARM

    @property
    def key(self) -> str:
        return f"{self.kind}#{_bounded(self.name)}"


def incident_of(event: Event) -> Incident | None:
    """Return the incident that an event belongs to, or None if the event is about a run."""
    if event.schedule or event.period:
        return None
    match event.type:
        case EventType.INFRA_ALARM:
            return Incident(_ALARM, _text(event.detail, "alarmName") or event.type, is_recovery(event))
        case EventType.WATCHDOG_DEGRADED | EventType.WATCHDOG_RECOVERED:
            return Incident("WATCHDOG", _names(event.detail.get("checks")) or "watchdog", is_recovery(event))
        case EventType.DATA_LOSS_SUSPECTED | EventType.DATA_RESYNCED:
            return Incident("DATA_LOSS", _text(event.detail, "source") or "stream", is_recovery(event))
        case EventType.CONFIG_REJECTED | EventType.CONFIG_ACCEPTED:
            return Incident("CONFIG", "configuration", is_recovery(event))
        case _:
            return Incident(_UNKNOWN, event.type)


def is_recovery(event: Event) -> bool:
    """Return whether an event reports that an incident is over."""
    return event.type in _OVER or (event.type == EventType.INFRA_ALARM and is_over_alarm(event.detail))


def is_over_alarm(detail: Mapping[str, Json]) -> bool:
    state = detail.get("state")
    return isinstance(state, Mapping) and state.get("value") == "OK"


def _text(detail: Mapping[str, Json], name: str) -> str:
    value = detail.get(name)
    return value if isinstance(value, str) else ""


def _names(value: Json) -> str:
    return ", ".join(sorted(str(each) for each in value)) if isinstance(value, list | tuple) else ""


def _bounded(name: str) -> str:
    """Limit the length of a name for use in a key. Different names stay different."""
    if len(name) <= NAME_MAX:
        return name
    return f"{name[:NAME_MAX]}-{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"
