"""Map notifications to sensors by rules. `consumers.inbox.rules_file` creates the rules."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from consumers.inbox.key_patterns import KeyPattern
from consumers.inbox.notifications import (
    EventNotification,
    Happened,
    News,
    NoNotification,
    ObjectNotification,
    PlainNotification,
)
from consumers.inbox.templates import Facts, Unfilled, fill_fields, fill_text
from consumers.outbox.patterns import EventPattern
from worker.config.schema import ID_PATTERN
from worker.core.collect.collection import Until
from worker.core.errors import Rejected
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json
from worker.core.time.periods import Period
from worker.store.repos.delivery.inbox_ledger import SensorReport

SENSOR_CHARS_MAX: Final = 256

_ID: Final = re.compile(ID_PATTERN)


class Unmappable(Rejected):
    """Reports a notification that matches a rule and cannot be turned into a sensor."""

    def __init__(self, rule: str, news: News, problem: str) -> None:
        super().__init__(
            f"the inbox rule {rule} cannot make a sensor of {news}: {problem}; it is kept as a dead letter; fix the "
            "rule or the sender, then run `interlock dlq replay`"
        )
        self.rule = rule


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPrefix:
    """BucketPrefix is a bucket and a key prefix in it."""

    bucket: str
    prefix: str = ""

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfObjects:
    """Matches objects of a bucket by key, except keys that start with one of `unless`."""

    bucket: str
    key: KeyPattern
    unless: tuple[str, ...] = ()
    tells_deletes: bool = False

    def find(self, bucket: str, key: str) -> Mapping[str, str] | None:
        """Return the captured parts of the key, or None if the object does not match."""
        is_meant = bucket == self.bucket and not key.startswith(self.unless)
        return self.key.find(key) if is_meant else None

    def may_be_in(self, place: BucketPrefix) -> bool:
        """Return whether any object under a prefix could match."""
        if place.bucket != self.bucket or place.prefix.startswith(self.unless):
            return False
        return self.key.may_begin(place.prefix)


@dataclass(frozen=True, slots=True)
class OfEvents:
    pattern: EventPattern


@dataclass(frozen=True, slots=True)
class OfMessages:
    pattern: EventPattern


Source: TypeAlias = OfObjects | OfEvents | OfMessages


class ObjectRole(StrEnum):
    """ObjectRole is what an object is to a rule that collects: a part, or a sign that all are there."""

    PART = "part"
    MARKER = "marker"
    MANIFEST = "manifest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collect:
    """Makes one sensor of all objects of a period, and says when they are complete."""

    until: Until
    marker: KeyPattern | None = None
    manifest: KeyPattern | None = None

    def find(self, key: str) -> tuple[ObjectRole, Mapping[str, str]] | None:
        """Return the role of an object that is not a part, with the captured parts of its key."""
        for role, pattern in ((ObjectRole.MARKER, self.marker), (ObjectRole.MANIFEST, self.manifest)):
            found = None if pattern is None else pattern.find(key)
            if found is not None:
                return role, found
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """Mapped is the sensor that a rule makes from a notification."""

    rule: str
    report: SensorReport
    period: Period | None
    role: ObjectRole | None = None  # set if the rule collects; then the report has no data yet


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxRule:
    """Maps matching notifications to sensors. If `fields` is None, the sensor has all their values."""

    name: str
    source: Source
    pipeline: str
    sensor: str
    period: str = ""
    fields: Mapping[str, Json] | None = None
    writes: tuple[BucketPrefix, ...] = field(default=())
    collect: Collect | None = None
    archive: BucketPrefix | None = None

    @property
    def reads_objects(self) -> bool:
        """Return whether the rule needs access to the objects themselves, besides their notifications."""
        return self.archive is not None or (self.collect is not None and self.collect.manifest is not None)

    def map(self, news: News) -> Mapped | None:
        """Return the sensor for a notification, or None if it does not match. Raises `Unmappable`."""
        facts = self._facts(news)
        if facts is None:
            return None
        try:
            return self._mapped(news, facts)
        except Unfilled as error:
            raise Unmappable(self.name, news, str(error)) from error

    def _facts(self, news: News) -> Facts | None:
        """Return the values that texts of this rule may name, or None if the notification does not match."""
        match self.source, news:
            case OfObjects() as source, ObjectNotification():
                found = self._named(source, news)
                is_heard = news.happened is Happened.CREATED or source.tells_deletes
                return Facts({**news.facts(), **found[1]}) if found is not None and is_heard else None
            case OfEvents(pattern), EventNotification(envelope):
                return Facts(envelope) if pattern.matches(envelope) else None
            case OfMessages(pattern), PlainNotification(body):
                return Facts(body) if pattern.matches(body) else None
            case _:
                return None

    def _named(self, source: OfObjects, news: ObjectNotification) -> tuple[ObjectRole, Mapping[str, str]] | None:
        """Return what an object is to this rule, with the captured parts of its key; None if it is nothing."""
        if self.collect is not None and news.bucket == source.bucket and (found := self.collect.find(news.key)):
            return found
        captured = source.find(news.bucket, news.key)
        return None if captured is None else (ObjectRole.PART, captured)

    def _mapped(self, news: News, facts: Facts) -> Mapped:
        pipeline, sensor = fill_text(self.pipeline, facts), fill_text(self.sensor, facts)
        if not _ID.fullmatch(pipeline):
            raise Unmappable(self.name, news, f"{pipeline[:80]!r} is no name of a pipeline")
        if not sensor or len(sensor) > SENSOR_CHARS_MAX:
            raise Unmappable(self.name, news, f"a sensor's key has 1 to {SENSOR_CHARS_MAX} characters")
        period = self._period(news, facts)
        stored_key = sensor if period is None else f"{sensor}#{period}"
        role = self._role(news)
        if role is not None:
            report = SensorReport(PipelineId(pipeline), stored_key, {})
            return Mapped(rule=self.name, report=report, period=period, role=role)
        data = _said_by(news) if self.fields is None else fill_fields(self.fields, facts)
        return Mapped(rule=self.name, report=SensorReport(PipelineId(pipeline), stored_key, data), period=period)

    def _role(self, news: News) -> ObjectRole | None:
        if self.collect is None or not isinstance(news, ObjectNotification):
            return None
        found = self.collect.find(news.key)
        return ObjectRole.PART if found is None else found[0]

    def _period(self, news: News, facts: Facts) -> Period | None:
        if not self.period:
            return None
        text = fill_text(self.period, facts)
        period = Period.parse(text) or Period.parse_compact(text)
        if period is None:
            raise Unmappable(self.name, news, f"{text[:80]!r} is no period such as 2026-03-03 or 2026-03-03T07")
        return period


def _said_by(news: News) -> Mapping[str, Json]:
    match news:
        case ObjectNotification():
            return news.facts()
        case EventNotification(envelope):
            detail = envelope.get("detail")
            return detail if isinstance(detail, Mapping) else {}
        case PlainNotification(body):
            return body
        case NoNotification():
            return {}


Rules: TypeAlias = Sequence[InboxRule]
