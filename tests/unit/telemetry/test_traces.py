"""The trace of a run: the same from every worker, and understood by the protocol's own definitions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource

from tests.support.builders.values import a_run
from tests.support.clock.manual import ManualClock
from tests.support.otlp import attributes_of, spans_sent
from worker.app.finished_attempts import finished_attempts, started_job
from worker.core.errors import RetryLater
from worker.core.model.trace_ids import span_id, trace_id, traceparent
from worker.core.run.state import AfterStop, EarlierAttempt, Outcome, Run, State
from worker.telemetry.otlp.spans import SpanMaker
from worker.telemetry.traces import SENT_MAX, WAITING_MAX, RunTraces, Traced

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
        self.batches: list[list[Traced]] = []
        self.is_down = False

    async def send(self, attempts: Sequence[Traced]) -> None:
        if self.is_down:
            raise RetryLater("it does not answer")
        self.batches.append(list(attempts))


def sent(*steps: tuple[Run | None, Run]) -> dict[str, dict[str, Any]]:
    """Return the spans, by name, that a collector gets for these commits."""
    traced: list[Traced] = []
    for before, run in steps:
        started = started_job(before, run)
        traced += [*finished_attempts(before, run), *([started] if started else [])]
    spans = SpanMaker(Resource({})).spans_of(traced)
    return {span["name"].split()[0]: span for span in (spans_sent(spans) if spans else ())}


def minutes(span: dict[str, Any]) -> tuple[float, float]:
    """Return when a span began and ended, in minutes since `NOW`."""
    nanos = (int(span[name]) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    began, ended = (each / 60e9 - NOW.timestamp() / 60 for each in nanos)
    return round(began, 3), round(ended, 3)


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


def test_the_start_of_a_job_is_a_span_from_its_decision_until_it_was_known_to_be_started() -> None:
    starting = replace(a_run(State.TRIGGERING), created_at=NOW, since=NOW + MINUTE)
    refused = replace(starting, start_failures=1)
    running = replace(POLLING, started_at=NOW + 4 * MINUTE, since=NOW + 4 * MINUTE, job_type="glue")
    done = replace(running, state=State.COMPLETED, outcome=Outcome.SUCCEEDED, since=NOW + 9 * MINUTE)

    early = sent((None, starting), (starting, refused), (refused, running))
    whole = sent((None, starting), (starting, refused), (refused, running), (running, done))

    assert list(early) == ["start"]
    start = early["start"]
    assert start == whole["start"]
    assert minutes(start) == (1, 4)
    assert start["parentSpanId"] == whole["attempt"]["spanId"] == whole["job"]["parentSpanId"]
    assert attributes_of(start)["interlock.job.type"] == "glue"
    assert sorted(whole) == ["attempt", "evaluate", "job", "start"]


@pytest.mark.parametrize("sampler", ["traceidratio", "parentbased_traceidratio"])
def test_the_start_of_a_job_is_sampled_as_the_rest_of_its_trace(monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    started, [attempt] = started_job(a_run(State.TRIGGERING), POLLING), finished_attempts(RETRIED, DONE)
    assert started is not None
    traced = [replace(each, run_id=f"r{number}") for number in range(100) for each in (started, attempt)]

    traces = Counter(each["traceId"] for each in spans_sent(SpanMaker(Resource({})).spans_of(traced)))

    assert 20 < len(traces) < 80
    assert set(traces.values()) == {4}


@pytest.mark.parametrize("after", [State.EVALUATING, State.FAILED_FINAL])
def test_a_stop_is_a_span_from_its_request_until_the_target_confirmed_it(after: State) -> None:
    stopping = replace(
        a_run(State.STOPPING), created_at=NOW, started_at=NOW + MINUTE, since=NOW + 3 * MINUTE, after_stop=AfterStop.END
    )
    ended_at = NOW + 5 * MINUTE
    run = replace(stopping, state=after, since=ended_at, outcome=Outcome.TIMED_OUT)
    if after is State.EVALUATING:
        stopped = replace(FAILED, started_at=stopping.started_at, ended_at=ended_at)
        run = replace(run, outcome=None, attempt=2, attempt_at=ended_at, attempts=(stopped,), started_at=None)

    spans = sent((stopping, replace(stopping, after_stop=AfterStop.CANCEL)), (stopping, run))

    assert minutes(spans["stop"]) == (3, 5)
    assert spans["stop"]["parentSpanId"] == spans["attempt"]["spanId"]
    assert not spans["stop"]["status"]
    assert spans["job"]["status"]["code"] == "STATUS_CODE_ERROR"


def test_what_is_not_known_of_a_start_or_a_stop_makes_no_span() -> None:
    stopping = replace(a_run(State.STOPPING), created_at=NOW, started_at=NOW, since=NOW + MINUTE)
    never_known = replace(stopping, job=None, started_at=None)
    ended = replace(stopping, state=State.FAILED_FINAL, outcome=Outcome.CANCELLED, since=NOW + 2 * MINUTE)

    assert sorted(sent((stopping, replace(ended, outcome=Outcome.ORPHANED)))) == ["attempt", "evaluate", "job"]
    assert sorted(sent((never_known, replace(ended, job=None, started_at=None)))) == ["attempt", "evaluate"]
    assert sorted(sent((POLLING, replace(ended, job=POLLING.job)))) == ["attempt", "evaluate", "job"]
    assert sent((None, POLLING), (replace(POLLING, state=State.EVALUATING), POLLING)) == {}


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
    parts = ("attempt", "evaluate", "start", "job", "stop")
    assert len({span_id("r", attempt, part) for attempt in (1, 2) for part in parts}) == 10
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

    async def send(attempts: Sequence[Traced]) -> None:
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
