"""Trait: the last result of a probe, how long it is valid, and whether a request must be stored.

A result is stored when its content changes or half of its `ttl` has passed. So a run that waits costs requests, but
hardly any writes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from worker.core.model.content_hash import content_hash
from worker.core.model.probes import Probe
from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.core.time.periods import Period
from worker.core.time.skew import was_set_back


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """ProbeResult: what a probe found, bounded and without secrets."""

    data: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeUnknown:
    """ProbeUnknown: a request that showed nothing about the data.

    `kind` classifies the failure and stays the same while the cause does; `reason` is for people. With `is_down`, the
    target itself did not answer.
    """

    kind: str
    reason: str
    is_down: bool = False


ProbeAnswer: TypeAlias = ProbeResult | ProbeUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFailure:
    """ProbeFailure: why the last requests showed nothing, and since when."""

    kind: str
    reason: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """Trait: `data` is None until the first result. `prober` is the session that sends the requests."""

    key: str
    period: Period | None = None
    data: Mapping[str, Json] | None = None
    content_hash: str = ""
    checked_at: datetime | None = None  # when the stored result was last confirmed, as far as that was stored
    changed_at: datetime | None = None
    stale_at: datetime | None = None
    failure: ProbeFailure | None = None
    asked_at: datetime | None = None  # the last request of a session that let go of the probe, for the next one
    prober: str = ""
    version: int = 0

    @property
    def name(self) -> str:
        """Return its key as a sensor would have it, with its period if it has one."""
        return self.key if self.period is None else f"{self.key}#{self.period}"

    def is_valid(self, now: datetime) -> bool:
        is_fresh = self.data is not None and self.stale_at is not None and now < self.stale_at
        return is_fresh and not self.is_from_future(now)

    def is_from_future(self, now: datetime) -> bool:
        """Return whether the clock was set back since: nobody can tell how old the result is."""
        return self.checked_at is not None and was_set_back(self.checked_at, now)


def too_early_by(trait: Trait, every: timedelta, now: datetime) -> timedelta:
    """Return how long to wait until an interval has passed since the last session's last request."""
    if trait.asked_at is None or trait.asked_at > now:
        return timedelta()
    return max(every - (now - trait.asked_at), timedelta())


def absence(probe: Probe, trait: Trait | None, now: datetime) -> str:
    """Return why a probe has no valid result; empty if it has one."""
    if trait is not None and trait.is_valid(now):
        return ""
    failed = "" if trait is None or trait.failure is None else _failed(trait.failure, now)
    if trait is None or trait.stale_at is None:
        return f"probe {probe.key} {failed or 'has no result yet'}"
    if trait.is_from_future(now):
        return f"probe {probe.key} has no current result: the clock was set back since the last one"
    stale = f"probe {probe.key} has no current result: stale since {age(trait.stale_at, now)}"
    return f"{stale}; it {failed}" if failed else stale


def describe(trait: Trait, now: datetime) -> str:
    """Return how old a result is, and whether requests fail since: "probe, result 3m old"."""
    said = "no result yet" if trait.checked_at is None else f"result {age(trait.checked_at, now)} old"
    failed = f"; it {_failed(trait.failure, now)}" if trait.failure else ""
    return f"probe, {said}{failed}"


def _failed(failure: ProbeFailure, now: datetime) -> str:
    return f"has failed since {age(failure.since, now)}: {failure.reason}"


def age(since: datetime, now: datetime) -> str:
    """Return how long ago an instant is, in whole seconds: `12m`."""
    return format_duration(timedelta(seconds=max(now - since, timedelta(0)) // timedelta(seconds=1)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Observation: a trait after an answer. `is_changed`: rules may have another result than before."""

    trait: Trait
    must_store: bool
    is_changed: bool


def observe(before: Trait, probe: Probe, answer: ProbeAnswer, now: datetime) -> Observation:
    """Return the trait after an answer, and whether it must be stored."""
    if isinstance(answer, ProbeUnknown):
        return _observe_failure(before, answer, now)
    found = content_hash(answer.data)
    is_changed = found != before.content_hash or before.data is None
    is_renewed = not before.is_valid(now)
    is_due = before.checked_at is None or now - before.checked_at >= probe.ttl / 2
    after = replace(
        before,
        data=answer.data,
        content_hash=found,
        checked_at=now,
        changed_at=now if is_changed else before.changed_at,
        stale_at=now + probe.ttl,
        failure=None,
    )
    # After an outage too: a start may wait for its last confirmation.
    is_news = is_changed or is_renewed or before.failure is not None
    return Observation(trait=after, must_store=is_news or is_due, is_changed=is_news)


def _observe_failure(before: Trait, answer: ProbeUnknown, now: datetime) -> Observation:
    """Keep the last result: it stays valid until its time to live is over."""
    known = before.failure
    if known is not None and known.kind == answer.kind:
        return Observation(trait=before, must_store=False, is_changed=False)
    since = now if known is None else known.since
    after = replace(before, failure=ProbeFailure(kind=answer.kind, reason=answer.reason, since=since))
    return Observation(trait=after, must_store=True, is_changed=False)
