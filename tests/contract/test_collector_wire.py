"""Metrics and traces on the wire: the SDK's exporters, its standard variables, and collectors that misbehave."""

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from importlib.metadata import version
from typing import Any, cast

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from structlog.testing import capture_logs

from tests.support.builders.values import a_run
from tests.support.otlp import FakeCollector, attributes_of, decoded_spans
from worker.app.finished_attempts import finished_attempts
from worker.app.telemetry import Telemetry, report_metrics
from worker.config.settings import (
    OTEL_DISABLED,
    OTEL_METRICS,
    OTEL_RESOURCE,
    OTLP_ENDPOINT,
    OTLP_HEADERS,
    OTLP_METRICS_ENDPOINT,
    OTLP_PROTOCOL,
    OTLP_TEMPORALITY,
    OTLP_TRACES_ENDPOINT,
    OTLP_TRACES_HEADERS,
    read_settings,
)
from worker.core.errors import ConfigError, RetryLater
from worker.core.run.state import Outcome, Run, State
from worker.runtime.clock import SystemClock
from worker.telemetry.meters import Meters, Metric
from worker.telemetry.otlp.opening import OpenedCollector, open_collector
from worker.web.measures import OF_WEB

NOW = SystemClock().now()
DONE: Run = a_run(State.COMPLETED, outcome=Outcome.SUCCEEDED, started_at=NOW, created_at=NOW, since=NOW)
ATTEMPT = list(finished_attempts(None, DONE))


@pytest.fixture(autouse=True)
def libraries_log() -> Generator[None]:
    """Give the log of the SDK back, as other tests know it."""
    library = logging.getLogger("opentelemetry")
    handlers, propagates = list(library.handlers), library.propagate
    yield
    library.handlers, library.propagate = handlers, propagates


def opened(monkeypatch: pytest.MonkeyPatch, **variables: str) -> OpenedCollector:
    """Open exporters as a worker with these variables would."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = read_settings(variables).telemetry.collector
    return open_collector(
        METERS,
        NOW,
        service="orders",
        traces=settings.traces_protocol or settings.protocol,
        metrics=settings.metrics_protocol or settings.protocol,
        is_delta=settings.is_delta,
        headers=(settings.headers, settings.traces_headers, settings.metrics_headers),
        endpoints=(settings.endpoint, settings.traces_endpoint, settings.metrics_endpoint),
    )


METERS = Meters()
METERS.add(Metric.RUNS_STARTED, 3)


async def send_both(collector: OpenedCollector, now: datetime = NOW) -> list[str]:
    """Send spans and metrics; return why either was not accepted."""
    assert collector.send_spans is not None
    assert collector.report is not None
    reasons: list[str] = []
    for sending in (collector.send_spans(ATTEMPT), collector.report(now)):
        try:
            await sending
        except RetryLater as error:
            reasons.append(str(error))
    return reasons


async def test_standard_variables_say_where_and_how_to_send(monkeypatch: pytest.MonkeyPatch) -> None:
    both, traces = FakeCollector(), FakeCollector()
    async with both.on_loopback() as address, traces.on_loopback() as other:
        collector = opened(
            monkeypatch,
            **{
                OTLP_ENDPOINT: address,
                OTLP_HEADERS: "x-tenant=data%20team",
                OTLP_TRACES_ENDPOINT: f"{other}/custom/traces",
                OTLP_TRACES_HEADERS: "x-tenant=traces",
                OTEL_RESOURCE: "service.namespace=data,service.instance.id=one",
            },
        )
        assert await send_both(collector) == []
        collector.close()

    assert (both.paths, traces.paths) == (["/v1/metrics"], ["/custom/traces"])
    assert (both.headers[0]["x-tenant"], traces.headers[0]["x-tenant"]) == ("data team", "traces")
    assert len(traces.spans) == 3
    named = attributes_of(both.reports[0]["resourceMetrics"][0]["resource"])
    assert named["service.namespace"] == "data"
    assert (named["service.name"], named["service.instance.id"]) == ("orders", "one")
    assert named["service.version"] == version("interlock")


async def test_a_report_with_differences_that_was_refused_is_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCollector()
    async with fake.on_loopback() as address:
        collector = opened(monkeypatch, **{OTLP_ENDPOINT: address, OTLP_TEMPORALITY: "delta"})
        fake.status = 400
        assert len(await send_both(collector)) == 2
        fake.status = 200
        for minutes in (1, 2):
            assert await send_both(collector, NOW + timedelta(minutes=minutes)) == []
        collector.close()

    assert [_started(report) for report in fake.reports] == [3, 0]


async def test_no_header_and_no_address_is_in_any_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeCollector(status=401)
    async with fake.on_loopback() as address:
        secret = address.replace("http://", "http://hidden-user:hidden-pass@") + "/hidden-path"
        headers = "authorization=Bearer%20hidden-1,x-key=hidden-2,wrong name=hidden-3"
        with capture_logs() as lines:
            variables = {OTLP_ENDPOINT: secret, OTLP_HEADERS: headers, "OTEL_EXPORTER_OTLP_TIMEOUT": "0.5"}
            collector = opened(monkeypatch, **variables)
            reasons = await send_both(collector)
    reasons += await send_both(collector)  # nobody listens there any more
    collector.close()

    assert ["401" in reason for reason in reasons] == [True, True, False, False]
    assert "hidden" not in str((reasons, lines, caplog.text))
    assert [line["event"] for line in lines] == ["telemetry.warned"]


async def test_a_collector_that_hangs_costs_one_thread_and_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _silent() as address:
        collector = opened(monkeypatch, **{OTLP_ENDPOINT: address, "OTEL_EXPORTER_OTLP_TIMEOUT": "2"})
        assert collector.report is not None
        threads = threading.active_count()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(collector.report(NOW), 0.2)
        for _ in range(3):
            with pytest.raises(RetryLater, match="has not answered the last request"):
                await collector.report(NOW)

        assert threading.active_count() <= threads + 1
        assert all(thread.daemon for thread in threading.enumerate() if thread.name == "otlp-metrics")
        collector.close()


def test_a_collector_that_knows_only_grpc_gets_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    with _grpc_collector() as (address, received):
        collector = opened(
            monkeypatch,
            **{OTLP_ENDPOINT: address, OTLP_PROTOCOL: "grpc", OTLP_HEADERS: "x-tenant=data%20team"},
        )
        assert collector.send_spans is not None
        asyncio.run(cast("Any", collector.send_spans(ATTEMPT)))
        collector.close()

    [(spans, tenant)] = received
    assert len(spans) == 3
    assert tenant == "data team"


# --- the worker -----------------------------------------------------------------------------------------------------


async def test_a_worker_without_the_library_works_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "worker.telemetry.otlp.opening", None)

    lines = await _lines_of_a_worker(**{OTLP_ENDPOINT: "http://127.0.0.1:1"})

    assert [(line["event"], line["log_level"]) for line in lines] == [("telemetry.unavailable", "error")]
    assert "interlock[otel]" in lines[0]["reason"]


async def test_a_protocol_that_is_not_supported_is_no_reason_not_to_work() -> None:
    lines = await _lines_of_a_worker(**{OTLP_ENDPOINT: "http://127.0.0.1:1", OTLP_PROTOCOL: "http/json"})

    assert {line["reason"] for line in lines} == {
        "the protocol 'http/json' is not supported; use http/protobuf or grpc"
    }


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {OTLP_ENDPOINT: "http://127.0.0.1:1", OTEL_DISABLED: "true"},
        {OTLP_METRICS_ENDPOINT: "x", OTEL_METRICS: "none"},
    ],
    ids=["nothing is set", "the SDK is disabled", "the only signal is off"],
)
async def test_nothing_is_opened_that_is_not_asked_for(variables: dict[str, str]) -> None:
    told = Telemetry(read_settings(variables).telemetry, {}, SystemClock(), lambda _: None)
    async with AsyncExitStack() as stack:
        with capture_logs() as lines:
            await told.open(stack, queues=[], needs_session=False, alert_failures=lambda: 0)

    assert lines == []


async def test_headers_that_are_none_are_refused_without_their_text() -> None:
    with pytest.raises(ConfigError, match=r"^OTEL_EXPORTER_OTLP_HEADERS: part 2 is not name=value") as refusal:
        await _lines_of_a_worker(**{OTLP_ENDPOINT: "http://127.0.0.1:1", OTLP_HEADERS: "a=b,hidden"})

    assert "hidden" not in str(refusal.value)


async def _lines_of_a_worker(**variables: str) -> list[Any]:
    told = Telemetry(read_settings(variables).telemetry, {}, SystemClock(), lambda _: None)
    async with AsyncExitStack() as stack:
        with capture_logs() as lines:
            await told.open(stack, queues=[], needs_session=False, alert_failures=lambda: 0)
    return cast("list[Any]", lines)


def _started(report: dict[str, Any]) -> float:
    metrics = report["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    [found] = [each for each in metrics if each["name"] == "interlock_runs_started_total"]
    return found["sum"]["dataPoints"][0]["asDouble"]


@asynccontextmanager
async def _silent() -> AsyncGenerator[str]:
    """A server that accepts connections and never answers."""
    ends = asyncio.Event()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        ends.set()
        server.close()


@contextmanager
def _grpc_collector() -> Generator[tuple[str, list[tuple[list[dict[str, Any]], str]]]]:
    received: list[tuple[list[dict[str, Any]], str]] = []

    class Service(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportTraceServiceResponse:  # noqa: ANN401, N802 - its name
            tenant = dict(context.invocation_metadata())["x-tenant"]
            received.append((decoded_spans(request.SerializeToString()), tenant))
            return ExportTraceServiceResponse()

    server: Any = cast("Any", grpc).server(ThreadPoolExecutor(1))
    cast("Any", trace_service_pb2_grpc).add_TraceServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", received
    finally:
        server.stop(None).wait()


async def test_a_process_that_only_serves_reports_its_own_metrics_and_no_heartbeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meters, collector = Meters(OF_WEB), FakeCollector()
    meters.observe(Metric.WEB_REQUEST, 0.25, ("/", "GET", "2xx"))
    async with collector.on_loopback() as address, AsyncExitStack() as stack:
        monkeypatch.setenv(OTLP_ENDPOINT, address)  # the SDK reads it itself
        settings = read_settings({OTLP_ENDPOINT: address}).telemetry
        await report_metrics(stack, settings, meters, SystemClock(), lambda _: None)
        await stack.aclose()

    [report] = collector.reports
    [scope] = report["resourceMetrics"][0]["scopeMetrics"]
    sent = {each["name"]: each for each in scope["metrics"]}
    assert {"interlock_web_request_seconds", "interlock_loop_lag_seconds"} <= set(sent)
    assert "interlock_heartbeat_total" not in sent
    [point] = sent["interlock_web_request_seconds"]["histogram"]["dataPoints"]
    assert attributes_of(point) == {"route": "/", "method": "GET", "status": "2xx"}
