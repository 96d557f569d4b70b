"""Going carefully where workers have died: one record at a time, each try counted before it is made.

A record that kills its worker leaves no history but the lease. Two owners that ended at the same checkpoint make the
third go record by record, with a checkpoint after each, so that the one that kills is the very next; its tries are
counted on the lease, and after as many as any record has, it is given up untried.
"""

from dataclasses import replace
from typing import Final

from consumers.delivery.retry import GivenUp
from worker.membership.held_lease import HeldLease
from worker.store.repos.leases import CrashHistory

DEATHS_MIN: Final = 2  # one death is an accident, and most of them are deployments


class CrashLoopGuard:
    """What is known about the place where a lease was taken over."""

    def __init__(self, held: HeldLease, attempts_max: int, records: int) -> None:
        self._held, self._attempts_max = held, attempts_max
        self._ordeal = held.lease.ordeal
        is_here = self._ordeal.at == held.position
        # As many as may have been in hand when the others died: any of them may be the one.
        self._left = records if is_here and self._ordeal.deaths >= DEATHS_MIN else 0

    @property
    def is_needed(self) -> bool:
        return self._left > 0

    async def begin(self) -> GivenUp | None:
        """Count a try of the record right after the checkpoint, or say that it has had them all. Raises `LeaseLost`."""
        self._left -= 1
        if self._ordeal.at != self._held.position:
            self._ordeal = CrashHistory(at=self._held.position, deaths=self._ordeal.deaths)
        if self._ordeal.tries >= self._attempts_max:
            return GivenUp(f"{self._ordeal.tries} workers ended while they handled it", ())
        self._ordeal = replace(self._ordeal, tries=self._ordeal.tries + 1)
        await self._held.note_try(self._ordeal)
        return None
