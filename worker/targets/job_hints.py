"""Job hints: polls a job as soon as an event announces its end, and otherwise rarely.

A hint names a job and nothing more: it changes when the job is polled, and the poll decides. So a forged, repeated,
early or late hint is harmless. A hint that is lost costs time: the job's end is noticed at its next poll. If hints stop
coming, jobs are polled at their own interval again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import JobType, Pipeline
from worker.core.run.state import Run, State
from worker.jobs.state_changes import hint_of
from worker.runtime.clock import Clock
from worker.runtime.logs import Log, to_nobody
from worker.targets.job_ends import PollHeld, Spawn

# How often a job is polled whose end is announced, if its own interval is not longer.
RARELY: Final = timedelta(minutes=15)
# The wait between two hinted polls of one job doubles: hints that lead to nothing count for less and less.
AGAIN_FIRST_S: Final = 1.0
AGAIN_LONGEST_S: Final = 60.0
# Hints about jobs that are not known here: the answer to their start, or their adoption, may come after their end.
EARLY_MAX: Final = 5_000
EARLY_S: Final = 60.0
# This many ends in a row that no hint announced mean that no hints come.
MISSED_MAX: Final = 3
# A job that ends sooner may be polled before its hint could arrive.
MISSED_AFTER_S: Final = 60.0
_WITH_JOB: Final = frozenset({State.POLLING, State.STOPPING})


@dataclass(slots=True, kw_only=True)
class _Followed:
    """A job whose end may be announced."""

    key: RunKey
    type: JobType
    hint: str
    since: float
    is_hinted: bool = False  # an event announced its end
    is_polling: bool = False  # a hinted poll waits or is under way
    is_wanted: bool = False  # another hint came since that poll began
    polls: int = 0
    next_at: float = 0.0


class JobHints:
    """Holds the jobs of the runs that this worker holds. `types` are those whose ends are announced."""

    def __init__(self, types: frozenset[JobType], clock: Clock) -> None:
        self.types, self._clock = types, clock
        self._spawn: Spawn | None = None
        self._poll_held: PollHeld | None = None
        self._workers: Callable[[], int] | None = None
        self._log: Log = to_nobody
        self._followed: dict[RunKey, _Followed] = {}
        self._by_hint: dict[str, _Followed] = {}
        self._early: dict[str, float] = {}  # in order of their time
        self._missed = dict.fromkeys(types, 0)

    def __len__(self) -> int:
        """Return how many jobs are followed."""
        return len(self._followed)

    @property
    def is_alone(self) -> bool:
        """Return whether no other worker can hold the run of a job that is not known here."""
        return self._workers is not None and self._workers() <= 1

    def attach(self, spawn: Spawn, poll_held: PollHeld, workers: Callable[[], int], log: Log) -> None:
        """Begin a session: nothing of an earlier one is followed. `workers` are those that hold runs."""
        self._spawn, self._poll_held, self._workers, self._log = spawn, poll_held, workers, log
        self._followed.clear()
        self._by_hint.clear()

    # --- what is followed ---------------------------------------------------------------------------------------------

    def follow(self, run: Run, pipeline: Pipeline) -> None:
        """Poll the run's job once an event announces its end; does nothing if its target announces none."""
        kind = pipeline.job.type if pipeline.job else None
        if kind is None or kind not in self.types:
            return
        hint = hint_of(kind, run.job) if run.job is not None and run.state in _WITH_JOB else ""
        known = self._followed.get(run.key)
        if known is not None and known.hint == hint:
            return
        self.forget(run.key)
        if not hint:
            return
        followed = _Followed(key=run.key, type=kind, hint=hint, since=self._clock.monotonic())
        self._followed[run.key] = self._by_hint[hint] = followed
        early_at = self._early.pop(hint, None)
        if early_at is not None and early_at + EARLY_S > self._clock.monotonic():
            self._poll(followed)

    def forget(self, key: RunKey) -> None:
        """Ignore hints about the run's job: it ended, or another worker holds the run."""
        followed = self._followed.pop(key, None)
        if followed is not None and self._by_hint.get(followed.hint) is followed:
            del self._by_hint[followed.hint]

    def is_polling(self, key: RunKey) -> bool:
        """Return whether a hinted poll of the run's job is under way, so that no other is needed."""
        followed = self._followed.get(key)
        return followed is not None and followed.is_polling

    def poll_every(self, key: RunKey) -> timedelta | None:
        """Return the interval that suffices for the run's job; None if its own interval applies.

        A job whose end was announced is polled at its own interval: the poll that follows the hint may fail.
        """
        followed = self._followed.get(key)
        if followed is None or followed.is_hinted or self._missed[followed.type] >= MISSED_MAX:
            return None
        return RARELY

    def ended(self, key: RunKey) -> None:
        """Note that a poll found the end of the run's job, so that missing hints are noticed."""
        followed = self._followed.get(key)
        if followed is None or followed.is_hinted or self._clock.monotonic() - followed.since < MISSED_AFTER_S:
            return
        self._missed[followed.type] += 1
        if self._missed[followed.type] == MISSED_MAX:
            self._log("hints.missed", {"type": followed.type.value, "ends": MISSED_MAX})

    # --- hints --------------------------------------------------------------------------------------------------------

    def hint(self, hint: str) -> bool:
        """Poll the job that a hint names; return False if no run that is held here has this job."""
        followed = self._by_hint.get(hint)
        if followed is None:
            self._keep_early(hint)
            return False
        if self._missed[followed.type] >= MISSED_MAX:
            self._log("hints.returned", {"type": followed.type.value})
        self._missed[followed.type] = 0
        self._poll(followed)
        return True

    def _keep_early(self, hint: str) -> None:
        self._early.pop(hint, None)
        self._early[hint] = self._clock.monotonic()
        if len(self._early) > EARLY_MAX:
            del self._early[next(iter(self._early))]

    def _poll(self, followed: _Followed) -> None:
        followed.is_hinted = followed.is_wanted = True
        if not followed.is_polling and self._spawn is not None:
            followed.is_polling = True
            self._spawn(f"hint:{followed.key}", partial(self._poll_while_wanted, followed))

    async def _poll_while_wanted(self, followed: _Followed) -> None:
        try:
            while followed.is_wanted:
                followed.is_wanted = False
                await self._clock.sleep(max(0.0, followed.next_at - self._clock.monotonic()))
                if self._followed.get(followed.key) is not followed or self._poll_held is None:
                    return
                wait_s = min(AGAIN_FIRST_S * 2**followed.polls, AGAIN_LONGEST_S)
                followed.next_at, followed.polls = self._clock.monotonic() + wait_s, min(followed.polls + 1, 10)
                await self._poll_held(followed.key)
        finally:
            followed.is_polling = False
