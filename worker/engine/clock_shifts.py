"""Clock shifts: corrects the times of held runs after a step of the wall clock."""

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
    """Detects steps of the wall clock and keeps the step for each row held at that time.

    `held` returns every row held here, with the time since when it is in its state. Call `pending` before any other
    decision about a row, because a decision after the step uses the new clock. Call `notice` before holding another
    worker's row: its times have followed all steps until then.
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
            # The store's clock shows that this worker's clock is wrong now, so the times in the rows are right. They
            # are still right when the clock has been corrected: then the sum of the steps is zero.
            return
        if by := self._steps.look():
            held = self._held()
            self._log("clock.stepped", {"by_s": round(by.total_seconds(), 3), "runs": len(held)})
            for key, since in held.items():
                self._note(key, since, by)

    def settled(self, key: RunKey, step: ClockStepped) -> None:
        """Forget a step that the row has followed, unless the clock was set again since."""
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
