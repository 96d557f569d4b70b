"""Metrics in the log, in CloudWatch's embedded metric format, which needs no agent and no permission.

Each line holds what was counted since the line before it, and the largest value of each gauge and histogram.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from worker.runtime.json_bytes import to_json
from worker.telemetry.meters import Meters, Metric, MetricKind

NAMESPACE: Final = "Interlock"
SERVICE: Final = "Service"

Write: TypeAlias = Callable[[str], object]


class EmbeddedMetrics:
    def __init__(self, meters: Meters, service: str, write: Write) -> None:
        self._meters, self._service, self._write = meters, service, write
        self._reported: dict[Metric, float] = {}

    def report(self, now: datetime) -> None:
        self._write(to_json(self.line(now)).decode())

    def line(self, now: datetime) -> Mapping[str, Any]:
        values = self._values()
        definitions = [{"Name": metric.value, "Unit": metric.meaning.unit.value} for metric in values]
        return {
            "_aws": {
                "Timestamp": int(now.timestamp() * 1000),
                "CloudWatchMetrics": [{"Namespace": NAMESPACE, "Dimensions": [[SERVICE]], "Metrics": definitions}],
            },
            "event": "metrics.reported",
            SERVICE: self._service,
            **{metric.value: value for metric, value in values.items()},
        }

    def _values(self) -> dict[Metric, float]:
        values: dict[Metric, float] = {}
        for sample in self._meters.samples():
            if sample.metric.meaning.kind is MetricKind.GAUGE:
                values[sample.metric] = max(sample.value, values.get(sample.metric, sample.value))
            else:
                values[sample.metric] = values.get(sample.metric, 0.0) + sample.value
        for each in (
            self._meters.distributions()
        ):  # CloudWatch gets the largest of the interval: buckets would cost a metric each
            values[each.metric] = max(each.largest, values.get(each.metric, 0.0))
        totals = {metric: value for metric, value in values.items() if metric.meaning.kind is MetricKind.COUNTER}
        risen = {metric: total - self._reported.get(metric, 0.0) for metric, total in totals.items()}
        self._reported = totals
        return values | risen
