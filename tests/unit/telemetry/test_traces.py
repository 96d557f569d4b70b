"""The trace of a run: the same from every worker, and understood by the protocol's own definitions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from opentelemetry.sdk.resources import Resource

from tests.support.builders.values import a_run
from tests.support.clock.manual import ManualClock
from tests.support.otlp import attributes_of, spans_sent
from worker.app.finished_attempts import finished_attempts
from worker.core.errors import RetryLater
from worker.core.model.trace_ids import span_id, trace_id, traceparent
from worker.core.run.state import EarlierAttempt, Outcome, State
from worker.telemetry.otlp.spans import SpanMaker
from worker.telemetry.traces import SENT_MAX, WAITING_MAX, FinishedAttempt, RunTraces

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
    """Keeps the attempts that it is sent, while it accepts."""

    def __init__(self) -> None:
        self.batches: list[list[FinishedAttempt]] = []
        self.is_down = False

    async def send(self, attempts: Sequence[FinishedAttempt]) -> None:
        if self.is_down:
            raise RetryLater("it does not answer")
        self.batches.append(list(attempts))


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


def test_a_collector_understands_the_trace_of_a_run() -> None:
    steps = ((POLLING, RETRIED), (RETRIED, DONE))
    attempts = [each for before, run in steps for each in finished_attempts(before, run)]

    found = spans_sent(SpanMaker(Resource({"service.name": "orders"})).spans_of(attempts))

    spans = sorted(found, key=lambda span: (attributes_of(span)["interlock.run.attempt"], span["name"]))
    assert {span["traceId"] for span in spans} == {trace_id(DONE.run_id)}
    assert [span["name"].split()[0] for span in spans] == ["attempt", "evaluate", "job"] * 2
    failed, completed = spans[2], spans[5]
    assert failed["status"] == {"code": "STATUS_CODE_ERROR", "message": "exit code 3"}
    assert attributes_of(failed)["error.type"] == "failed"
    assert not completed["status"]
    assert failed["parentSpanId"] == spans[0]["spanId"]
    took = [int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) for span in spans]
    assert [nanos // 60_000_000_000 for nanos in took] == [2, 1, 1, 3, 1, 2]
    assert traceparent(DONE.run_id, 2) == f"00-{completed['traceId']}-{completed['spanId']}-01"


def test_the_sampler_of_the_standard_variables_decides_for_whole_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    [attempt] = finished_attempts(RETRIED, DONE)

    spans = SpanMaker(Resource({})).spans_of([replace(attempt, run_id=f"r{number}") for number in range(100)])

    traces = Counter(each["traceId"] for each in spans_sent(spans))
    assert 20 < len(traces) < 80
    assert set(traces.values()) == {3}


def test_ids_depend_on_the_run_and_the_attempt_alone() -> None:
    assert len(trace_id("r")) == 32
    assert len({span_id("r", attempt, part) for attempt in (1, 2) for part in ("attempt", "evaluate", "job")}) == 6
    assert trace_id("r") != trace_id("s")


async def test_attempts_wait_within_a_bound_for_a_collector_that_does_not_answer() -> None:
    collector, [attempt] = Collector(), list(finished_attempts(RETRIED, DONE))
    traces = RunTraces(ManualClock(NOW), collector.send)
    collector.is_down = True
    for number in range(WAITING_MAX + 10):
        traces.add(replace(attempt, number=number))
    await traces.send()
    collector.is_down = False

    await traces.send()
    await traces.send()

    assert [each.number for batch in collector.batches for each in batch] == list(range(10, WAITING_MAX + 10))
    assert max(map(len, collector.batches)) == SENT_MAX


async def test_what_is_dropped_while_a_request_is_under_way_is_not_taken_for_what_was_sent() -> None:
    [attempt] = finished_attempts(RETRIED, DONE)
    sent: list[int] = []

    async def send(attempts: Sequence[FinishedAttempt]) -> None:
        if not sent:
            for number in range(WAITING_MAX, WAITING_MAX + 5):
                traces.add(replace(attempt, number=number))
        sent.extend(each.number for each in attempts)

    traces = RunTraces(ManualClock(NOW), send)
    for number in range(WAITING_MAX):
        traces.add(replace(attempt, number=number))

    await traces.send()

    assert sent == list(range(WAITING_MAX + 5))


def test_a_run_whose_clock_was_set_back_has_no_span_that_ends_before_it_begins() -> None:
    [attempt] = finished_attempts(None, replace(DONE, since=NOW - MINUTE))

    spans = spans_sent(SpanMaker(Resource({})).spans_of([attempt]))

    assert len(spans) == 3
    assert all(int(span["endTimeUnixNano"]) >= int(span["startTimeUnixNano"]) for span in spans)
