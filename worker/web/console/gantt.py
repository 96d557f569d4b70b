"""The Gantt chart of a run's attempts: phases, deadline and time axis as shares of its width."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from enum import StrEnum
from itertools import islice
from typing import Final

from worker.core.run.state import Run, State
from worker.core.sla.state import SlaWatch
from worker.core.time.durations import shown_duration
from worker.operations.runs.history import HistoryEntry, HistorySource
from worker.web.console.wording import clock_text, moment_text

_STEPS: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 5, 15, 30, 60, 300, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800)
)
TICKS_MAX: Final = 6
TICK_ROOM: Final = 5.0  # percent
ATTEMPTS_SHOWN_MAX: Final = 16
MARKS_MAX: Final = 200
# Events that explain a chart, by a part of their type; the others repeat what its bars show.
_MARKED: Final = {
    "SLA_WARNING": "stuck",
    "BREACH": "breached",
    "SLA_MET": "completed",
    "LATE_DATA": "stuck",
    "DRIFT": "stuck",
    "RERUN": "running",
    "OPERATOR": "running",
}


class Phase(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBar:
    """PhaseBar is one phase of an attempt. `left` and `width` are percentages of the chart."""

    phase: Phase
    left: float
    width: float
    begin: datetime
    end: datetime
    is_open: bool

    @property
    def duration(self) -> str:
        return shown_duration(self.end - self.begin)


@dataclass(frozen=True, slots=True)
class AttemptLane:
    number: int
    outcome: str
    reason: str
    bars: Sequence[PhaseBar]


@dataclass(frozen=True, slots=True)
class AxisMark:
    at: float
    moment: datetime
    text: str


@dataclass(frozen=True, slots=True)
class EventMark:
    """EventMark is an event below the lanes: a deadline, late data, a rerun or an operator's action."""

    at: float
    moment: datetime
    what: str
    text: str
    tone: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GanttChart:
    lanes: Sequence[AttemptLane]
    ticks: Sequence[AxisMark]
    deadline: AxisMark | None
    now: AxisMark | None
    is_cut: bool
    events: Sequence[EventMark] = ()


@dataclass(frozen=True, slots=True)
class _Span:
    phase: Phase
    begin: datetime
    end: datetime
    is_open: bool = False


def gantt_chart(
    run: Run, watch: SlaWatch | None, now: datetime, zone: tzinfo, history: Sequence[HistoryEntry] = ()
) -> GanttChart:
    """Return the chart of a run. Everything in it lies between 0 and 100 percent."""
    attempts = list(_attempts(run, now))
    shown = attempts[-ATTEMPTS_SHOWN_MAX:]
    begin = min(each.begin for _, _, _, spans in shown for each in spans)
    last = max(each.end for _, _, _, spans in shown for each in spans)
    due = watch.breach_at if watch else None
    deadline = due if due is not None and _is_near(due, begin, last) else None
    low, high = min(begin, deadline or begin), max(last, deadline or last)
    room = max(high - low, timedelta(seconds=10)) * 0.02
    scale = _Scale(low - (room if deadline == low else timedelta(0)), high + room)
    due_mark = AxisMark(scale.at(deadline), deadline, clock_text(deadline, now, zone)) if deadline else None
    lanes = [
        AttemptLane(number, outcome, reason, [scale.bar(each) for each in spans])
        for number, outcome, reason, spans in shown
    ]
    return GanttChart(
        lanes=lanes,
        # The deadline names its time: a tick beside it would be written over.
        ticks=[each for each in scale.ticks(zone) if due_mark is None or abs(each.at - due_mark.at) > TICK_ROOM],
        deadline=due_mark,
        now=None if run.is_ended else AxisMark(scale.at(now), now, "now"),
        is_cut=len(attempts) > len(shown),
        events=list(_marks(history, scale, zone)),
    )


def _marks(history: Sequence[HistoryEntry], scale: "_Scale", zone: tzinfo) -> Iterator[EventMark]:
    found = (each for each in history if each.source is HistorySource.EVENT and each.at is not None)
    for each in islice(found, MARKS_MAX):
        tone = next((tone for word, tone in _MARKED.items() if word in each.what), None)
        if tone is not None and each.at is not None and scale.low <= each.at <= scale.high:
            yield EventMark(scale.at(each.at), each.at, each.what, moment_text(each.at, zone), tone)


def _is_near(deadline: datetime, begin: datetime, end: datetime) -> bool:
    """Return whether a deadline can be drawn without squeezing the attempts into a corner."""
    length = max(end - begin, timedelta(minutes=10))
    return begin - length <= deadline <= end + 2 * length


def _attempts(run: Run, now: datetime) -> Iterator[tuple[int, str, str, list[_Span]]]:
    begin = run.created_at
    for earlier in run.attempts:
        ended = max(earlier.ended_at, begin)
        started = min(max(earlier.started_at or ended, begin), ended)
        yield earlier.number, earlier.outcome or "ended", earlier.reason, _phases(begin, started, ended)
        begin = ended
    begin = max(run.attempt_at or begin, begin) if run.attempts else run.attempt_began_at
    end = max(run.since if run.is_ended else now, begin)
    outcome = run.outcome.value if run.outcome else ""
    yield run.attempt, outcome, run.reason if run.is_ended else "", list(_current(run, begin, end))


def _phases(begin: datetime, started: datetime, ended: datetime) -> list[_Span]:
    spans = [_Span(Phase.WAITING, begin, started), _Span(Phase.RUNNING, started, ended)]
    return [each for each in spans if each.end > each.begin] or [spans[0]]


def _current(run: Run, begin: datetime, end: datetime) -> Iterator[_Span]:
    since = min(max(run.since, begin), end)
    match run.state:
        case State.EVALUATING:
            yield _Span(Phase.WAITING, begin, end, is_open=True)
        case State.TRIGGERING:
            yield _Span(Phase.WAITING, begin, since)
            yield _Span(Phase.STARTING, since, end, is_open=True)
        case State.POLLING:
            started = min(max(run.started_at or since, begin), end)
            yield _Span(Phase.WAITING, begin, started)
            yield _Span(Phase.RUNNING, started, end, is_open=True)
        case State.STOPPING:
            started = min(max(run.started_at or since, begin), since)
            yield _Span(Phase.WAITING, begin, started)
            yield _Span(Phase.RUNNING, started, since)
            yield _Span(Phase.STOPPING, since, end, is_open=True)
        case State.COMPLETED | State.FAILED_FINAL:
            started = min(max(run.started_at or end, begin), end)
            yield from _phases(begin, started, end)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: datetime
    high: datetime

    def at(self, moment: datetime) -> float:
        share = (moment - self.low) / (self.high - self.low)
        return round(min(1.0, max(0.0, share)) * 100, 3)

    def bar(self, each: _Span) -> PhaseBar:
        left = self.at(each.begin)
        width = max(0.15, self.at(each.end) - left)  # a phase of a moment is still to be seen
        left = min(left, 100 - width)
        return PhaseBar(
            phase=each.phase, left=left, width=round(width, 3), begin=each.begin, end=each.end, is_open=each.is_open
        )

    def ticks(self, zone: tzinfo) -> Iterator[AxisMark]:
        """Yield round times of the zone's clock."""
        length = self.high - self.low
        step = next((each for each in _STEPS if length / each <= TICKS_MAX), length / TICKS_MAX)
        local = self.low.astimezone(zone)
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        at = midnight + step * -(-(local - midnight) // step)
        pattern = "%m-%d" if step >= timedelta(days=1) else "%H:%M" if step >= timedelta(minutes=1) else "%H:%M:%S"
        while at <= self.high:
            share = self.at(at)
            if 3 <= share <= 97:
                yield AxisMark(share, at, f"{at:{pattern}}")
            at += step
