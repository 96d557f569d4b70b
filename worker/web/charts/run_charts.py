"""Charts of a schedule's last runs: when each was ready, and how long it waited and worked.

Places across are percentages, because the page decides the width; places down are pixels of the chart's height.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from itertools import pairwise
from typing import Final

from worker.core.run.state import Outcome, Run
from worker.core.sla.state import SlaWatch
from worker.core.statistics.usual_range import usual_range
from worker.core.time.local_time import wall_at

HEIGHT: Final = 120
_STEPS: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (1, 5, 15, 30, 60, 300, 600, 1_200, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400)
)
LINES_MAX: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRun:
    """EndedRun is an ended run with its deadline, as the charts need it."""

    period: str
    run: Run
    deadline: datetime | None

    @property
    def has_succeeded(self) -> bool:
        return self.run.outcome is Outcome.SUCCEEDED

    @property
    def waited(self) -> timedelta:
        return max((self.run.started_at or self.run.since) - self.run.created_at, timedelta())

    @property
    def worked(self) -> timedelta:
        return max(self.run.since - (self.run.started_at or self.run.since), timedelta())


@dataclass(frozen=True, slots=True)
class ChartLine:
    """ChartLine is a horizontal line with a text: a clock time or a duration."""

    y: float
    offset: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyPoint:
    x: float
    y: float
    run: EndedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class StackedBar:
    """StackedBar is a run as two parts on top of each other: the job below, the wait above."""

    x: float
    width: float
    work_y: float
    work_height: float
    wait_y: float
    wait_height: float
    run: EndedRun


@dataclass(frozen=True, slots=True)
class UsualRange:
    """UsualRange is the 10th to 90th percentile of the last successes, and where it is drawn."""

    low: timedelta
    high: timedelta
    y: float
    height: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyChart:
    points: Sequence[ReadyPoint]
    lines: Sequence[ChartLine]
    deadlines: Sequence[tuple[float, float, float]]  # from, to, y: steps, because a deadline may change
    usual: UsualRange | None
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DurationChart:
    bars: Sequence[StackedBar]
    lines: Sequence[ChartLine]
    usual: UsualRange | None
    expected: ChartLine | None


def ended_runs(runs: Sequence[tuple[str, Run | None, SlaWatch | None]]) -> list[EndedRun]:
    """Return those that ended and have a job, oldest first."""
    return [
        EndedRun(period=text, run=run, deadline=watch.breach_at if watch else None)
        for text, run, watch in runs
        if run is not None and run.is_ended and run.started_at is not None
    ]


def ready_chart(runs: Sequence[EndedRun], zone: tzinfo) -> ReadyChart | None:
    """Return when runs were ready, counted from the begin of their periods; None without any."""
    if not runs:
        return None
    ready = [_since_begin(each.run.since, each, zone) for each in runs]
    due = [None if each.deadline is None else _since_begin(each.deadline, each, zone) for each in runs]
    scale = _Scale.over([*ready, *(each for each in due if each is not None)])
    usual = usual_range([at for at, each in zip(ready, runs, strict=True) if each.has_succeeded])
    step = 100 / len(runs)
    points = [
        ReadyPoint(x=_round(step * (number + 0.5)), y=scale.y(at), run=each)
        for number, (at, each) in enumerate(zip(ready, runs, strict=True))
    ]
    return ReadyChart(
        points=points,
        lines=list(scale.lines()),
        deadlines=list(_steps(due, step, scale)),
        usual=_band(usual, scale),
        late=sum(each.deadline is not None and each.run.since > each.deadline for each in runs),
    )


def duration_chart(runs: Sequence[EndedRun], expected: timedelta | None) -> DurationChart | None:
    """Return how long runs waited and worked; None without any."""
    if not runs:
        return None
    longest = max(each.waited + each.worked for each in runs)
    scale = _Scale.over([timedelta(), longest, expected or timedelta()])
    step = 100 / len(runs)
    bars: list[StackedBar] = []
    for number, each in enumerate(runs):
        work_y, wait_y = scale.y(each.worked), scale.y(each.worked + each.waited)
        bars.append(
            StackedBar(
                x=_round(step * (number + 0.12)),
                width=_round(step * 0.76),
                work_y=work_y,
                work_height=_round(scale.y(timedelta()) - work_y),
                wait_y=wait_y,
                wait_height=_round(work_y - wait_y),
                run=each,
            )
        )
    usual = usual_range([each.worked for each in runs if each.has_succeeded])
    return DurationChart(
        bars=bars,
        lines=list(scale.lines()),
        usual=_band(usual, scale),
        expected=ChartLine(scale.y(expected), expected) if expected else None,
    )


def _since_begin(at: datetime, each: EndedRun, zone: tzinfo) -> timedelta:
    """Return a time as the clock shows it, counted from midnight of the period's day, or from its hour."""
    period = each.run.key.period
    begin = datetime.combine(period.date, time(period.hour or 0, period.minute or 0))
    return wall_at(at, zone) - begin


def _steps(due: Sequence[timedelta | None], step: float, scale: "_Scale") -> Iterator[tuple[float, float, float]]:
    begin = 0
    for number, (this, following) in enumerate(pairwise([*due, None]), start=1):
        if this != following or number == len(due):
            if this is not None:
                yield _round(begin * step), _round(number * step), scale.y(this)
            begin = number


def _band(usual: tuple[timedelta, timedelta] | None, scale: "_Scale") -> UsualRange | None:
    if usual is None:
        return None
    low, high = usual
    return UsualRange(low, high, scale.y(high), max(2.0, _round(scale.y(low) - scale.y(high))))


def _round(value: float) -> float:
    return round(value, 2)


@dataclass(frozen=True, slots=True)
class _Scale:
    low: timedelta
    high: timedelta
    step: timedelta

    @classmethod
    def over(cls, values: Sequence[timedelta]) -> "_Scale":
        """Return a scale from one round value to another that holds all values."""
        low, high = min(values), max(values)
        length = max(high - low, timedelta(seconds=1))
        step = next(
            (each for each in _STEPS if length / each <= LINES_MAX), timedelta(days=-(-length.days // LINES_MAX))
        )
        return cls(low // step * step, (high // step + 1) * step, step)

    def y(self, value: timedelta) -> float:
        share = (value - self.low) / (self.high - self.low)
        return _round(HEIGHT * (1 - min(1.0, max(0.0, share))))

    def lines(self) -> Iterator[ChartLine]:
        at = self.low
        while at <= self.high:
            yield ChartLine(self.y(at), at)
            at += self.step
