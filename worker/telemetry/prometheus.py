"""Metrics for Prometheus: its own client library writes the page, from what the meters hold."""

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from itertools import accumulate, groupby
from typing import Final

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from worker.telemetry.meters import BOUNDS_S, DistributionSample, Meters, Metric, MetricKind, Sample

__all__ = ["BUILD_INFO", "CONTENT_TYPE", "name_of", "page"]

# Only on the page, where a join adds the version to any metric: in CloudWatch it would cost money and say nothing.
BUILD_INFO: Final = "interlock_build_info"

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


def page(meters: Meters) -> str:
    # A registry of its own, made for each page: the library's global one would keep the meters of the first.
    registry = CollectorRegistry()
    registry.register(_MeterCollector(meters))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return generate_latest(registry).decode()


def name_of(metric: Metric) -> str:
    """Return a metric's Prometheus name; a counter's name ends in `_total`.

    `ConsumerLagSeconds` becomes `interlock_consumer_lag_seconds`.
    """
    words = _WORD_START.sub("_", metric.value).lower()
    return f"interlock_{words}{'_total' if metric.meaning.kind is MetricKind.COUNTER else ''}"


class _MeterCollector(Collector):
    def __init__(self, meters: Meters) -> None:
        self._meters = meters

    def collect(self) -> Iterator[Family]:
        build = GaugeMetricFamily(BUILD_INFO, "1, with the version of this process", labels=["version"])
        build.add_metric([version("interlock")], 1)
        yield build
        for metric, samples in groupby(self._meters.samples(), key=lambda sample: sample.metric):
            yield _values(metric, samples)
        for metric, found in groupby(self._meters.distributions(), key=lambda sample: sample.metric):
            yield _histogram(metric, found)


def _values(metric: Metric, samples: Iterable[Sample]) -> Family:
    kind = CounterMetricFamily if metric.meaning.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = kind(name_of(metric), metric.meaning.text, labels=metric.meaning.labels)
    for sample in samples:
        family.add_metric(sample.values, sample.value)
    return family


def _histogram(metric: Metric, found: Iterable[DistributionSample]) -> Family:
    family = HistogramMetricFamily(name_of(metric), metric.meaning.text, labels=metric.meaning.labels)
    bounds = [*(str(bound) for bound in BOUNDS_S), "+Inf"]
    for each in found:
        buckets = list(zip(bounds, accumulate(each.counts), strict=True))
        family.add_metric(each.values, buckets, each.total)
    return family
