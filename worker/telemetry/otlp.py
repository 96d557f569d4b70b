"""Metrics for an OpenTelemetry collector: OTLP over HTTP as JSON, which needs no further library.

A collector that does not answer loses only the gauge values of that minute. Counters are sent as totals since the
process began, so the next report includes everything.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from itertools import groupby
from typing import Any, Final, TypeAlias

from worker.telemetry.meters import Meters, Metric, MetricKind, Sample
from worker.telemetry.prometheus import name_of

PATH: Final = "/v1/metrics"
CUMULATIVE: Final = 2  # AGGREGATION_TEMPORALITY_CUMULATIVE
_UNITS: Final = {"Count": "1", "Seconds": "s"}

# Posts a JSON body to the collector. Raises `RetryLater`.
Post: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[None]]


class OtlpMetrics:
    def __init__(self, meters: Meters, service: str, began_at: datetime, post: Post) -> None:
        self._meters, self._service, self._began_at, self._post = meters, service, began_at, post

    async def report(self, now: datetime) -> None:
        """Send all values. Raises `RetryLater` if the collector did not accept them."""
        await self._post(self.body(now))

    def body(self, now: datetime) -> Mapping[str, Any]:
        grouped = groupby(self._meters.samples(), key=lambda sample: sample.metric)
        metrics = [self._metric(metric, list(samples), now) for metric, samples in grouped]
        return {
            "resourceMetrics": [
                {
                    "resource": {"attributes": [_attribute("service.name", self._service)]},
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

    def _point(self, sample: Sample, now: datetime) -> Mapping[str, Any]:
        return {
            "startTimeUnixNano": _nanoseconds(self._began_at),
            "timeUnixNano": _nanoseconds(now),
            "asDouble": sample.value,
            "attributes": [_attribute("of", sample.label)] if sample.label else [],
        }


def _nanoseconds(at: datetime) -> str:
    # Protobuf's JSON writes 64-bit numbers as text.
    return str(int(at.timestamp() * 1_000_000) * 1_000)


def _attribute(name: str, value: str) -> Mapping[str, Any]:
    return {"key": name, "value": {"stringValue": value}}
