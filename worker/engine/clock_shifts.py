"""Runs whose times are still by the wall clock as it was before it was set."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from worker.core.model.keys import RunKey
from worker.core.run.facts import ClockStepped
from worker.core.time.skew import SKEW_MAX
from worker.engine.session_authority import SessionAuthority
from worker.runtime.clock import Clock
from worker.runtime.clock_steps import ClockSteps
from worker.runtime.logs import Log, to_nobody


class ClockShifts:
    """Notices steps of the wall clock and keeps, for each row held at that time, the step that it has to be told of.

    `held` gives every row that is held here, and since when each is in its state. Ask for `pending` before anything
    else is decided about a row: what is decided after the step has times by the new clock. Call `notice` before another
    worker's row is held: its times have followed the steps until then.
    """

    def __init__(
        self,
        clock: Clock,
        standing: SessionAuthority,
        held: Callable[[], Mapping[RunKey, datetime]],
        log: Log = to_nobody,
    ) -> None:
        self._standing, self._held, self._log = standing, held, log
        self._steps = ClockSteps(clock, SKEW_MAX)
        self._pending: dict[RunKey, ClockStepped] = {}

    def pending(self, key: RunKey) -> ClockStepped | None:
        """Return the step that the row's times have not followed yet."""
        self.notice()
        return self._pending.get(key)

    def notice(self) -> None:
        if not self._standing.may_judge_time():
            # The store's clock shows that ours is wrong now, so the rows are right as they are. They still are once
            # ours is right again: then what counts is how far it was set in all, and that is nothing.
            return
        if by := self._steps.look():
            held = self._held()
            self._log("clock.stepped", {"by_s": round(by.total_seconds(), 3), "runs": len(held)})
            for key, since in held.items():
                self._note(key, since, by)

    def settled(self, key: RunKey, step: ClockStepped) -> None:
        """Forget a step that the row was told of, unless the clock was set once more meanwhile."""
        if self._pending.get(key) == step:
            del self._pending[key]

    def forget(self, key: RunKey) -> None:
        self._pending.pop(key, None)

    def _note(self, key: RunKey, since: datetime, by: timedelta) -> None:
        earlier = self._pending.get(key)
        if earlier is None or earlier.since != since:
            self._pending[key] = ClockStepped(since, by)
        elif earlier.by + by:
            self._pending[key] = ClockStepped(since, earlier.by + by)
        else:
            del self._pending[key]
