"""Turns what the meters hold into the data of OpenTelemetry's SDK.

The meters stay the only place where anything is counted: an instrument of the SDK takes eight times as long for each
value, and the page of Prometheus and the log read the same counts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Final, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as SdkMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from worker.telemetry.meters import BOUNDS_S, DistributionSample, Label, Meters, Metric, MetricKind, Sample
from worker.telemetry.otlp.spans import SCOPE, nanoseconds
from worker.telemetry.prometheus import name_of

_UNITS: Final = {"Count": "1", "Seconds": "s"}
_DELTA: Final = AggregationTemporality.DELTA
_UNSET: Final = cast("float", None)  # the protocol lets them be absent; the SDK's types do not say so


@dataclass(frozen=True, slots=True)
class ReportedTotals:
    """ReportedTotals: what a report held, at what time: the next one with differences begins there."""

    at: datetime
    counts: Mapping[tuple[Metric, Label], float] = field(default_factory=dict[tuple[Metric, Label], float])
    histograms: Mapping[tuple[Metric, Label], DistributionSample] = field(
        default_factory=dict[tuple[Metric, Label], DistributionSample]
    )


@dataclass(frozen=True, slots=True)
class MetricReport:
    """MetricReport is one report of all metrics, and the totals it was made from."""

    data: MetricsData
    totals: ReportedTotals


def report_of(
    meters: Meters, resource: Resource, began: ReportedTotals, now: datetime, *, since: ReportedTotals | None = None
) -> MetricReport:
    """Return all metrics: totals since the process began, or what was added after the report `since`."""
    samples, distributions = list(meters.samples()), list(meters.distributions())
    totals = ReportedTotals(
        now,
        {(each.metric, each.label): each.value for each in samples if each.metric.meaning.kind is MetricKind.COUNTER},
        {(each.metric, each.label): each for each in distributions},
    )
    making = _Making(since or began, now, AggregationTemporality.CUMULATIVE if since is None else _DELTA)
    metrics = [*making.values(samples), *making.histograms(distributions)]
    scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, schema_url="")
    return MetricReport(MetricsData([ResourceMetrics(resource, [scope], schema_url="")]), totals)


@dataclass(frozen=True, slots=True)
class _Making:
    """Makes data points; `before` is what they are counted from."""

    before: ReportedTotals
    now: datetime
    temporality: AggregationTemporality

    def values(self, samples: list[Sample]) -> Iterator[SdkMetric]:
        for metric, group in groupby(samples, key=attrgetter("metric")):
            points = [self._point(each) for each in group]
            if metric.meaning.kind is MetricKind.COUNTER:
                yield _named(metric, Sum(points, self.temporality, is_monotonic=True))
            else:
                yield _named(metric, Gauge(points))

    def histograms(self, found: list[DistributionSample]) -> Iterator[SdkMetric]:
        for metric, group in groupby(found, key=attrgetter("metric")):
            yield _named(metric, Histogram([self._buckets(each) for each in group], self.temporality))

    def _point(self, sample: Sample) -> NumberDataPoint:
        return NumberDataPoint(
            _attributes(sample),
            nanoseconds(self.before.at),
            nanoseconds(self.now),
            float(sample.value - self.before.counts.get((sample.metric, sample.label), 0.0)),
        )

    def _buckets(self, each: DistributionSample) -> HistogramDataPoint:
        known = self.before.histograms.get((each.metric, each.label))
        counts = each.counts if known is None else [a - b for a, b in zip(each.counts, known.counts, strict=True)]
        total = each.total - (0.0 if known is None else known.total)
        return HistogramDataPoint(
            _attributes(each),
            nanoseconds(self.before.at),
            nanoseconds(self.now),
            count=sum(counts),
            sum=total,
            bucket_counts=list(counts),
            explicit_bounds=list(BOUNDS_S),
            min=_UNSET,
            max=_UNSET,
        )


def _named(metric: Metric, data: Sum | Gauge | Histogram) -> SdkMetric:
    meaning = metric.meaning
    return SdkMetric(name_of(metric), meaning.text, _UNITS[meaning.unit.value], data)


def _attributes(sample: Sample | DistributionSample) -> dict[str, str]:
    return {name: value for name, value in zip(sample.metric.meaning.labels, sample.values, strict=True) if value}
