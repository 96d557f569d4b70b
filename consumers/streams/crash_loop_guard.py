"""Handle records one at a time where workers have crashed, and count each attempt before it is made.

A record that crashes its worker leaves no history except on the lease. If two owners ended at the same checkpoint, the
third handles one record at a time with a checkpoint after each, so that the crashing record is always the next one. Its
attempts are counted on the lease. After as many as any record gets, it is given up without another attempt.
"""

from dataclasses import replace
from typing import Final

from consumers.delivery.retry import GivenUp
from worker.membership.held_lease import HeldLease
from worker.store.repos.leases import CrashHistory

DEATHS_MIN: Final = 2  # one crash is an accident, and most ends of a worker are deployments


class CrashLoopGuard:
    """Knows the crashes at the position where a lease was taken over."""

    def __init__(self, held: HeldLease, attempts_max: int, records: int) -> None:
        self._held, self._attempts_max = held, attempts_max
        self._ordeal = held.lease.ordeal
        is_here = self._ordeal.at == held.position
        # As many as may have been in flight when the other workers crashed: any of them may be the cause.
        self._left = records if is_here and self._ordeal.deaths >= DEATHS_MIN else 0

    @property
    def is_needed(self) -> bool:
        return self._left > 0

    async def begin(self) -> GivenUp | None:
        """Count an attempt of the next record, or give it up if no attempt is left. Raises `LeaseLost`."""
        self._left -= 1
        if self._ordeal.at != self._held.position:
            self._ordeal = CrashHistory(at=self._held.position, deaths=self._ordeal.deaths)
        if self._ordeal.tries >= self._attempts_max:
            return GivenUp(f"{self._ordeal.tries} workers ended while they handled it", ())
        self._ordeal = replace(self._ordeal, tries=self._ordeal.tries + 1)
        await self._held.note_try(self._ordeal)
        return None
