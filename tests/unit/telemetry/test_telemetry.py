"""What is measured, and the three forms in which it leaves the worker."""

import json
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import pytest
from opentelemetry.sdk.resources import Resource
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clock.manual import ManualClock
from tests.support.otlp import metrics_sent
from worker.core.errors import RetryLater
from worker.telemetry.emf import EmbeddedMetrics
from worker.telemetry.meters import BOUNDS_S, MEANINGS, Meters, Metric, MetricKind
from worker.telemetry.otlp.metrics import ReportedTotals, report_of
from worker.telemetry.prometheus import page
from worker.telemetry.reporting import LoopLag, MetricReporter

NOW = datetime(2027, 3, 22, 6, 0, tzinfo=UTC)
RESOURCE = Resource({"service.name": "orders"})


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
    read = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert read["interlock_records_read_total", "control"] == 1_234_567
    assert read["interlock_consumer_lag_seconds", 'a"b'] == 1.5


def test_several_labels_have_names_on_the_page_and_for_a_collector_and_one_sum_in_the_log() -> None:
    meters = Meters()
    meters.add(Metric.TARGET_CALLS, 3, label=("glue", "start"))
    meters.add(Metric.TARGET_CALLS, 2, label=("glue", "poll"))

    on_page = {
        (sample.labels["target"], sample.labels["action"]): sample.value
        for family in text_string_to_metric_families(page(meters))
        for sample in family.samples
        if sample.name == "interlock_target_calls_total"
    }
    sent = metrics_sent(report_of(meters, RESOURCE, ReportedTotals(NOW), NOW).data)["interlock_target_calls_total"]
    points = [
        {each["key"]: each["value"]["stringValue"] for each in point["attributes"]}
        for point in sent["sum"]["dataPoints"]
    ]

    assert on_page == {("glue", "start"): 3, ("glue", "poll"): 2}
    assert points == [{"target": "glue", "action": "poll"}, {"target": "glue", "action": "start"}]
    assert EmbeddedMetrics(meters, "orders", print).line(NOW)["TargetCalls"] == 5


def test_a_counter_with_several_labels_that_never_rose_is_zero_on_the_page() -> None:
    assert 'interlock_target_calls_total{action="",target=""} 0.0' in page(Meters())


def test_the_page_shows_the_process_and_its_version() -> None:
    families = {family.name: family for family in text_string_to_metric_families(page(Meters()))}

    assert {"process_cpu_seconds", "process_resident_memory_bytes", "process_open_fds"} <= set(families)
    [build] = families["interlock_build_info"].samples
    assert (build.labels, build.value) == ({"version": version("interlock")}, 1)


def test_a_histogram_counts_values_by_their_bounds_on_the_page_and_for_a_collector() -> None:
    meters = Meters()
    for value in (0.005, 0.006, 3.0, 1e6):
        meters.observe(Metric.STORE_CALL, value, "commit")

    [family] = [each for each in text_string_to_metric_families(page(meters)) if each.type == "histogram"]
    on_page = {sample.labels.get("le", sample.name): sample.value for sample in family.samples}
    sent = metrics_sent(report_of(meters, RESOURCE, ReportedTotals(NOW), NOW).data)["interlock_store_call_seconds"]
    [point] = sent["histogram"]["dataPoints"]

    assert [on_page[bound] for bound in ("0.005", "0.01", "2.5", "5.0", "+Inf")] == [1, 2, 2, 3, 4]
    assert on_page["interlock_store_call_seconds_count"] == 4
    assert point["count"] == "4"
    assert [int(count) for count in point["bucketCounts"]] == [1, 1, *[0] * 7, 1, *[0] * (len(BOUNDS_S) - 10), 1]
    assert len(point["bucketCounts"]) == len(point["explicitBounds"]) + 1


def test_the_log_has_the_largest_value_of_a_histogram_since_the_line_before() -> None:
    meters, lines = Meters(), list[str]()
    embedded = EmbeddedMetrics(meters, "orders", lines.append)

    meters.observe(Metric.STORE_CALL, 2.5, "commit")
    meters.observe(Metric.STORE_CALL, 0.5, "get")
    embedded.report(NOW)
    meters.forget_largest()
    meters.observe(Metric.STORE_CALL, 0.1, "get")
    embedded.report(NOW)

    assert [json.loads(line)["StoreCallSeconds"] for line in lines] == [2.5, 0.1]


def test_a_collector_gets_totals_so_that_a_lost_report_loses_nothing() -> None:
    meters = Meters()
    meters.add(Metric.RUNS_STARTED, 3)
    report_of(meters, RESOURCE, ReportedTotals(NOW), NOW)

    meters.add(Metric.RUNS_STARTED, 1)
    later = NOW + timedelta(minutes=1)
    sent = metrics_sent(report_of(meters, RESOURCE, ReportedTotals(NOW), later).data)["interlock_runs_started_total"][
        "sum"
    ]

    assert sent["isMonotonic"]
    assert sent["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
    assert sent["dataPoints"][0]["asDouble"] == 4
    assert sent["dataPoints"][0]["startTimeUnixNano"] == "1805695200000000000"
    assert sent["dataPoints"][0]["timeUnixNano"] == "1805695260000000000"


def test_a_collector_that_wants_differences_gets_what_came_after_the_report_before() -> None:
    meters = Meters()
    meters.add(Metric.RUNS_STARTED, 3)
    meters.observe(Metric.STORE_CALL, 2.0, "get")
    meters.watch(Metric.RUNS_HELD, lambda: {"": 7.0})
    first = report_of(meters, RESOURCE, ReportedTotals(NOW), NOW, since=ReportedTotals(NOW))
    meters.add(Metric.RUNS_STARTED, 1)
    meters.observe(Metric.STORE_CALL, 4.0, "get")

    later = NOW + timedelta(minutes=1)
    sent = metrics_sent(report_of(meters, RESOURCE, ReportedTotals(NOW), later, since=first.totals).data)

    [point] = sent["interlock_runs_started_total"]["sum"]["dataPoints"]
    [calls] = sent["interlock_store_call_seconds"]["histogram"]["dataPoints"]
    assert sent["interlock_runs_started_total"]["sum"]["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_DELTA"
    assert (point["asDouble"], point["startTimeUnixNano"]) == (1, "1805695200000000000")
    assert (calls["count"], calls["sum"], sum(map(int, calls["bucketCounts"]))) == ("1", 4.0, 1)
    assert sent["interlock_runs_held"]["gauge"]["dataPoints"][0]["asDouble"] == 7


def test_the_loop_is_late_while_something_holds_it() -> None:
    clock = ManualClock(NOW)
    lag = LoopLag(clock)

    clock.advance(timedelta(seconds=2.5))

    assert lag.now_s == pytest.approx(2.5)
    assert lag.worst_s == pytest.approx(2.5)


async def test_a_collector_that_does_not_answer_stops_nothing() -> None:
    clock, meters, lines = ManualClock(NOW), Meters(), list[str]()
    embedded = EmbeddedMetrics(meters, "orders", lines.append)
    reporting = MetricReporter(meters, clock, is_at_work=lambda: True, embedded=embedded, collector=_refuse)

    await reporting.report()
    await reporting.report()

    assert [json.loads(line)["Heartbeat"] for line in lines] == [1, 1]


async def test_a_worker_that_is_not_at_work_has_no_heartbeat() -> None:
    lines = list[str]()
    meters = Meters()
    embedded = EmbeddedMetrics(meters, "orders", lines.append)

    await MetricReporter(meters, ManualClock(NOW), is_at_work=lambda: False, embedded=embedded).report()

    assert json.loads(lines[0])["Heartbeat"] == 0


async def _refuse(_: datetime) -> None:
    raise RetryLater("the collector is away")


def test_a_process_reports_only_the_metrics_that_it_has() -> None:
    meters = Meters((Metric.WEB_REQUEST, Metric.LOG_LINES_LOST))
    meters.add(Metric.HEARTBEAT)
    meters.observe(Metric.STORE_CALL, 1.0, "get")
    meters.observe(Metric.WEB_REQUEST, 1.0, ("/", "GET", "2xx"))

    assert {each.metric for each in (*meters.samples(), *meters.distributions())} == {
        Metric.WEB_REQUEST,
        Metric.LOG_LINES_LOST,
    }
