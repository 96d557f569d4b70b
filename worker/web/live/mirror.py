"""The mirror: what the lists of the console show, in memory, in the process that serves them.

It is never the source of truth: the page of one pipeline or run, and every action, reads the store. Everything in it
has a bound, and lists that a bound cut say so. It is changed row by row, in any order, and then equals a mirror that
was built from the rows as they are.
"""

import heapq
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final

from worker.core.model.events import EventType
from worker.store.repos.sessions import Session
from worker.web.live.catalogue import CatalogueEntry
from worker.web.live.facts import ActiveRun, ActiveWatch, FinishedRun, ToldEvent

ENDED_MAX: Final = 100_000
ENDED_FOR_S: Final = 7 * 86_400.0
TOLD_MAX: Final = 10_000  # breaches, and misses
HISTORY_MAX: Final = 30  # outcomes of a schedule
OLDER_MAX: Final = 20_000  # schedules whose older outcomes are kept
HOUR_S: Final = 3_600

BREACHES: Final = frozenset({EventType.SLA_BREACH.value, EventType.RELATIVE_SLA_BREACH.value})
MISSES: Final = frozenset(
    {
        EventType.SCHEDULE_MISSED.value,
        EventType.IRREGULAR_SCHEDULE_MISSED.value,
        EventType.SENSOR_DEADLINE_EXPIRED.value,
    }
)
CONFIG_EVENTS: Final = frozenset({EventType.CONFIG_REJECTED.value, EventType.CONFIG_ACCEPTED.value})
WATCHDOG_EVENTS: Final = frozenset({EventType.WATCHDOG_DEGRADED.value, EventType.WATCHDOG_RECOVERED.value})
KEPT_EVENTS: Final = BREACHES | MISSES | CONFIG_EVENTS | WATCHDOG_EVENTS
BREACHED_FOR_S: Final = 7 * 86_400.0
MISSED_FOR_S: Final = 48 * 3_600.0

# Of all mirrors of a process: two states of a mirror, or of two mirrors, never have the same number.
_REVISIONS: Final = count(1)


@dataclass(frozen=True, slots=True)
class MirrorChanges:
    """MirrorChanges names what changed since it was last asked for."""

    runs: frozenset[str]
    pipelines: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.runs or self.pipelines)


class Mirror:
    """Holds the catalogue, active runs and deadlines, the last ended runs, and what was missed."""

    def __init__(self, *, ended_max: int = ENDED_MAX) -> None:
        self._ended_max = ended_max
        self.catalogue: dict[str, CatalogueEntry] = {}
        self.ids: list[str] = []  # of the catalogue, sorted
        self.owners: Counter[str] = Counter()
        self.jobs: Counter[str] = Counter()
        self._unreadable: set[str] = set()
        self.paused: dict[str, float | None] = {}  # until when; None: until resumed
        self.active: dict[str, ActiveRun] = {}
        self.watches: dict[str, ActiveWatch] = {}
        self._deadlines: dict[str, float] = {}  # of those with a verdict
        self.ended: dict[str, FinishedRun] = {}
        self.failed: dict[str, FinishedRun] = {}  # of those
        self.breached: dict[str, ToldEvent] = {}
        self.missed: dict[str, ToldEvent] = {}
        self.rejected: dict[str, ToldEvent] = {}  # the last word about each pipeline's configuration
        self.watchdog: dict[str, ToldEvent] = {}  # the last word about each part of the monitoring
        self.hours: Counter[tuple[int, str]] = Counter()  # (hour since 1970, word) -> ended runs
        self.sessions: Sequence[Session] = ()
        self.letters: tuple[int, bool] = (0, True)  # how many, and whether that is all
        self.older: dict[str, dict[str, FinishedRun]] = {}  # `PIPELINE/SCHEDULE` -> period -> outcome before the window
        self._late: set[str] = set()  # of those
        self.revision = next(_REVISIONS)
        self._versions: dict[str, int] = {}  # the revision that changed a pipeline last
        self.catalogue_is_whole = False
        self.ended_is_whole = True  # within seven days
        self.week_is_read = True  # False while the lists of those days are being read
        self._of_pipeline: dict[str, dict[str, ActiveRun]] = {}
        self._ended_of: dict[str, dict[str, FinishedRun]] = {}
        self._by_end: list[tuple[float, str]] = []
        self._alive_at: dict[str, float] = {}
        self._runs: set[str] = set()
        self._pipelines: set[str] = set()

    # --- changes ------------------------------------------------------------------------------------------------------

    def see_run(self, run: ActiveRun | FinishedRun, *, is_exact: bool = True) -> None:
        """Note a run. What an index said is older than what is known, if the run has moved on since."""
        known = self.active.get(run.key) or self.ended.get(run.key)
        if known is not None:
            if known == run or (not is_exact and _entered(known) > _entered(run)):
                return
            self.forget_run(run.key)
        elif self.older:
            self.forget_run(run.key)
        if isinstance(run, ActiveRun):
            self.active[run.key] = run
            self._of_pipeline.setdefault(run.pipeline, {})[run.key] = run
        else:
            self.ended[run.key] = run
            if run.word == "failed":
                self.failed[run.key] = run
            self._ended_of.setdefault(run.pipeline, {})[run.key] = run
            self.hours[int(run.at // HOUR_S), run.word] += 1
            heapq.heappush(self._by_end, (run.at, run.key))
        self._changed(run.key, run.pipeline)

    def forget_run(self, key: str) -> None:
        of_schedule, _, period = key.rpartition("/")
        self.older.get(of_schedule, {}).pop(period, None)
        if (active := self.active.pop(key, None)) is not None:
            _drop(self._of_pipeline, active.pipeline, key)
            self._changed(key, active.pipeline)
        self.failed.pop(key, None)
        if (ended := self.ended.pop(key, None)) is not None:
            _drop(self._ended_of, ended.pipeline, key)
            self.hours[int(ended.at // HOUR_S), ended.word] -= 1
            self._changed(key, ended.pipeline)

    def see_watch(self, watch: ActiveWatch) -> None:
        if self.watches.get(watch.key) != watch:
            self.watches[watch.key] = watch
            self._changed(watch.key, watch.pipeline)

    def close_watch(self, key: str, breach_at: float | None = None) -> None:
        """Note that a deadline has its verdict; when it was is kept for as long as its run."""
        watch = self.watches.pop(key, None)
        if watch is not None:
            self._changed(key, watch.pipeline)
        at = breach_at if watch is None else watch.breach_at
        if at is not None and len(self._deadlines) < self._ended_max:
            self._deadlines[key] = at

    def deadline_of(self, key: str) -> float | None:
        """Return when the deadline of a run was or is; None if that is not known.

        A breach from before the mirror was built is known by its event alone.
        """
        if (watch := self.watches.get(key)) is not None:
            return watch.breach_at
        breach = self.breached.get(key)
        return self._deadlines.get(key, None if breach is None else breach.at)

    def see_pipeline(self, entry: CatalogueEntry) -> None:
        if entry.id not in self.catalogue:
            insort(self.ids, entry.id)
        if self.catalogue.get(entry.id) != entry:
            self._count(entry.id, -1)
            self.catalogue[entry.id] = entry
            self._count(entry.id, 1)
            self._changed("", entry.id)

    def forget_pipeline(self, pipeline: str) -> None:
        self._count(pipeline, -1)
        if self.catalogue.pop(pipeline, None) is not None:
            del self.ids[bisect_left(self.ids, pipeline)]
            self._changed("", pipeline)

    def see_pause(self, pipeline: str, until: float | None) -> None:
        if pipeline not in self.paused or self.paused[pipeline] != until:
            self.paused[pipeline] = until
            self._changed("", pipeline)

    def forget_pause(self, pipeline: str) -> None:
        if pipeline in self.paused:
            del self.paused[pipeline]
            self._changed("", pipeline)

    def see_event(self, event: ToldEvent, subject: str = "") -> None:
        """Note an event; the latest about each thing counts. `subject` names a part of the monitoring."""
        if event.type in BREACHES and event.key:
            self._latest(self.breached, event.key, event)
        elif event.type in MISSES and event.key:
            self._latest(self.missed, event.key, event)
        elif event.type in CONFIG_EVENTS:
            self._latest(self.rejected, event.pipeline, event)
        elif event.type in WATCHDOG_EVENTS:
            self._latest(self.watchdog, subject, event)

    def note_event(self, pipeline: str, key: str) -> None:
        """Note that something was said about a pipeline, for pages that list events."""
        self._changed(key, pipeline)

    def see_sessions(self, sessions: Iterable[Session], now: float) -> None:
        found = tuple(sorted(sessions, key=lambda each: each.id))
        alive = {each.id for each in found if is_alive(each, now)}
        if alive != {each.id for each in self.sessions if is_alive(each, now)}:
            self.revision = next(_REVISIONS)
        self.sessions = found
        self._alive_at |= dict.fromkeys(alive, now)
        if len(self._alive_at) > TOLD_MAX:
            self._alive_at = dict.fromkeys(alive, now)

    def see_letters(self, number: int, *, is_exact: bool) -> None:
        if self.letters != (number, is_exact):
            self.letters = number, is_exact
            self.revision = next(_REVISIONS)

    def see_older(self, pipeline: str, schedule: str, runs: Iterable[FinishedRun], late: Iterable[str]) -> None:
        """Keep outcomes that ended before the mirror's window, for the strip of a schedule."""
        if len(self.older) >= OLDER_MAX:
            self.older.pop(next(iter(self.older)))
        known = {run.period: run for run in runs if run.key not in self.active and run.key not in self.ended}
        self.older[f"{pipeline}/{schedule}"] = known
        self._late |= {key for key in late if key.rpartition("/")[2] in known}
        if len(self._late) > OLDER_MAX * HISTORY_MAX:
            self._late.clear()
        self._changed("", pipeline)

    def note_change(self, pipeline: str) -> None:
        """Note that something was learnt about a pipeline that lists show beside the mirror."""
        self._changed("", pipeline)

    def expire(self, now: float) -> None:
        """Drop what is too old or too much; call it now and then."""
        if len(self._by_end) > 2 * len(self.ended) + 1_000:  # most are of runs that moved on since
            self._by_end = [(run.at, run.key) for run in self.ended.values()]
            heapq.heapify(self._by_end)
        while self._by_end and (len(self.ended) > self._ended_max or self._by_end[0][0] < now - ENDED_FOR_S):
            at, key = heapq.heappop(self._by_end)
            run = self.ended.get(key)
            if run is not None and run.at == at:
                self.ended_is_whole = self.ended_is_whole and at < now - ENDED_FOR_S
                self.forget_run(key)
                self._keep_older(run)
        for key in [key for key in self._deadlines if key not in self.ended and key not in self.active]:
            del self._deadlines[key]
        for told, kept_s in ((self.breached, BREACHED_FOR_S), (self.missed, MISSED_FOR_S)):
            for key in [key for key, event in told.items() if event.at < now - kept_s]:
                del told[key]
        first = int((now - ENDED_FOR_S) // HOUR_S)
        for name in [name for name, runs in self.hours.items() if name[0] < first or not runs]:
            del self.hours[name]

    def _keep_older(self, run: FinishedRun) -> None:
        known = self.older.get(f"{run.pipeline}/{run.schedule}")
        if known is not None:
            known[run.period] = run
            if run.key in self.breached:
                self._late.add(run.key)
            if len(known) > HISTORY_MAX:
                del known[min(known)]

    def take_changes(self) -> MirrorChanges:
        """Return what changed since the last call."""
        found = MirrorChanges(frozenset(self._runs), frozenset(self._pipelines))
        self._runs.clear()
        self._pipelines.clear()
        return found

    # --- questions ----------------------------------------------------------------------------------------------------

    def is_paused(self, pipeline: str, now: float) -> bool:
        until = self.paused.get(pipeline, 0.0)
        return until is None or until > now

    def is_bad(self, pipeline: str) -> bool:
        """Return whether the deployed configuration of a pipeline cannot be used, as far as is known."""
        word = self.rejected.get(pipeline)
        return pipeline in self._unreadable or (word is not None and word.type == EventType.CONFIG_REJECTED.value)

    @property
    def bad(self) -> set[str]:
        return {each for each in {*self.rejected, *self._unreadable} if each in self.catalogue and self.is_bad(each)}

    def version_of(self, pipeline: str) -> int:
        """Return a number that changes with everything that a list shows of a pipeline, apart from the time."""
        return self._versions.get(pipeline, 0)

    def active_of(self, pipeline: str) -> Mapping[str, ActiveRun]:
        return self._of_pipeline.get(pipeline, {})

    def ended_of(self, pipeline: str) -> Mapping[str, FinishedRun]:
        return self._ended_of.get(pipeline, {})

    def late(self, runs: Iterable[FinishedRun]) -> set[str]:
        """Return which of these runs breached their deadline."""
        return {run.key for run in runs if run.key in self.breached or run.key in self._late}

    def history(self, pipeline: str, schedule: str) -> list[FinishedRun]:
        """Return the last outcomes of a schedule, latest period first."""
        runs = dict(self.older.get(f"{pipeline}/{schedule}", {}))
        runs |= {run.period: run for run in self.ended_of(pipeline).values() if run.schedule == schedule}
        return sorted(runs.values(), key=lambda run: run.period, reverse=True)[:HISTORY_MAX]

    def alive(self, now: float) -> list[Session]:
        return [each for each in self.sessions if is_alive(each, now)]

    def gone_for(self, session: str, began: float, now: float) -> float:
        """Return for how many seconds a session has not been alive; counted from `began` if it never was."""
        return now - self._alive_at.get(session, began)

    def degraded(self) -> list[ToldEvent]:
        return [each for each in self.watchdog.values() if each.type == EventType.WATCHDOG_DEGRADED.value]

    def _latest(self, told: dict[str, ToldEvent], name: str, event: ToldEvent) -> None:
        known = told.get(name)
        if known is not None and (known.at, known.type) >= (event.at, event.type):
            return
        told[name] = event
        if len(told) > TOLD_MAX:
            del told[min(told, key=lambda each: told[each].at)]
        self._changed(event.key, event.pipeline)

    def _count(self, pipeline: str, by: int) -> None:
        """Count a pipeline in the lists of owners and job types, or take it out."""
        entry = self.catalogue.get(pipeline)
        if entry is None:
            return
        for counter, name in ((self.owners, entry.owner), (self.jobs, entry.job)):
            counter[name] += by
            if counter[name] <= 0:
                del counter[name]
        if by > 0 and not entry.is_readable:
            self._unreadable.add(pipeline)
        else:
            self._unreadable.discard(pipeline)

    def _changed(self, key: str, pipeline: str) -> None:
        self.revision = next(_REVISIONS)
        if key:
            self._runs.add(key)
        if pipeline:
            self._pipelines.add(pipeline)
            self._versions[pipeline] = self.revision


def is_alive(session: Session, now: float) -> bool:
    """Return whether a session sent a heartbeat within the last minute, by the caller's clock."""
    if not session.is_alive:
        return False
    return session.heard_at is None or now - session.heard_at.timestamp() <= 60.0


def _entered(run: ActiveRun | FinishedRun) -> tuple[float, bool]:
    """Return when a run entered its state; of two at the same time, the end is the later one."""
    return (run.since, False) if isinstance(run, ActiveRun) else (run.at, True)


def _drop(found: dict[str, dict[str, ActiveRun]] | dict[str, dict[str, FinishedRun]], pipeline: str, key: str) -> None:
    members = found.get(pipeline)
    if members is not None:
        members.pop(key, None)
        if not members:
            del found[pipeline]
