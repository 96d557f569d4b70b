"""Metrics in the Prometheus text format, version 0.0.4."""

import re
from typing import Final

from worker.telemetry.meters import Meters, Metric, MetricKind

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_WORD_START: Final = re.compile(r"(?<!^)(?=[A-Z])")


def page(meters: Meters) -> str:
    lines: list[str] = []
    told: set[Metric] = set()
    for sample in meters.samples():
        name = name_of(sample.metric)
        if sample.metric not in told:
            told.add(sample.metric)
            meaning = sample.metric.meaning
            lines += [f"# HELP {name} {meaning.text}", f"# TYPE {name} {meaning.kind.value}"]
        label = f'{{of="{_escaped(sample.label)}"}}' if sample.label else ""
        lines.append(f"{name}{label} {float(sample.value)!r}")
    return "\n".join(lines) + "\n"


def name_of(metric: Metric) -> str:
    """Return a metric's Prometheus name; a counter's name ends in `_total`.

    `ConsumerLagSeconds` becomes `interlock_consumer_lag_seconds`.
    """
    words = _WORD_START.sub("_", metric.value).lower()
    return f"interlock_{words}{'_total' if metric.meaning.kind is MetricKind.COUNTER else ''}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
