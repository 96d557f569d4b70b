"""Read events that a bus put into a queue. This reverses `consumers.outbox.routes.envelope`."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from consumers.outbox.routes import SOURCE
from consumers.queues.queue import Message
from worker.core.errors import Rejected
from worker.core.model.events import Event, EventType
from worker.core.model.values import Json
from worker.core.time.timestamps import parse_rfc3339
from worker.runtime.json_bytes import from_json

ALARMS: Final = "aws.cloudwatch"
ALARM_CHANGE: Final = "CloudWatch Alarm State Change"
INFRASTRUCTURE: Final = "INFRASTRUCTURE"  # the pipeline name in events about the infrastructure
MESSAGE_MAX: Final = 2_000


class BadEnvelope(Rejected):
    def __init__(self, message: str, problem: str) -> None:
        super().__init__(
            f"message {message} is not an event of a bus: {problem}; it is kept as a dead letter: look at who sends "
            "to this queue"
        )
        self.message_id = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Envelope is an event as a bus delivers it, from any publisher."""

    id: str
    source: str
    type: str
    at: datetime
    detail: Mapping[str, Json]

    @property
    def is_ours(self) -> bool:
        return self.source == SOURCE

    @property
    def is_alarm(self) -> bool:
        return self.source == ALARMS and self.type == ALARM_CHANGE

    @property
    def alarm_state(self) -> str:
        return _text(_mapping(self.detail.get("state")), "value")


def read_envelope(message: Message) -> Envelope:
    """Parse the body of a message. Raises `BadEnvelope`."""
    try:
        body: object = from_json(message.body)
    except ValueError as error:
        raise BadEnvelope(message.id, f"it is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise BadEnvelope(message.id, "it is no JSON object")
    members = cast("dict[str, Json]", body)
    detail = members.get("detail")
    if not isinstance(detail, Mapping) or not _text(members, "detail-type"):
        raise BadEnvelope(message.id, "it has no `detail-type` or no `detail`")
    return Envelope(
        id=_text(members, "id") or message.id,
        source=_text(members, "source"),
        type=_text(members, "detail-type"),
        at=parse_rfc3339(_text(members, "time")) or message.sent_at,
        detail=detail,
    )


def event_in(envelope: Envelope) -> Event:
    """Return the event in an envelope, with the id that identifies a repeat.

    Events of other publishers are converted to our form. An id inside the detail counts only in our own events, so no
    other publisher can reuse the id of an event.
    """
    if envelope.is_alarm:
        return _alarm(envelope)
    detail = envelope.detail
    return Event(
        id=(_text(detail, "eventId") if envelope.is_ours else "") or envelope.id,
        type=envelope.type,
        at=parse_rfc3339(_text(detail, "timestamp")) or envelope.at,
        pipeline=_text(detail, "pipelineId"),
        schedule=_text(detail, "scheduleId"),
        period=_text(detail, "date"),
        message=_text(detail, "message")[:MESSAGE_MAX],
        detail=_mapping(detail.get("detail")) if envelope.is_ours else {**detail, "source": envelope.source},
    )


def _alarm(envelope: Envelope) -> Event:
    reason = _text(_mapping(envelope.detail.get("state")), "reason")
    name = _text(envelope.detail, "alarmName") or "an alarm without a name"
    return Event(
        id=envelope.id,
        type=EventType.INFRA_ALARM,
        at=envelope.at,
        pipeline=INFRASTRUCTURE,
        message=f"{name} is {envelope.alarm_state or 'in an unknown state'}: {reason}"[:MESSAGE_MAX],
        detail={**envelope.detail, "source": ALARMS},
    )


def _text(members: Mapping[str, Json], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
