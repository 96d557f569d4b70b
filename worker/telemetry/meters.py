"""Meters: what the worker counts and measures, in memory, at the cost of an addition.

The metrics are a closed list, so that tests can check alarms, dashboards and documents against it. One label (a stream,
a queue) may distinguish the values of a metric. Only the Prometheus page and OTLP show labels, because each further
dimension costs money in CloudWatch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeAlias


class MetricKind(StrEnum):
    COUNTER = "counter"  # only rises while the process lives
    GAUGE = "gauge"


class Unit(StrEnum):
    """Unit names as CloudWatch spells them."""

    COUNT = "Count"
    SECONDS = "Seconds"


@dataclass(frozen=True, slots=True)
class Meaning:
    kind: MetricKind
    unit: Unit
    text: str


def _counter(text: str) -> Meaning:
    return Meaning(MetricKind.COUNTER, Unit.COUNT, text)


def _seconds(text: str) -> Meaning:
    return Meaning(MetricKind.GAUGE, Unit.SECONDS, text)


def _number(text: str) -> Meaning:
    return Meaning(MetricKind.GAUGE, Unit.COUNT, text)


class Metric(Enum):
    """Metric lists everything that is measured. A member's value is its name in CloudWatch."""

    CONSUMER_LAG = "ConsumerLagSeconds"
    RECORDS_READ = "RecordsRead"
    RECORDS_PARKED = "RecordsParked"
    DATA_LOSSES = "DataLossSuspected"
    RELAY_LAG = "RelayLagSeconds"
    EVENTS_PUBLISHED = "EventsPublished"
    QUEUE_MESSAGES = "QueueMessages"
    ALERT_FAILURES = "AlertFailures"
    LOG_LINES_LOST = "LogLinesLost"
    LOOP_LAG = "LoopLagSeconds"
    SESSIONS_LOST = "SessionsLost"
    SESSION_AGE = "SessionAgeSeconds"
    LEASES_HELD = "LeasesHeld"
    PEERS_ENDED = "PeersEnded"
    RUNS_HELD = "RunsHeld"
    RUNS_STARTED = "RunsStarted"
    RUNS_FAILED = "RunsFailed"
    DEAD_LETTERS = "DeadLetters"
    HEARTBEAT = "Heartbeat"

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self]


MEANINGS: Mapping[Metric, Meaning] = {
    Metric.CONSUMER_LAG: _seconds("age of the oldest change that is read and not yet handled, or since the last read"),
    Metric.RECORDS_READ: _counter("changes taken from a stream, those that concern nobody left out"),
    Metric.RECORDS_PARKED: _counter("changes kept as dead letters"),
    Metric.DATA_LOSSES: _counter("times that changes were gone before they were read, and people were told"),
    Metric.RELAY_LAG: _seconds("age of the oldest event that is decided and not yet published"),
    Metric.EVENTS_PUBLISHED: _counter("events handed to the bus or to a route"),
    Metric.QUEUE_MESSAGES: _counter("messages taken from a queue and done"),
    Metric.ALERT_FAILURES: _counter("tries to alert people that failed"),
    Metric.LOG_LINES_LOST: _counter("log lines that could not be written: the disk was full, or nobody read them"),
    Metric.LOOP_LAG: _seconds("how late the event loop was, at worst, since the last report"),
    Metric.SESSIONS_LOST: _counter("sessions of this worker that ended against its will"),
    Metric.SESSION_AGE: _seconds("since when this worker has been at work without a break; 0: it is not"),
    Metric.LEASES_HELD: _number("shards, buckets and duties in this worker's hands"),
    Metric.PEERS_ENDED: _counter("workers that stood still and were ended by this one"),
    Metric.RUNS_HELD: _number("runs this worker looks after"),
    Metric.RUNS_STARTED: _counter("jobs started"),
    Metric.RUNS_FAILED: _counter("runs that ended in failure"),
    Metric.DEAD_LETTERS: _counter("records and messages given up and kept as dead letters"),
    Metric.HEARTBEAT: _counter("one each minute that the worker is at work: its absence is the alarm"),
}


@dataclass(frozen=True, slots=True)
class Sample:
    metric: Metric
    label: str  # empty for a metric without a label
    value: float


Reading: TypeAlias = Callable[[], Mapping[str, float]]


def _nothing() -> Mapping[str, float]:
    return {}


class Meters:
    """Keeps counters; reads gauges, and counters kept elsewhere, when a reporter asks for samples."""

    def __init__(self) -> None:
        self._counts: dict[tuple[Metric, str], float] = {}
        self._readings: dict[Metric, Reading] = {}

    def add(self, metric: Metric, amount: float = 1, label: str = "") -> None:
        place = (metric, label)
        self._counts[place] = self._counts.get(place, 0) + amount

    def watch(self, metric: Metric, reading: Reading) -> None:
        """Read the metric's values by label from `reading` from now on; this replaces the previous reading."""
        self._readings[metric] = reading

    def samples(self) -> Iterator[Sample]:
        """Yield all current values. A counter that never rose is zero, so that its alarm has data."""
        for metric in Metric:
            values = self._readings.get(metric, _nothing)()
            if metric.meaning.kind is MetricKind.COUNTER:
                counted = {label: count for (each, label), count in self._counts.items() if each is metric}
                values = {**counted, **values} or {"": 0.0}
            for label, value in sorted(values.items()):
                yield Sample(metric, label, value)
