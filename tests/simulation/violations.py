"""Where everyone who watches a world says what went wrong."""

import asyncio
from dataclasses import dataclass
from enum import IntEnum


class Invariant(IntEnum):
    """Those of `docs/invariants.md`, and promises that need a whole history, or people in it, to show."""

    ONE_START_PER_TOKEN = 1
    ONE_ATTEMPT_ALIVE = 2
    NO_START_ON_BAD_DATA = 3
    ONE_DECISION_ONE_COMMIT = 4
    VERSIONS_ONLY_RISE = 5
    BUDGETS_ARE_EXACT = 6
    EVERY_EXIT_IS_TOLD = 7
    ONE_VERDICT = 8
    BOUNDED_LIFE = 9
    WAITING_IS_FREE = 10
    INPUTS_STAY_OR_SOMEBODY_KNOWS = 11
    NOTHING_IS_LOST = 12
    NO_WORKER_BREAKS = 13
    NOTHING_BEGINS_IN_A_PAUSE = 14
    REHEARSALS_TOUCH_NOTHING = 15
    NO_EARLY_START = 16
    NO_STALE_RESULT = 17
    ONE_RERUN = 18
    NO_START_ON_STALE_PROBE = 19
    ONE_REQUEST_PER_INTERVAL = 20


class Violated(AssertionError):
    def __init__(self, invariant: Invariant, what: str, at_s: float) -> None:
        super().__init__(f"invariant {invariant.value} ({invariant.name}) after {at_s:.3f} s: {what}")
        self.invariant = invariant


@dataclass(slots=True)
class Verdicts:
    """Keeps the first violation. It is not raised where it was seen: a worker there would only take it for trouble."""

    first: "asyncio.Future[Violated]"

    @staticmethod
    def open() -> "Verdicts":
        return Verdicts(asyncio.get_running_loop().create_future())

    def violated(self, invariant: Invariant, what: str) -> None:
        if not self.first.done():
            self.first.set_result(Violated(invariant, what, asyncio.get_running_loop().time()))

    def require(self, holds: object, invariant: Invariant, what: str) -> None:
        if not holds:
            self.violated(invariant, what)

    def check(self) -> None:
        """Raises the first violation."""
        if self.first.done():
            raise self.first.result()
