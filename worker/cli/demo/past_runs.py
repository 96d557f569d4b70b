"""The demo's made-up runs: a month of daily pipelines, two days of hourly ones, and unusual runs.

All of it is marked: the runs' origin is `demo`, and their events have `demo` in their detail.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta
from typing import Final
from zlib import crc32

from worker.core.model.events import Event, EventType
from worker.core.model.ids import STREAM_SCHEDULE, PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.values import Json
from worker.core.run.state import EarlierAttempt, FailureCategory, Outcome, Run, Spent, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339

ORIGIN: Final = "demo"
DAYS: Final = 30
SENSOR_DAYS: Final = 14  # older ones would only fill the list
HOURS: Final = 48
PLAYED_HOURS: Final = 3  # of yesterday: those that the demo plays
INSTANT: Final = timedelta(milliseconds=100)
MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)
_TEMPORARY: Final = "exit code 75: the bank does not answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPipeline:
    """PastPipeline says how the runs of a pipeline went: `waits` and `works` are minutes."""

    id: str
    sensor: str
    rows: int
    arrived_ago: timedelta  # the sensor of the latest run, before now
    waits: int
    works: int
    allowed: timedelta | None = None  # from the sensor to the deadline
    deadline: time | None = None  # of the day after the period
    failed: frozenset[int] = frozenset()  # numbers of runs, 0 is the latest
    late: frozenset[int] = frozenset()
    workdays_only: bool = False
    also: str = ""  # another sensor that its rules read, which arrives half an hour before
    first: int = 0  # the number of the latest run that this table describes


DAILY: Final = (
    PastPipeline(
        id="customer-snapshot",
        sensor="crm-export",
        rows=5400,
        arrived_ago=290 * MINUTE,
        waits=4,
        works=21,
        allowed=60 * MINUTE,
        late=frozenset({12}),
    ),
    PastPipeline(
        id="fraud-scores",
        sensor="payments-export",
        rows=1350,
        arrived_ago=190 * MINUTE,
        waits=25,
        works=48,
        allowed=120 * MINUTE,
        failed=frozenset({9}),
        late=frozenset({4, 17}),
        also="chargebacks",
        first=1,
    ),
    PastPipeline(
        id="ledger-close",
        sensor="bookings",
        rows=310,
        arrived_ago=150 * MINUTE,
        waits=6,
        works=29,
        allowed=300 * MINUTE,
        failed=frozenset({9, 21}),
        first=1,
    ),
    PastPipeline(
        id="payments-import",
        sensor="bank-file",
        rows=2200,
        arrived_ago=240 * MINUTE,
        waits=9,
        works=33,
        allowed=90 * MINUTE,
        late=frozenset({8}),
        first=1,
    ),
    PastPipeline(
        id="stock-levels",
        sensor="stock-count",
        rows=480,
        arrived_ago=100 * MINUTE,
        waits=12,
        works=37,
        deadline=time(23),
        failed=frozenset({13}),
        workdays_only=True,
        first=1,
    ),
    PastPipeline(id="gold-orders", sensor="day-close", rows=240, arrived_ago=20 * MINUTE, waits=1, works=1, first=1),
)
HOURLY: Final = ("bronze-orders", "silver-orders")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """PastRun is one run with everything that is stored about it."""

    run: Run
    watch: SlaWatch | None
    events: Sequence[Event]
    data: dict[str, Json] = field(default_factory=dict[str, Json])
    sensor: str = ""
    also: str = ""


def past_runs(now: datetime) -> Iterator[PastRun]:
    """Yield the ordinary runs: a month of the daily pipelines, two days of the hourly ones."""
    for pipeline in DAILY:
        for number in range(pipeline.first, DAYS):
            made = _ordinary(pipeline, number, now)
            if made is not None:
                yield made
    top, played = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=2), (now - DAY).date()
    for pipeline in HOURLY:
        for number in range(HOURS):
            hour = top - number * timedelta(hours=1)
            if hour.date() == played and hour.hour < PLAYED_HOURS:
                continue
            key = RunKey(PipelineId(pipeline), STREAM_SCHEDULE, Period.hour_of(hour))
            begun = hour + timedelta(hours=1, seconds=_spread(f"{key}", 90))
            run = _ended(key, begun, begun + timedelta(seconds=2), begun + timedelta(seconds=40 + _spread(key, 70)))
            yield PastRun(run=run, watch=None, events=[])


def _ordinary(pipeline: PastPipeline, number: int, now: datetime) -> PastRun | None:
    key = _key(pipeline.id, number, now)
    if pipeline.workdays_only and key.period.date.weekday() >= 5:
        return None
    spread = _spread(f"{key}", 100) / 100
    arrived = now - pipeline.arrived_ago - number * DAY + (spread - 0.5) * 24 * MINUTE
    started = arrived + pipeline.waits * MINUTE * (0.6 + 0.8 * spread)
    ended = started + pipeline.works * MINUTE * (0.8 + 0.5 * (_spread(f"{key} job", 100) / 100))
    due = _due(pipeline, key, arrived)
    if number in pipeline.late and due is not None:
        started += (late := max(due - ended, timedelta()) + (5 + 30 * spread) * MINUTE)
        ended += late
    has_failed = number in pipeline.failed
    run = _ended(key, arrived, started, ended, "exit code 1: KeyError 'fx'" if has_failed else "")
    data: dict[str, Json] = {
        "status": "complete",
        "rows": pipeline.rows + _spread(f"{key} rows", pipeline.rows // 10),
        "updatedAt": format_rfc3339(arrived.replace(microsecond=0)),
    }
    watch = _judged(run, due, now, is_relative=pipeline.allowed is not None)
    sensor = pipeline.sensor if number < SENSOR_DAYS else ""
    events, also = [*_story(run), *_verdict(watch)], pipeline.also if sensor else ""
    return PastRun(run=run, watch=watch, events=events, data=data, sensor=sensor, also=also)


def unusual_runs(now: datetime) -> Iterator[PastRun]:
    """Yield yesterday's unusual runs: one waits and is late, one failed, one needed three attempts."""
    known = {each.id: each for each in DAILY}
    yield _waiting(known["fraud-scores"], now)
    yield _tried(known["ledger-close"], now, is_saved=False)
    yield _tried(known["payments-import"], now, is_saved=True)


def _waiting(pipeline: PastPipeline, now: datetime) -> PastRun:
    key, arrived = _key(pipeline.id, 0, now), now - pipeline.arrived_ago
    due = _due(pipeline, key, arrived) or now
    run = Run(
        key=key,
        run_id=f"demo-{_spread(f'{key} id', 16**8):08x}",
        config_hash="",
        created_at=arrived,
        since=arrived,
        window_ends_at=arrived + timedelta(hours=20),
        timeout_at=arrived + DAY,
        origin=ORIGIN,
        pipeline_owner="risk",
    )
    watch = SlaWatch(
        key=key,
        config_hash="",
        since=due,
        arrived_at=arrived,
        warning_at=due - 45 * MINUTE,
        breach_at=due,
        warned_at=due - 45 * MINUTE,
        verdict=Verdict.BREACHED,
    )
    data: dict[str, Json] = {
        "status": "complete",
        "rows": 950,
        "updatedAt": format_rfc3339(arrived.replace(microsecond=0)),
    }
    events = [
        _event(key, due - 45 * MINUTE, EventType.RELATIVE_SLA_WARNING, "may breach its deadline"),
        _event(key, due, EventType.RELATIVE_SLA_BREACH, "breached its deadline"),
    ]
    return PastRun(run=run, watch=watch, events=events, data=data, sensor=pipeline.sensor)


def _tried(pipeline: PastPipeline, now: datetime, *, is_saved: bool) -> PastRun:
    """Return a run of three attempts: two failures that may pass, then a success or the final failure."""
    key, arrived = _key(pipeline.id, 0, now), now - pipeline.arrived_ago
    earlier: list[EarlierAttempt] = []
    begun = arrived + pipeline.waits * MINUTE
    for number in (1, 2):
        ended = begun + (11 + 7 * number) * MINUTE
        earlier.append(
            EarlierAttempt(
                number=number,
                job_type="command",
                job=f"il-{_spread(f'{key}{number}', 16**6):06x}",
                started_at=begun,
                ended_at=ended,
                outcome="failed",
                category=FailureCategory.TRANSIENT,
                reason=_TEMPORARY,
            )
        )
        begun = ended + (4 + 6 * number) * MINUTE
    ended = begun + pipeline.works * MINUTE
    plain = _ended(key, arrived, begun, ended, "" if is_saved else "exit code 1: KeyError 'fx'")
    run = replace(plain, attempt=3, attempts=tuple(earlier), attempt_at=earlier[-1].ended_at, spent=Spent(transient=2))
    watch = _judged(run, _due(pipeline, key, arrived), now, is_relative=True)
    data: dict[str, Json] = {
        "status": "complete",
        "rows": pipeline.rows,
        "updatedAt": format_rfc3339(arrived.replace(microsecond=0)),
    }
    return PastRun(run=run, watch=watch, events=[*_story(run), *_verdict(watch)], data=data, sensor=pipeline.sensor)


def due_tonight(now: datetime, config_hash: str) -> SlaWatch | None:
    """Return the deadline of a run that does not exist yet; None after a day off."""
    pipeline = next(each for each in DAILY if each.deadline is not None)
    key = _key(pipeline.id, 0, now)
    if pipeline.workdays_only and key.period.date.weekday() >= 5:
        return None
    due = _due(pipeline, key, now) or now
    return SlaWatch(key=key, config_hash=config_hash, since=now, warning_at=due - 45 * MINUTE, breach_at=due)


def _ended(key: RunKey, arrived: datetime, started: datetime, ended: datetime, failure: str = "") -> Run:
    return Run(
        key=key,
        run_id=f"demo-{_spread(f'{key} id', 16**8):08x}",
        state=State.FAILED_FINAL if failure else State.COMPLETED,
        outcome=Outcome.FAILED if failure else Outcome.SUCCEEDED,
        reason=failure,
        category=FailureCategory.PERMANENT if failure else None,
        config_hash="",
        created_at=arrived,
        started_at=started,
        since=ended,
        timeout_at=arrived + timedelta(hours=4),
        job_type="command",
        job={"id": f"il-{_spread(f'{key}', 16**6):06x}"},
        origin=ORIGIN,
    )


def _judged(run: Run, due: datetime | None, now: datetime, *, is_relative: bool) -> SlaWatch | None:
    """Return the deadline of an ended run; after a failure it stays watched until it is breached."""
    if due is None:
        return None
    is_met = run.outcome is Outcome.SUCCEEDED and run.since <= due
    is_breached = not is_met and due <= now
    warning_at = due - 30 * MINUTE
    return SlaWatch(
        key=run.key,
        config_hash="",
        since=run.since if is_met else due if is_breached else run.created_at,
        arrived_at=run.created_at if is_relative else None,
        warning_at=warning_at,
        breach_at=due,
        warned_at=warning_at if (run.since if is_met else now) > warning_at else None,
        verdict=Verdict.MET if is_met else Verdict.BREACHED if is_breached else None,
    )


def _story(run: Run) -> Iterator[Event]:
    """Yield the events of an ended run, as its attempts went."""
    for each in run.attempts:
        yield from _started(run.key, each.number, each.started_at or each.ended_at)
        message = f"the job of attempt {each.number} failed: {each.reason}"
        yield _event(run.key, each.ended_at, EventType.JOB_FAILED, message, each.number)
    yield from _started(run.key, run.attempt, run.started_at or run.since)
    if run.outcome is Outcome.SUCCEEDED:
        message = f"completed in attempt {run.attempt}"
        yield _event(run.key, run.since, EventType.JOB_COMPLETED, message, run.attempt)
        return
    message = f"the job of attempt {run.attempt} failed: {run.reason}"
    yield _event(run.key, run.since - INSTANT, EventType.JOB_FAILED, message, run.attempt)
    yield _event(run.key, run.since, EventType.RETRY_EXHAUSTED, f"failed: {run.reason}", run.attempt)


def _started(key: RunKey, attempt: int, at: datetime) -> Iterator[Event]:
    if attempt == 1:
        # Lists order events by time: of two at the same time, either could be first.
        yield _event(key, at - INSTANT, EventType.VALIDATION_PASSED, "all rules hold", attempt)
    yield _event(key, at, EventType.JOB_TRIGGERED, f"the job of attempt {attempt} was started", attempt)


def _verdict(watch: SlaWatch | None) -> Iterator[Event]:
    if watch is None:
        return
    if watch.verdict is Verdict.MET:
        yield _event(watch.key, watch.since, EventType.SLA_MET, "was done in time")
    elif watch.verdict is Verdict.BREACHED:
        kind = EventType.SLA_BREACH if watch.arrived_at is None else EventType.RELATIVE_SLA_BREACH
        yield _event(watch.key, watch.breach_at or watch.since, kind, "breached its deadline")


def _event(key: RunKey, at: datetime, event_type: EventType, message: str, attempt: int | None = None) -> Event:
    detail: dict[str, Json] = {"demo": True, **({} if attempt is None else {"attempt": attempt})}
    return Event(
        id=f"demo-{_spread(f'{key} {event_type} {attempt}', 16**8):08x}",
        type=event_type,
        at=at,
        pipeline=key.pipeline,
        schedule=key.schedule,
        period=str(key.period),
        message=f"{key}: {message}",
        detail=detail,
    )


def _key(pipeline: str, number: int, now: datetime) -> RunKey:
    return RunKey(PipelineId(pipeline), STREAM_SCHEDULE, Period((now - (number + 1) * DAY).date()))


def _due(pipeline: PastPipeline, key: RunKey, arrived: datetime) -> datetime | None:
    if pipeline.deadline is not None:
        return datetime.combine(key.period.date + DAY, pipeline.deadline, tzinfo=arrived.tzinfo)
    return None if pipeline.allowed is None else arrived + pipeline.allowed


def _spread(text: object, below: int) -> int:
    """Return a number below `below` that is always the same for a text: each demo has the same history."""
    return crc32(f"{text}".encode()) % max(1, below)
