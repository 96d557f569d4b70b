"""The `after` gate: whether the upstream runs that a run needs are complete, and what it waits for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from worker.core.dependencies.period_mapping import Link, NeededPeriod
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Dependency, Requirement
from worker.core.run.state import ForeignRun, Outcome, Run, State, Status, status_word
from worker.core.time.periods import Granularity, Period

NEEDED_MAX: Final = 400  # upstream runs that one item of `after` may need: the run's row names each of them
NAMED_MAX: Final = 5  # upstream runs that a sentence names

UNIT_NAMES: Final = {Granularity.DAILY: "days", Granularity.HOURLY: "hours", Granularity.MINUTE: "periods"}


class Standing(StrEnum):
    """Lists how far an upstream run is, for the run that needs it."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ACTIVE = "active"
    ABSENT = "not started"
    EXCUSED = "not expected"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRun:
    """Holds an upstream run as it was read; `excused` says why none is expected for its period."""

    key: RunKey
    run: Run | ForeignRun | None
    excused: str | None = None

    @property
    def standing(self) -> Standing:
        match self.run:
            case Run(state=State.COMPLETED) | ForeignRun(status=Status.COMPLETED):
                return Standing.COMPLETED
            case Run(is_ended=False) | ForeignRun(status=Status.RUNNING):
                return Standing.ACTIVE
            case _ if self.excused is not None:
                return Standing.EXCUSED
            case None:
                return Standing.ABSENT
            case Run(outcome=Outcome.CANCELLED):
                return Standing.CANCELLED
            case _:
                return Standing.FAILED

    @property
    def word(self) -> str:
        """Return what people read: the state of the run, or that there is none."""
        return self.standing.value if self.run is None or self.standing is Standing.EXCUSED else status_word(self.run)

    @property
    def attempt(self) -> str:
        """Return which attempt of which row this is; it differs once the run completes again."""
        return f"{self.run.run_id[:8]}.{self.run.attempt}" if isinstance(self.run, Run) else "foreign"

    @property
    def is_complete(self) -> bool:
        return self.standing is Standing.COMPLETED

    def meets(self, requirement: Requirement) -> bool:
        ended = {Standing.FAILED, Standing.CANCELLED} if requirement is Requirement.ENDED else set[Standing]()
        return self.standing in {Standing.COMPLETED, Standing.EXCUSED, *ended}


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """Holds one item of `after` with the upstream runs it needs. `problem` says why none can be found."""

    dependency: Dependency
    period: Period
    runs: tuple[UpstreamRun, ...] = ()
    needed: int = 0
    problem: str = ""
    note: str = ""  # what else people should know of the upstream: paused, in dry run
    is_paused: bool = False

    @property
    def met(self) -> int:
        return sum(run.meets(self.dependency.require) for run in self.runs)

    @property
    def is_passed(self) -> bool:
        if self.problem:
            return False
        # A run that is active is about to change what we would start on, however many others suffice.
        is_moving = any(run.standing is Standing.ACTIVE and _has_ended_before(run) for run in self.runs)
        return self.met >= self.needed and not is_moving

    @property
    def is_at_rest(self) -> bool:
        return self.is_passed and all(run.standing is not Standing.ACTIVE for run in self.runs)

    def needs_help(self, stuck: Collection[RunKey]) -> bool:
        """Return whether the item never passes by itself; nor do the active runs in `stuck` ever end so."""
        if self.is_passed or self.problem:
            return bool(self.problem)
        if self.met >= self.needed:
            return any(_has_ended_before(run) and run.key in stuck for run in self.runs)  # it waits for such runs alone
        active = sum(run.standing is Standing.ACTIVE for run in self.runs)
        return self.met + active - len(stuck) < self.needed

    @property
    def has_run(self) -> bool:
        """Return whether an upstream run is complete, and not only excused: only then it creates a run."""
        return any(run.meets(self.dependency.require) and run.standing is not Standing.EXCUSED for run in self.runs)

    @property
    def attempts(self) -> dict[str, str]:
        """Return the attempt of each upstream run that counts, by its name."""
        counted = (run for run in self.runs if run.meets(self.dependency.require) and run.run is not None)
        return {str(run.key): run.attempt for run in counted if run.standing is not Standing.EXCUSED}

    @property
    def blocking(self) -> tuple[UpstreamRun, ...]:
        return tuple(run for run in self.runs if not run.meets(self.dependency.require))

    def __str__(self) -> str:
        return self.described({})

    def described(self, usual: Mapping[RunKey, str]) -> str:
        """Return what the item waits for, or that it is met; `usual` has the usual duration of active runs."""
        name = str(self.dependency)
        if self.problem:
            return f"{name}: {self.problem}"
        if self.is_passed:
            return f"{name}: {self._summary('')}"
        note = f" ({self.note})" if self.note else ""
        return f"waits for {name} {self.period}: {self._summary(self._named(usual))}{note}"

    def _summary(self, named: str) -> str:
        if len(self.runs) == 1 and self.runs[0].excused and self.runs[0].standing is Standing.EXCUSED:
            return f"not expected ({self.runs[0].excused})"
        if len(self.runs) == 1 and self.needed <= 1:
            run = self.runs[0]
            return named or f"{run.key.period} {run.word}"
        if not self.runs:
            return "no run is expected" if self.needed == 0 else "no run within reach"
        unit = UNIT_NAMES[self.runs[0].key.period.granularity]
        word = "ended" if self.dependency.require is Requirement.ENDED else "completed"
        total = f"{self.met} of {len(self.runs)} {unit} {word}"
        atleast = f" ({self.needed} suffice{'s' if self.needed == 1 else ''})" if self.needed < len(self.runs) else ""
        return f"{total}{atleast}{f'; {named}' if named else ''}"

    def _named(self, usual: Mapping[RunKey, str]) -> str:
        blocking = sorted(self.blocking, key=lambda run: (run.standing is Standing.ABSENT, run.key.period))
        shown = [_short(run, self.period, usual.get(run.key)) for run in blocking[:NAMED_MAX]]
        more = len(blocking) - len(shown)
        return ", ".join([*shown, *([f"and {more} more"] if more > 0 else [])])


@dataclass(frozen=True, slots=True)
class GateResult:
    """Holds what the `after` gate of one run found."""

    items: tuple[ItemResult, ...] = ()

    @property
    def is_passed(self) -> bool:
        return all(item.is_passed for item in self.items)

    @property
    def is_at_rest(self) -> bool:
        return all(item.is_at_rest for item in self.items)

    @property
    def is_moving(self) -> bool:
        """Return whether an upstream run is active: its end changes what the gate finds."""
        return any(run.standing is Standing.ACTIVE for item in self.items for run in item.runs)

    @property
    def may_create(self) -> bool:
        """Return whether the upstreams create a run: all are complete, and at least one has a run."""
        return self.is_passed and any(item.has_run for item in self.items)

    @property
    def reason(self) -> str:
        """Return what the run waits for."""
        return "; ".join(str(item) for item in self.items if not item.is_passed)

    @property
    def attempts(self) -> dict[str, str]:
        return {name: attempt for item in self.items for name, attempt in item.attempts.items()}

    @property
    def path(self) -> tuple[str, ...]:
        """Return the longest chain of pipelines that leads here through the upstream runs."""
        found = [(*_path(run.run), run.key.pipeline) for item in self.items for run in item.runs if run.run is not None]
        return max(found, key=len, default=())

    @property
    def is_followed(self) -> bool:
        """Return whether an upstream run belongs to a replay that all downstreams follow."""
        runs = (run.run for item in self.items for run in item.runs)
        return any(isinstance(run, Run) and run.is_followed for run in runs)

    @property
    def failed(self) -> tuple[UpstreamRun, ...]:
        ended = {Standing.FAILED, Standing.CANCELLED}
        return tuple(run for item in self.items for run in item.blocking if run.standing in ended)


def judge_needed(link: Link, period: Period, needed: Sequence[NeededPeriod], runs: Sequence[UpstreamRun]) -> ItemResult:
    """Judge one item whose needed periods are known; `runs` has the upstream run of each."""
    dependency = link.dependency
    least = len(needed) if dependency.at_least is None else min(dependency.at_least, len(needed))
    problem = f"{len(needed)} runs are needed, and at most {NEEDED_MAX} are allowed" if len(needed) > NEEDED_MAX else ""
    return ItemResult(dependency=dependency, period=period, runs=tuple(runs), needed=least, problem=problem)


def judge_latest(link: Link, period: Period, newest_first: Sequence[UpstreamRun]) -> ItemResult:
    """Judge `periods: latest`: the newest run that counts, or that is active and may soon count."""
    counting = (run for run in newest_first if _may_count(run, link.dependency.require))
    runs = tuple([run for run, _ in zip(counting, range(1), strict=False)])
    return ItemResult(dependency=link.dependency, period=period, runs=runs, needed=1)


def _may_count(run: UpstreamRun, requirement: Requirement) -> bool:
    return run.meets(requirement) or run.standing is Standing.ACTIVE


def _has_ended_before(run: UpstreamRun) -> bool:
    return isinstance(run.run, Run) and run.run.attempt > 1


def _path(run: Run | ForeignRun | None) -> tuple[str, ...]:
    return run.path if isinstance(run, Run) else ()


def _short(run: UpstreamRun, ours: Period, usual: str | None) -> str:
    """Return one upstream run in few words; an hour of our own day needs no date."""
    name = str(run.key.period)
    if name.startswith(f"{ours}T"):
        name = name.removeprefix(str(ours))
    duration = f" (usually {usual})" if usual else ""
    return f"{name} {run.word}{duration}"
