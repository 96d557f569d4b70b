"""Traces for an OpenTelemetry collector: one for each run, sent as OTLP over HTTP.

A worker sends the spans of an attempt when the attempt ends. It makes them from the run's row, also if another worker
held the run before. They are sent at most once, and are lost if the worker dies within seconds of the end: the store,
the events and the log have everything that they show.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from worker.core.errors import RetryLater
from worker.core.model.keys import RunKey
from worker.core.model.trace_ids import span_id, trace_id
from worker.runtime.clock import Clock
from worker.runtime.logs import logger, redacted_text
from worker.telemetry.otlp import Post, attribute, nanoseconds

PATH: Final = "/v1/traces"
SENT_EVERY_S: Final = 5.0
WAITING_MAX: Final = 5_000  # spans; the oldest are dropped
SENT_MAX: Final = 500  # spans of one request
_INTERNAL, _CLIENT = 1, 3  # kinds of span
_ERROR: Final = 2

_log = logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedAttempt:
    """FinishedAttempt is an attempt that will not change any more."""

    key: RunKey
    run_id: str
    number: int
    began_at: datetime
    started_at: datetime | None  # None: no job was started
    ended_at: datetime
    outcome: str
    has_failed: bool
    reason: str
    job_type: str
    job: str


def spans_of(attempt: FinishedAttempt) -> list[Mapping[str, Any]]:
    """Return the spans of an attempt: the whole, its evaluation and, if one was started, its job."""
    evaluated_until = attempt.started_at or attempt.ended_at
    spans = [
        _span(attempt, "attempt", attempt.began_at, attempt.ended_at, parent=""),
        _span(attempt, "evaluate", attempt.began_at, evaluated_until),
    ]
    if attempt.started_at is not None:
        spans.append(_span(attempt, "job", attempt.started_at, attempt.ended_at, kind=_CLIENT))
    return spans


def _span(
    attempt: FinishedAttempt,
    part: str,
    begin: datetime,
    end: datetime,
    *,
    parent: str = "attempt",
    kind: int = _INTERNAL,
) -> Mapping[str, Any]:
    facts = {
        "interlock.pipeline": str(attempt.key.pipeline),
        "interlock.schedule": str(attempt.key.schedule),
        "interlock.period": str(attempt.key.period),
        "interlock.run.id": attempt.run_id,
        "interlock.run.attempt": str(attempt.number),
        "interlock.outcome": attempt.outcome,
        "interlock.job.type": attempt.job_type,
        "interlock.job.id": attempt.job,
    }
    has_failed = part != "evaluate" and attempt.has_failed
    name = f"{part} {attempt.key.pipeline}" if part == "attempt" else part
    return {
        "traceId": trace_id(attempt.run_id),
        "spanId": span_id(attempt.run_id, attempt.number, part),
        **({"parentSpanId": span_id(attempt.run_id, attempt.number, parent)} if parent else {}),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanoseconds(begin),
        "endTimeUnixNano": nanoseconds(max(begin, end)),
        "attributes": [attribute(*fact) for fact in facts.items() if fact[1]],
        **({"status": {"code": _ERROR, "message": redacted_text(attempt.reason)}} if has_failed else {}),
    }


class OtlpTraces:
    """Keeps spans until they are sent, within bounds."""

    def __init__(self, resource: Mapping[str, str], clock: Clock, post: Post) -> None:
        self._resource, self._clock, self._post = resource, clock, post
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=WAITING_MAX)
        self._is_refused = False

    def add(self, attempt: FinishedAttempt) -> None:
        """Keep the spans of an attempt until they are sent."""
        self._waiting.extend(spans_of(attempt))

    async def run(self) -> None:
        """Send spans every few seconds, until cancelled."""
        while True:
            await self._clock.sleep(SENT_EVERY_S)
            await self.send()

    async def send(self) -> None:
        """Send what waits. What the collector does not accept is tried again, and reported once."""
        while self._waiting:
            spans = [self._waiting[number] for number in range(min(SENT_MAX, len(self._waiting)))]
            try:
                await self._post(self.body(spans))
            except RetryLater as error:
                if not self._is_refused:
                    _log.warning("traces.unsent", reason=str(error), spans=len(self._waiting))
                self._is_refused = True
                return
            self._is_refused = False
            for _ in spans:
                self._waiting.popleft()

    def body(self, spans: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        return {
            "resourceSpans": [
                {
                    "resource": {"attributes": [attribute(*each) for each in self._resource.items()]},
                    "scopeSpans": [{"scope": {"name": "interlock"}, "spans": spans}],
                }
            ]
        }
