"""Parse the messages of the inbox into notifications, whichever path they took.

A notification of a bucket comes directly from S3, through a topic or over a bus, and is parsed to the same value each
time. Any other message from a bus is an event. Any other JSON object is a plain message.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias, cast
from urllib.parse import unquote_plus

from consumers.queues.queue import Message
from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.runtime.json_bytes import from_json

WRAPPINGS_MAX: Final = 3  # a bus behind a topic behind a topic
RECORDS_MAX: Final = 1_000  # per message; S3 sends one, and a queue message cannot hold more than these
KEY_BYTES_MAX: Final = 1024
SEQUENCER: Final = 64  # digits to which S3's sequencers are padded; they have 16 or 18
S3: Final = "aws.s3"

_HEX: Final = frozenset("0123456789ABCDEF")
_TEST: Final = "s3:TestEvent"


class BadNotification(Rejected):
    """Reports a message that cannot be parsed."""

    def __init__(self, message: str, problem: str) -> None:
        super().__init__(
            f"message {message} of the inbox cannot be understood: {problem}; it is kept as a dead letter: look at who "
            "sends to this queue, and try the message with `interlock inbox test`"
        )
        self.message_id, self.problem = message, problem


class Happened(StrEnum):
    CREATED = "created"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectNotification:
    """Reports that an object was written or deleted.

    `sequencer` orders the notifications of one object; it is "" if S3 gave none.
    """

    bucket: str
    key: str
    happened: Happened
    etag: str = ""
    sequencer: str = ""
    size: int | None = None
    version: str = ""
    at: datetime

    @property
    def content(self) -> str:
        """Return what identifies the content: the etag, or the time without one; "" if the object is deleted."""
        return "" if self.happened is Happened.DELETED else self.etag or format_rfc3339(self.at)

    def facts(self) -> dict[str, Json]:
        """Return the values that rules may name. They are also the sensor's data if the rule has no `fields`."""
        known: dict[str, Json] = {
            "bucket": self.bucket,
            "key": self.key,
            "event": str(self.happened),
            "etag": self.etag or None,
            "size": self.size,
            "version": self.version or None,
            "at": format_rfc3339(self.at),
        }
        return {name: value for name, value in known.items() if value is not None}

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.key} {self.happened}"


@dataclass(frozen=True, slots=True)
class EventNotification:
    """EventNotification is any other event from a bus, in its envelope."""

    envelope: Mapping[str, Json]

    def __str__(self) -> str:
        return f"event {self.envelope.get('detail-type')} of {self.envelope.get('source')}"


@dataclass(frozen=True, slots=True)
class PlainNotification:
    """PlainNotification is a JSON object in the sender's own format."""

    body: Mapping[str, Json]

    def __str__(self) -> str:
        return "a message of its own kind"


@dataclass(frozen=True, slots=True)
class NoNotification:
    """NoNotification is a known message that needs no action."""

    reason: str

    def __str__(self) -> str:
        return self.reason


News: TypeAlias = ObjectNotification | EventNotification | PlainNotification | NoNotification


def read_notification(message: Message) -> Sequence[News]:
    """Return all notifications of a message in order. Raises `BadNotification` if one cannot be parsed."""
    body = _unwrapped(message)
    records = body.get("Records")
    if isinstance(records, list | tuple):
        if len(records) > RECORDS_MAX:
            raise BadNotification(message.id, f"it has {len(records)} records; {RECORDS_MAX} is the most")
        return [_of_record(record, message) for record in records]
    if body.get("Event") == _TEST:
        return [NoNotification("S3's own test of the notification")]
    if "detail-type" in body and isinstance(body.get("detail"), Mapping):
        return [_of_envelope(body, message)]
    return [PlainNotification(body)]


def _unwrapped(message: Message) -> Mapping[str, Json]:
    """Return the innermost object: a topic puts its message into an envelope, as text."""
    text = message.body
    for _ in range(WRAPPINGS_MAX):
        body = _object(text, message)
        inner = body.get("Message")
        if not isinstance(body.get("TopicArn"), str) or not isinstance(inner, str):
            return body
        if body.get("Type") != "Notification":
            raise BadNotification(
                message.id, f"the topic {body['TopicArn']} asks for something: confirm its subscription"
            )
        text = inner
    raise BadNotification(message.id, f"it is wrapped by more than {WRAPPINGS_MAX} topics")


def _object(text: str, message: Message) -> Mapping[str, Json]:
    try:
        body: object = from_json(text)
    except ValueError as error:
        raise BadNotification(message.id, f"it is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise BadNotification(message.id, "it is no JSON object")
    return cast("dict[str, Json]", body)


# --- S3 ---------------------------------------------------------------------------------------------------------------


def _of_record(record: Json, message: Message) -> News:
    """Parse one record of S3's own notification, whose keys are encoded as in a web form."""
    members = _mapping(record)
    name = _text(members, "eventName")
    s3 = _mapping(members.get("s3"))
    if not name or not s3:
        raise BadNotification(message.id, "a record is none of S3's: it has no `eventName` or no `s3`")
    happened = _happened_in_record(name)
    if happened is None:
        return NoNotification(f"{name} changes no content")
    found, bucket = _mapping(s3.get("object")), _text(_mapping(s3.get("bucket")), "name")
    return _object_news(
        message,
        happened,
        bucket=bucket,
        key=unquote_plus(_text(found, "key")),
        etag=_text(found, "eTag"),
        found=found,
        version=_text(found, "versionId"),
        at=_text(members, "eventTime"),
    )


def _happened_in_record(name: str) -> Happened | None:
    match name.removeprefix("s3:").partition(":")[0]:
        case "ObjectCreated":
            return Happened.CREATED
        case "ObjectRemoved" | "LifecycleExpiration":
            return Happened.DELETED
        case _:
            return None


def _of_envelope(body: Mapping[str, Json], message: Message) -> News:
    """Parse an event from a bus. In S3's events the keys are not encoded."""
    if body.get("source") != S3:
        return EventNotification(body)
    happened = {"Object Created": Happened.CREATED, "Object Deleted": Happened.DELETED}.get(_text(body, "detail-type"))
    if happened is None:
        return NoNotification(f"{_text(body, 'detail-type')} changes no content")
    detail = _mapping(body.get("detail"))
    found = _mapping(detail.get("object"))
    return _object_news(
        message,
        happened,
        bucket=_text(_mapping(detail.get("bucket")), "name"),
        key=_text(found, "key"),
        etag=_text(found, "etag"),
        found=found,
        version=_text(found, "version-id"),
        at=_text(body, "time"),
    )


def _object_news(
    message: Message,
    happened: Happened,
    *,
    bucket: str,
    key: str,
    etag: str,
    found: Mapping[str, Json],
    version: str,
    at: str,
) -> ObjectNotification:
    if not bucket or not key:
        raise BadNotification(message.id, "it names no bucket or no key of an object")
    if len(key.encode()) > KEY_BYTES_MAX:
        raise BadNotification(message.id, f"its key is longer than the {KEY_BYTES_MAX} bytes that S3 allows")
    size = found.get("size")
    return ObjectNotification(
        bucket=bucket,
        key=key,
        happened=happened,
        etag=etag.strip('"'),
        sequencer=_sequencer(_text(found, "sequencer"), message),
        size=size if isinstance(size, int) and not isinstance(size, bool) else None,
        version=version,
        at=parse_rfc3339(at) or message.sent_at,
    )


def _sequencer(text: str, message: Message) -> str:
    """Return a sequencer as text in S3's order: hexadecimal, padded with zeros on the right."""
    digits = text.upper()
    if len(digits) > SEQUENCER or not _HEX.issuperset(digits):
        raise BadNotification(message.id, f"{text[:80]!r} is no sequencer of S3's")
    return digits.ljust(SEQUENCER, "0") if digits else ""


def _text(members: Mapping[str, Json], name: str) -> str:
    value = members.get(name)
    return value if isinstance(value, str) else ""


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
