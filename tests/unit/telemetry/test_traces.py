"""The trace of a run: the same from every worker, and understood by the protocol's own definitions."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.builders.values import a_run
from tests.support.clock.manual import ManualClock
from tests.support.otlp import decoded_metrics, decoded_spans
from worker.app.finished_attempts import finished_attempts
from worker.core.errors import RetryLater
from worker.core.model.trace_ids import span_id, trace_id, traceparent
from worker.core.run.state import EarlierAttempt, Outcome, State
from worker.telemetry.meters import Meters, Metric
from worker.telemetry.otlp import OtlpMetrics
from worker.telemetry.traces import SENT_MAX, WAITING_MAX, OtlpTraces, spans_of

NOW = datetime(2027, 3, 22, 6, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
POLLING = replace(a_run(State.POLLING), started_at=NOW + MINUTE, created_at=NOW, attempt_at=None)
FAILED = EarlierAttempt(
    number=1,
    job_type="command",
    job="j-1",
    started_at=NOW + MINUTE,
    ended_at=NOW + 2 * MINUTE,
    outcome="failed",
    reason="exit code 3",
)
RETRIED = replace(
    POLLING, state=State.EVALUATING, attempt=2, attempt_at=NOW + 2 * MINUTE, attempts=(FAILED,), started_at=None
)
DONE = replace(
    RETRIED, state=State.COMPLETED, outcome=Outcome.SUCCEEDED, started_at=NOW + 3 * MINUTE, since=NOW + 5 * MINUTE
)


class Collector:
    """Keeps what it is sent, while it accepts."""

    def __init__(self) -> None:
        self.bodies: list[Mapping[str, Any]] = []
        self.is_down = False

    async def post(self, body: Mapping[str, Any]) -> None:
        if self.is_down:
            raise RetryLater("it does not answer")
        self.bodies.append(body)

    @property
    def spans(self) -> list[dict[str, Any]]:
        return [span for body in self.bodies for span in decoded_spans(body)]


def test_each_attempt_is_finished_once() -> None:
    steps = [
        (None, POLLING),
        (POLLING, RETRIED),
        (RETRIED, replace(RETRIED, state=State.POLLING)),
        (RETRIED, DONE),
        (DONE, DONE),
    ]

    found = [[attempt.number for attempt in finished_attempts(before, run)] for before, run in steps]

    assert found == [[], [1], [], [2], []]


async def test_a_collector_understands_the_trace_of_a_run() -> None:
    collector = Collector()
    traces = OtlpTraces({"service.name": "orders"}, ManualClock(NOW), collector.post)
    for before, run in ((POLLING, RETRIED), (RETRIED, DONE)):
        for attempt in finished_attempts(before, run):
            traces.add(attempt)

    await traces.send()

    spans = collector.spans
    assert {span["traceId"] for span in spans} == {trace_id(DONE.run_id)}
    assert [span["name"].split()[0] for span in spans] == ["attempt", "evaluate", "job"] * 2
    failed, completed = spans[2], spans[5]
    assert failed["status"] == {"code": "STATUS_CODE_ERROR", "message": "exit code 3"}
    assert "status" not in completed
    assert failed["parentSpanId"] == spans[0]["spanId"]
    took = [int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) for span in spans]
    assert [nanos // 60_000_000_000 for nanos in took] == [2, 1, 1, 3, 1, 2]
    assert traceparent(DONE.run_id, 2) == f"00-{completed['traceId']}-{completed['spanId']}-01"


def test_ids_depend_on_the_run_and_the_attempt_alone() -> None:
    assert len(trace_id("r")) == 32
    assert len({span_id("r", attempt, part) for attempt in (1, 2) for part in ("attempt", "evaluate", "job")}) == 6
    assert trace_id("r") != trace_id("s")


async def test_spans_wait_within_a_bound_for_a_collector_that_does_not_answer() -> None:
    collector, [attempt] = Collector(), list(finished_attempts(RETRIED, DONE))
    traces = OtlpTraces({}, ManualClock(NOW), collector.post)
    collector.is_down = True
    for _ in range(WAITING_MAX):
        traces.add(attempt)
    await traces.send()
    collector.is_down = False

    await traces.send()
    await traces.send()

    assert sum(len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) for body in collector.bodies) == WAITING_MAX
    assert all(len(body["resourceSpans"][0]["scopeSpans"][0]["spans"]) <= SENT_MAX for body in collector.bodies)


def test_a_run_whose_clock_was_set_back_has_no_span_that_ends_before_it_begins() -> None:
    [attempt] = finished_attempts(None, replace(DONE, since=NOW - MINUTE))

    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in spans_of(attempt))


async def test_a_collector_understands_the_metrics_too() -> None:
    meters, collector = Meters(), Collector()
    meters.add(Metric.RUNS_STARTED, 3)
    meters.observe(Metric.JOB_DURATION, 4.0, "succeeded")

    await OtlpMetrics(meters, {"service.name": "orders"}, NOW, collector.post).report(NOW)

    [resource] = decoded_metrics(collector.bodies[0])["resourceMetrics"]
    named = {metric["name"]: metric for metric in resource["scopeMetrics"][0]["metrics"]}
    assert named["interlock_runs_started_total"]["sum"]["dataPoints"][0]["asDouble"] == 3
    assert named["interlock_job_duration_seconds"]["histogram"]["dataPoints"][0]["count"] == "1"
