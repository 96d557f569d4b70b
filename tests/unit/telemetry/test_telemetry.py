"""What is measured, and the three forms in which it leaves the worker."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.clock.manual import ManualClock
from worker.core.errors import RetryLater
from worker.telemetry.emf import EmbeddedMetrics
from worker.telemetry.meters import MEANINGS, Meters, Metric, MetricKind
from worker.telemetry.otlp import OtlpMetrics
from worker.telemetry.prometheus import page
from worker.telemetry.reporting import LoopLag, MetricReporter

NOW = datetime(2027, 3, 22, 6, 0, tzinfo=UTC)


def test_every_metric_has_a_meaning() -> None:
    assert set(MEANINGS) == set(Metric)


def test_a_counter_that_never_rose_is_zero_so_that_its_alarm_has_data() -> None:
    samples = {sample.metric: sample.value for sample in Meters().samples()}

    assert samples[Metric.SESSIONS_LOST] == 0
    assert set(samples) == {metric for metric in Metric if metric.meaning.kind is MetricKind.COUNTER}


def test_a_line_in_the_log_holds_what_was_counted_since_the_line_before() -> None:
    meters, lines = Meters(), list[str]()
    embedded = EmbeddedMetrics(meters, "orders", lines.append)

    meters.add(Metric.RECORDS_READ, 5, label="control")
    meters.add(Metric.RECORDS_READ, 2, label="joblog")
    embedded.report(NOW)
    meters.add(Metric.RECORDS_READ, 1, label="control")
    embedded.report(NOW)

    first, second = (json.loads(line) for line in lines)
    assert (first["RecordsRead"], second["RecordsRead"]) == (7, 1)
    assert first["Service"] == "orders"


def test_a_line_in_the_log_holds_the_worst_of_a_gauge() -> None:
    meters = Meters()
    meters.watch(Metric.CONSUMER_LAG, lambda: {"control": 3.0, "joblog": 40.0, "events": 0.5})

    line = EmbeddedMetrics(meters, "orders", print).line(NOW)

    assert line["ConsumerLagSeconds"] == 40.0


def test_a_line_in_the_log_is_in_the_embedded_metric_format() -> None:
    """Each metric that is declared has a number at the root, and each dimension a text."""
    line = EmbeddedMetrics(Meters(), "orders", print).line(NOW)

    assert line["_aws"]["Timestamp"] == 1_805_695_200_000
    (declared,) = line["_aws"]["CloudWatchMetrics"]
    assert declared["Namespace"] == "Interlock"
    assert all(isinstance(line[dimension], str) for names in declared["Dimensions"] for dimension in names)
    assert declared["Metrics"]
    assert all(isinstance(line[metric["Name"]], float) for metric in declared["Metrics"])


def test_the_page_tells_streams_apart() -> None:
    meters = Meters()
    meters.add(Metric.RECORDS_READ, 1_234_567, label="control")
    meters.watch(Metric.CONSUMER_LAG, lambda: {'a"b': 1.5})

    text = page(meters)

    assert "# TYPE interlock_records_read_total counter" in text
    assert 'interlock_records_read_total{of="control"} 1234567.0\n' in text
    assert 'interlock_consumer_lag_seconds{of="a\\"b"} 1.5\n' in text


def test_a_collector_gets_totals_so_that_a_lost_report_loses_nothing() -> None:
    meters = Meters()
    otlp = OtlpMetrics(meters, "orders", NOW, _refuse)
    meters.add(Metric.RUNS_STARTED, 3)
    otlp.body(NOW)

    meters.add(Metric.RUNS_STARTED, 1)
    sent = _metric(otlp.body(NOW), "interlock_runs_started_total")

    assert sent["sum"]["isMonotonic"]
    assert sent["sum"]["aggregationTemporality"] == 2
    assert sent["sum"]["dataPoints"][0]["asDouble"] == 4
    assert sent["sum"]["dataPoints"][0]["timeUnixNano"] == "1805695200000000000"


def test_the_loop_is_late_while_something_holds_it() -> None:
    clock = ManualClock(NOW)
    lag = LoopLag(clock)

    clock.advance(timedelta(seconds=2.5))

    assert lag.now_s == pytest.approx(2.5)
    assert lag.worst_s == pytest.approx(2.5)


async def test_a_collector_that_does_not_answer_stops_nothing() -> None:
    clock, meters, lines = ManualClock(NOW), Meters(), list[str]()
    embedded = EmbeddedMetrics(meters, "orders", lines.append)
    collector = OtlpMetrics(meters, "orders", NOW, _refuse)
    reporting = MetricReporter(meters, clock, is_at_work=lambda: True, embedded=embedded, collector=collector)

    await reporting.report()
    await reporting.report()

    assert [json.loads(line)["Heartbeat"] for line in lines] == [1, 1]


async def test_a_worker_that_is_not_at_work_has_no_heartbeat() -> None:
    lines = list[str]()
    meters = Meters()
    embedded = EmbeddedMetrics(meters, "orders", lines.append)

    await MetricReporter(meters, ManualClock(NOW), is_at_work=lambda: False, embedded=embedded).report()

    assert json.loads(lines[0])["Heartbeat"] == 0


async def _refuse(_: Mapping[str, Any]) -> None:
    raise RetryLater("the collector is away")


def _metric(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    metrics = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    (found,) = [metric for metric in metrics if metric["name"] == name]
    return found
