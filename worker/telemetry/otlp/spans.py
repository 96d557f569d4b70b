"""Makes the spans of attempts with OpenTelemetry's SDK: its sampler and its limits apply."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from worker.core.model.trace_ids import span_id, trace_id
from worker.runtime.logs import redacted_text
from worker.telemetry.traces import FinishedAttempt, StartedJob, Traced

SCOPE: Final = "interlock"


class SpanMaker:
    """Turns attempts into spans. One thread at a time may call it."""

    def __init__(self, resource: Resource) -> None:
        self._ids, self._ended = _RunIds(), _EndedSpans()
        provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer(SCOPE)

    def spans_of(self, attempts: Sequence[Traced]) -> list[ReadableSpan]:
        """Return the spans that the sampler takes: attempts with their parts, and starts of jobs."""
        for attempt in attempts:
            match attempt:
                case StartedJob():
                    self._trace_start(attempt)
                case FinishedAttempt():
                    self._trace(attempt)
        return self._ended.taken()

    def _trace_start(self, start: StartedJob) -> None:
        # The attempt goes on. Its span here is never ended, so it is not sent: it gives the parent's id and lets the
        # sampler decide as it will when the attempt ends.
        within = set_span_in_context(self._begin(start), Context())
        self._part(start, "start", within, start.decided_at, start.started_at)

    def _begin(self, attempt: Traced) -> Span:
        self._ids.follow(attempt, "attempt")
        return self._tracer.start_span(
            f"attempt {attempt.key.pipeline}",
            context=Context(),
            attributes=_facts(attempt),
            start_time=nanoseconds(attempt.began_at),
        )

    def _trace(self, attempt: FinishedAttempt) -> None:
        whole = self._begin(attempt)
        within = set_span_in_context(whole, Context())
        self._part(attempt, "evaluate", within, attempt.began_at, attempt.started_at or attempt.ended_at)
        if attempt.started_at is not None:
            error = _error(attempt) if attempt.has_failed else None
            self._part(attempt, "job", within, attempt.started_at, attempt.ended_at, kind=SpanKind.CLIENT, error=error)
        if attempt.stop_asked_at is not None:
            self._part(attempt, "stop", within, attempt.stop_asked_at, attempt.ended_at)
        if attempt.has_failed:
            whole.set_status(_error(attempt))
        whole.end(nanoseconds(max(attempt.began_at, attempt.ended_at)))

    def _part(
        self,
        attempt: Traced,
        part: str,
        within: Context,
        begin: datetime,
        end: datetime,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        error: Status | None = None,
    ) -> None:
        self._ids.follow(attempt, part)
        span = self._tracer.start_span(
            part, context=within, kind=kind, attributes=_facts(attempt), start_time=nanoseconds(begin)
        )
        if error is not None:
            span.set_status(error)
        span.end(nanoseconds(max(begin, end)))


class _RunIds(IdGenerator):
    """Names the next span by its run, attempt and part: every worker gives the same span the same id."""

    def __init__(self) -> None:
        self._trace = self._span = ""

    def follow(self, attempt: Traced, part: str) -> None:
        self._trace = trace_id(attempt.run_id)
        self._span = span_id(attempt.run_id, attempt.number, part)

    def generate_trace_id(self) -> int:
        return int(self._trace, 16)

    def generate_span_id(self) -> int:
        return int(self._span, 16)


class _EndedSpans(SpanProcessor):
    """Keeps ended spans until they are taken: they are sent in the batches of `RunTraces`."""

    def __init__(self) -> None:
        self._spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if context is not None and context.trace_flags.sampled:
            self._spans.append(span)

    def taken(self) -> list[ReadableSpan]:
        spans, self._spans = self._spans, []
        return spans


def nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1_000_000) * 1_000


def _facts(attempt: Traced) -> dict[str, str | int]:
    outcome, has_failed = ("", False) if isinstance(attempt, StartedJob) else (attempt.outcome, attempt.has_failed)
    facts: dict[str, str | int] = {
        "interlock.pipeline": str(attempt.key.pipeline),
        "interlock.schedule": str(attempt.key.schedule),
        "interlock.period": str(attempt.key.period),
        "interlock.run.id": attempt.run_id,
        "interlock.run.attempt": str(attempt.number),
        "interlock.outcome": outcome,
        "interlock.job.type": attempt.job_type,
        "interlock.job.id": attempt.job,
        "error.type": outcome if has_failed else "",
    }
    return {name: value for name, value in facts.items() if value}


def _error(attempt: FinishedAttempt) -> Status:
    return Status(StatusCode.ERROR, redacted_text(attempt.reason))
