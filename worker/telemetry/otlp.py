"""Metrics for an OpenTelemetry collector: OTLP over HTTP as JSON, which needs no further library.

A collector that does not answer loses only the gauge values of that minute. Counters are sent as totals since the
process began, so the next report includes everything.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from worker.telemetry.meters import BOUNDS_S, DistributionSample, Meters, Metric, MetricKind, Sample
from worker.telemetry.prometheus import name_of

PATH: Final = "/v1/metrics"
CUMULATIVE: Final = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
_UNITS: Final = {"Count": "1", "Seconds": "s"}

# Posts a JSON body to the collector. Raises `RetryLater`.
Post: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]


def resource_of(service: str, instance: str, named: Mapping[str, str]) -> dict[str, str]:
    """Return what a process is called, so that values of two workers stay apart; `named` wins."""
    return {"service.name": service, "service.instance.id": instance, **named}


def named_values(text: str) -> dict[str, str]:
    """Read `name=value,name=value`, values percent-encoded. Raises `ValueError`."""
    found: dict[str, str] = {}
    for number, pair in enumerate(filter(None, (part.strip() for part in text.split(","))), 1):
        name, is_pair, value = pair.partition("=")
        if not is_pair or not name.strip():
            # Without its text, which may be a secret.
            raise ValueError(f"part {number} is not name=value; separate the parts by commas")
        found[name.strip()] = unquote(value.strip())
    return found


class OtlpMetrics:
    def __init__(self, meters: Meters, resource: Mapping[str, str], began_at: datetime, post: Post) -> None:
        self._meters, self._resource, self._began_at, self._post = meters, resource, began_at, post

    async def report(self, now: datetime) -> None:
        """Send all values. Raises `RetryLater` if the collector did not accept them."""
        await self._post(self.body(now))

    def body(self, now: datetime) -> Mapping[str, Any]:
        grouped = groupby(self._meters.samples(), key=lambda sample: sample.metric)
        metrics = [self._metric(metric, list(samples), now) for metric, samples in grouped]
        histograms = groupby(self._meters.distributions(), key=lambda sample: sample.metric)
        metrics += [self._histogram(metric, list(found), now) for metric, found in histograms]
        return {
            "resourceMetrics": [
                {
                    "resource": {"attributes": [attribute(*each) for each in self._resource.items()]},
                    "scopeMetrics": [{"scope": {"name": "interlock"}, "metrics": metrics}],
                }
            ]
        }

    def _metric(self, metric: Metric, samples: list[Sample], now: datetime) -> Mapping[str, Any]:
        meaning = metric.meaning
        points = {"dataPoints": [self._point(sample, now) for sample in samples]}
        summed = {"sum": {**points, "aggregationTemporality": CUMULATIVE, "isMonotonic": True}}
        shown = summed if meaning.kind is MetricKind.COUNTER else {"gauge": points}
        return {"name": name_of(metric), "description": meaning.text, "unit": _UNITS[meaning.unit.value], **shown}

    def _histogram(self, metric: Metric, found: list[DistributionSample], now: datetime) -> Mapping[str, Any]:
        points = [
            {
                **self._place(each.label, now),
                "count": str(sum(each.counts)),
                "sum": each.total,
                "bucketCounts": [str(count) for count in each.counts],
                "explicitBounds": list(BOUNDS_S),
            }
            for each in found
        ]
        shown = {"histogram": {"dataPoints": points, "aggregationTemporality": CUMULATIVE}}
        meaning = metric.meaning
        return {"name": name_of(metric), "description": meaning.text, "unit": _UNITS[meaning.unit.value], **shown}

    def _point(self, sample: Sample, now: datetime) -> Mapping[str, Any]:
        return {**self._place(sample.label, now), "asDouble": sample.value}

    def _place(self, label: str, now: datetime) -> Mapping[str, Any]:
        return {
            "startTimeUnixNano": nanoseconds(self._began_at),
            "timeUnixNano": nanoseconds(now),
            "attributes": [attribute("of", label)] if label else [],
        }


def nanoseconds(at: datetime) -> str:
    # Protobuf's JSON writes 64-bit numbers as text.
    return str(int(at.timestamp() * 1_000_000) * 1_000)


def attribute(name: str, value: str) -> Mapping[str, Any]:
    return {"key": name, "value": {"stringValue": value}}
