"""The record of what people do: one event for each action, with who, in which role, what and why."""

from dataclasses import dataclass
from datetime import datetime

from worker.core.model.events import Event, EventType
from worker.core.model.keys import RunKey
from worker.core.model.values import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """Requester is the person or program that asks for an action, and how the request arrived."""

    name: str
    via: str
    role: str = ""
    request_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """OperatorAction is something that a requester wants done. `subject` is what it is about, for people."""

    name: str
    subject: str
    reason: str
    pipeline: str = ""
    schedule: str = ""
    period: str = ""
    forecast: str = ""

    @classmethod
    def on_run(cls, name: str, key: RunKey, reason: str, forecast: str) -> "OperatorAction":
        return cls(
            name=name,
            subject=str(key),
            reason=reason,
            pipeline=key.pipeline,
            schedule=key.schedule,
            period=str(key.period),
            forecast=forecast,
        )


def action_event(by: Requester, action: OperatorAction, *, event_id: str, at: datetime) -> Event:
    """Return the event of an action, for the commit that the action consists of."""
    detail: dict[str, Json] = {
        "requestedBy": by.name,
        "via": by.via,
        "role": by.role or None,
        "requestId": by.request_id or None,
        "action": action.name,
        "reason": action.reason,
        "forecast": action.forecast or None,
    }
    return Event(
        id=event_id,
        type=EventType.OPERATOR_ACTION,
        at=at,
        pipeline=action.pipeline,
        schedule=action.schedule,
        period=action.period,
        message=f"{by.name} requested {action.name} of {action.subject}: {action.reason}",
        detail={name: value for name, value in detail.items() if value is not None},
    )
