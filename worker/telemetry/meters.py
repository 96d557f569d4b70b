"""Meters: what the worker counts and measures, in memory, at the cost of an addition.

The metrics are a closed list, so that tests can check alarms, dashboards and documents against it. Labels tell the
values of a metric apart: one label `of` (a stream, a queue), or several with names of their own. Only the Prometheus
page and OTLP show labels, because each further dimension costs money in CloudWatch.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, TypeAlias

# Upper bounds in seconds: from one fast call of a store to a job of a day.
BOUNDS_S: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    1800.0,
    7200.0,
    86400.0,
)


class MetricKind(StrEnum):
    COUNTER = "counter"  # only rises while the process lives
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Unit(StrEnum):
    """Unit names as CloudWatch spells them."""

    COUNT = "Count"
    SECONDS = "Seconds"


# The value of the only label, or one value for each name in a meaning's `labels`. Empty: the metric has no label.
Label: TypeAlias = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """Describes a metric. `label` says what `of` names; a metric without labels has a single value."""

    kind: MetricKind
    unit: Unit
    text: str
    label: str = ""
    names: tuple[str, ...] = ()  # of several labels, in the order of their values

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the names of the labels."""
        return self.names or (("of",) if self.label else ())


def _counter(text: str, label: str = "", *, names: tuple[str, ...] = ()) -> Meaning:
    return Meaning(MetricKind.COUNTER, Unit.COUNT, text, label, names)


def _seconds(text: str, label: str = "") -> Meaning:
    return Meaning(MetricKind.GAUGE, Unit.SECONDS, text, label)


def _histogram(text: str, label: str = "", *, names: tuple[str, ...] = ()) -> Meaning:
    return Meaning(MetricKind.HISTOGRAM, Unit.SECONDS, text, label, names)


def _number(text: str, label: str = "") -> Meaning:
    return Meaning(MetricKind.GAUGE, Unit.COUNT, text, label)


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
    ALERTS_QUEUED = "AlertsQueued"
    ALERT_DELIVERY = "AlertDeliverySeconds"
    LOG_LINES_LOST = "LogLinesLost"
    LOOP_LAG = "LoopLagSeconds"
    SESSIONS_LOST = "SessionsLost"
    SESSION_AGE = "SessionAgeSeconds"
    LEASES_HELD = "LeasesHeld"
    PEERS_ENDED = "PeersEnded"
    RUNS_HELD = "RunsHeld"
    RUNS_STARTED = "RunsStarted"
    RUNS_FAILED = "RunsFailed"
    RUNS_ENDED = "RunsEnded"
    START_DELAY = "StartDelaySeconds"
    JOB_SUBMIT = "JobSubmitSeconds"
    JOB_DURATION = "JobDurationSeconds"
    EVALUATION = "EvaluationSeconds"
    TARGET_CALLS = "TargetCalls"
    TARGET_THROTTLES = "TargetThrottles"
    SLA_VERDICTS = "SlaVerdicts"
    COMMIT_CONFLICTS = "CommitConflicts"
    STORE_CALL = "StoreCallSeconds"
    DEAD_LETTERS = "DeadLetters"
    CHECK_FAILURES = "CheckFailures"
    CHECK_DURATION = "CheckDurationSeconds"
    CHECK_OVERRUNS = "CheckOverruns"
    DEAD_LETTERS_HELD = "DeadLettersHeld"
    ARCHIVE_LAG = "ArchiveLagSeconds"
    WEB_REQUEST = "WebRequestSeconds"
    WEB_STREAMS = "WebStreams"
    WEB_LIST_AGE = "WebListAgeSeconds"
    HEARTBEAT = "Heartbeat"

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self]


MEANINGS: Mapping[Metric, Meaning] = {
    Metric.CONSUMER_LAG: _seconds("age of the oldest change not yet handled, or time since the last read", "stream"),
    Metric.RECORDS_READ: _counter("changes read from a stream, without those of rows that Interlock ignores", "stream"),
    Metric.RECORDS_PARKED: _counter("changes kept as dead letters", "stream"),
    Metric.DATA_LOSSES: _counter("times that a stream deleted changes before they were read, each with an event"),
    Metric.RELAY_LAG: _seconds("age of the oldest event not yet published", "stream"),
    Metric.EVENTS_PUBLISHED: _counter("events sent to the bus or to a route"),
    Metric.QUEUE_MESSAGES: _counter("messages of a queue that were handled", "queue"),
    Metric.ALERT_FAILURES: _counter("failed tries to send an alert"),
    Metric.ALERTS_QUEUED: _number(
        "alerts that wait in the queue of a target, counted to 500 by the worker that sends them", "target"
    ),
    Metric.ALERT_DELIVERY: _histogram("from an event to its acceptance by Slack or another target", "target"),
    Metric.LOG_LINES_LOST: _counter("log lines that could not be written: the disk was full, or nobody read them"),
    Metric.LOOP_LAG: _seconds("the worst delay of the event loop since the last report"),
    Metric.SESSIONS_LOST: _counter("sessions of this worker that ended before it was stopped"),
    Metric.SESSION_AGE: _seconds("age of this worker's session; 0 without a session"),
    Metric.LEASES_HELD: _number("leases on shards, buckets and tasks that this worker holds"),
    Metric.PEERS_ENDED: _counter("sessions of stalled workers that this worker ended"),
    Metric.RUNS_HELD: _number("active runs that this worker owns"),
    Metric.RUNS_STARTED: _counter("jobs started"),
    Metric.RUNS_FAILED: _counter("runs that failed"),
    Metric.RUNS_ENDED: _counter("runs that ended", "outcome"),
    Metric.START_DELAY: _histogram(
        "from the cron time or sensor that let a job start, or else its evaluation, to the started job", "job type"
    ),
    Metric.JOB_SUBMIT: _histogram("how long jobs waited for their start after their rules held", "job type"),
    Metric.JOB_DURATION: _histogram("how long jobs took, from their start to the end that Interlock saw", "outcome"),
    Metric.EVALUATION: _histogram("how long an evaluation of a run's rules took, with its reads", "result"),
    Metric.TARGET_CALLS: _counter("calls of jobs' and probes' targets", names=("target", "action")),
    Metric.TARGET_THROTTLES: _counter(
        "calls that a target refused because it gets too many", names=("target", "action")
    ),
    Metric.SLA_VERDICTS: _counter("deadlines that were judged or waived", "verdict"),
    Metric.COMMIT_CONFLICTS: _counter("commits refused because a row had changed; they are decided again"),
    Metric.STORE_CALL: _histogram("how long a call of the store took", "operation"),
    Metric.DEAD_LETTERS: _counter("records and messages kept as dead letters", "stream or queue"),
    Metric.CHECK_FAILURES: _counter("watchdog checks that had a problem, and other failed tasks of its lease", "check"),
    Metric.CHECK_DURATION: _histogram("how long a watchdog check took", "check"),
    Metric.CHECK_OVERRUNS: _counter("turns that a watchdog check missed because it still ran", "check"),
    Metric.DEAD_LETTERS_HELD: _number(
        "dead letters that nobody has replayed or dropped, counted to 100 by the worker that runs the watchdog",
        "stream or queue",
    ),
    Metric.ARCHIVE_LAG: _seconds("how far the archive is behind, on the worker that writes it"),
    Metric.WEB_REQUEST: _histogram(
        "how long a request of the console or the HTTP API took; live streams are not in it",
        names=("route", "method", "status"),
    ),
    Metric.WEB_STREAMS: _number("open live streams of the console and the HTTP API"),
    Metric.WEB_LIST_AGE: _seconds("for how long the console's lists were not updated while somebody looked"),
    Metric.HEARTBEAT: _counter("one for each minute in which the worker is ready; the alarm fires if it is missing"),
}


@dataclass(slots=True)
class Distribution:
    """Counts values by the bounds that they are within; the last count is of those beyond all bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    total: float = 0.0
    largest: float = 0.0  # since `forget`

    def add(self, value: float) -> None:
        self.counts[bisect_left(BOUNDS_S, value)] += 1
        self.total += value
        self.largest = max(self.largest, value)


@dataclass(frozen=True, slots=True)
class DistributionSample:
    metric: Metric
    label: Label
    counts: tuple[int, ...]
    total: float
    largest: float

    @property
    def values(self) -> tuple[str, ...]:
        """Return the values of the metric's labels."""
        return _values_of(self.metric, self.label)


@dataclass(frozen=True, slots=True)
class Sample:
    metric: Metric
    label: Label
    value: float

    @property
    def values(self) -> tuple[str, ...]:
        """Return the values of the metric's labels."""
        return _values_of(self.metric, self.label)


def _values_of(metric: Metric, label: Label) -> tuple[str, ...]:
    """Return a value for each label of a metric. A counter that never rose has empty ones."""
    names = metric.meaning.labels
    given = (label,) if isinstance(label, str) else label
    return given if len(given) == len(names) else ("",) * len(names)


Reading: TypeAlias = Callable[[], Mapping[str, float]]


def _nothing() -> Mapping[str, float]:
    return {}


class Meters:
    """Keeps counters; reads gauges, and counters kept elsewhere, when a reporter asks for samples.

    `only`: the metrics that this process has; others are not reported.
    """

    def __init__(self, only: Collection[Metric] = tuple(Metric)) -> None:
        self._only = frozenset(only)
        self._counts: dict[tuple[Metric, Label], float] = {}
        self._readings: dict[Metric, Reading] = {}
        self._distributions: dict[tuple[Metric, Label], Distribution] = {}

    def observe(self, metric: Metric, value: float, label: Label = "") -> None:
        """Add a value to a histogram."""
        self._distributions.setdefault((metric, label), Distribution()).add(value)

    def distributions(self) -> Iterator[DistributionSample]:
        """Yield all histograms, in the order of the list."""
        for metric in (each for each in Metric if each in self._only):
            found = [(label, each) for (of, label), each in self._distributions.items() if of is metric]
            for label, each in sorted(found, key=_by_label):
                yield DistributionSample(metric, label, tuple(each.counts), each.total, each.largest)

    def forget_largest(self) -> None:
        """Begin a new interval, of which the largest values are reported."""
        for each in self._distributions.values():
            each.largest = 0.0

    def add(self, metric: Metric, amount: float = 1, label: Label = "") -> None:
        place = (metric, label)
        self._counts[place] = self._counts.get(place, 0) + amount

    def watch(self, metric: Metric, reading: Reading) -> None:
        """Read the metric's values by label from `reading` from now on; this replaces the previous reading."""
        self._readings[metric] = reading

    def samples(self) -> Iterator[Sample]:
        """Yield all values but histograms. A counter that never rose is zero, so that its alarm has data."""
        for metric in (each for each in Metric if each in self._only and each.meaning.kind is not MetricKind.HISTOGRAM):
            values: Mapping[Label, float] = {**self._readings.get(metric, _nothing)()}
            if metric.meaning.kind is MetricKind.COUNTER:
                counted = {label: count for (each, label), count in self._counts.items() if each is metric}
                values = {**counted, **values} or {"": 0.0}
            for label, value in sorted(values.items(), key=_by_label):
                yield Sample(metric, label, value)


def _by_label(item: tuple[Label, object]) -> tuple[str, ...]:
    label, _ = item
    return (label,) if isinstance(label, str) else label
