"""Placement: who should hold which lease, without a leader: every worker makes the same plan.

A held lease stays. A free lease goes to the worker with the least load, and among equals to the highest hash of lease
and worker, so that most leases return to their old place. Leases move only to correct an imbalance, a few at a time.
The load of a worker is the weight of its leases, and a part of an even share if it holds many more runs than others.
Workers with different views may plan differently; the conditions of the writes keep that safe.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from worker.core.model.keys import SessionId

MOVED_AT_ONCE: Final = 0.1  # as a share of all leases of a kind, but always at least one
LIGHT_MOVED_AT_ONCE: Final = 0.25  # of a kind whose moves cost next to nothing
IMBALANCE_MAX: Final = 0.2  # as a share of the average load
RATE_STEP: Final = 10  # this many records a second weigh as much as holding a lease
RUNS_APART_MIN: Final = 100  # no smaller difference of held runs moves anything
HANDICAP_MAX: Final = 0.5  # as a share of an even part of the leases: a busy worker still takes its turn

_NONE_HELD: Final[Mapping[SessionId, int]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stake:
    """Stake: a lease as the plan sees it."""

    lease: str
    holder: SessionId | None = None  # None: free, or its holder is dead
    wanted_by: SessionId | None = None  # the session that requested it: a move under way
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    takes: Mapping[str, SessionId]  # free leases, and the session that should take each
    moves: Mapping[str, SessionId]  # held leases, and the session that should request each


def plan(
    stakes: Iterable[Stake],
    members: Iterable[SessionId],
    runs_held: Mapping[SessionId, int] = _NONE_HELD,
    *,
    moved_at_once: float = MOVED_AT_ONCE,
) -> Plan:
    """Place every free lease on a member, and name the moves that correct the worst imbalance.

    A lease whose holder is no member (it is leaving) stays where it is until it is released.
    """
    ordered = sorted(stakes, key=lambda stake: (-stake.weight, stake.lease))
    runs = {member: runs_held.get(member, 0) for member in sorted(members)}
    if not runs:
        return Plan(takes={}, moves={})
    loads = handicaps(runs, sum(stake.weight for stake in ordered))
    for stake in ordered:
        place = _place(stake, loads)
        if place is not None and place in loads:
            loads[place] += stake.weight
    takes = dict(_takes([stake for stake in ordered if stake.holder is None], loads))
    movable = {stake: stake.holder for stake in ordered if stake.holder in loads and not _is_moving(stake, loads)}
    under_way = sum(_is_moving(stake, loads) for stake in ordered)
    moves_max = max(1, int(len(ordered) * moved_at_once)) - under_way
    return Plan(takes=takes, moves=dict(_moves(movable, loads, moves_max)))


def handicaps(runs: Mapping[SessionId, int], weight_of_all: int) -> dict[SessionId, int]:
    """Return what counts as load of each member before any lease, by the runs that it holds.

    Runs stay where they were created. So a worker with more runs than the others gets fewer of the leases that bring
    new ones, until the others have as many. It begins at zero for the smallest difference that counts: a step there
    would move leases there and back while the difference goes up and down around it.
    """
    least, part = min(runs.values()), HANDICAP_MAX * weight_of_all / len(runs)
    counted = {member: max(0, held - least - RUNS_APART_MIN) for member, held in runs.items()}
    return {member: round(part * more / runs[member]) if more else 0 for member, more in counted.items()}


def weight(rate: int) -> int:
    """Return a lease's weight at a rate of records per second.

    It changes in coarse steps, so that small variations move nothing.
    """
    steps = rate // RATE_STEP
    return 1 + (1 << (steps.bit_length() - 1) if steps > 0 else 0)


def score(lease: str, member: SessionId) -> bytes:
    """Return how well a lease suits a member: even over all pairs, and the same on every worker."""
    return hashlib.sha256(f"{lease}|{member}".encode()).digest()


def _place(stake: Stake, members: Mapping[SessionId, int]) -> SessionId | None:
    """Return the session that holds a lease, or is about to."""
    return stake.wanted_by if _is_moving(stake, members) else stake.holder


def _is_moving(stake: Stake, members: Mapping[SessionId, int]) -> bool:
    return stake.holder is not None and stake.wanted_by in members and stake.wanted_by != stake.holder


def _takes(free: list[Stake], loads: dict[SessionId, int]) -> Iterator[tuple[str, SessionId]]:
    for stake in free:
        least = min(loads.values())
        taker = max((member for member in loads if loads[member] == least), key=lambda m: score(stake.lease, m))
        loads[taker] += stake.weight
        yield stake.lease, taker


def _moves(
    movable: dict[Stake, SessionId | None], loads: dict[SessionId, int], moves_max: int
) -> Iterator[tuple[str, SessionId]]:
    """Move from the highest load to the lowest, as long as each move reduces the gap."""
    for _ in range(moves_max):
        most, least = max(loads, key=lambda m: (loads[m], m)), min(loads, key=lambda m: (loads[m], m))
        gap = loads[most] - loads[least]
        helpful = [stake for stake, holder in movable.items() if holder == most and stake.weight < gap]
        if not helpful or not _is_uneven(gap, loads, helpful):
            return
        moved = max(helpful, key=lambda stake: (-abs(gap - 2 * stake.weight), score(stake.lease, least)))
        del movable[moved]
        loads[most] -= moved.weight
        loads[least] += moved.weight
        yield moved.lease, least


def _is_uneven(gap: int, loads: Mapping[SessionId, int], leases: list[Stake]) -> bool:
    average = sum(loads.values()) / len(loads)
    smallest = min(stake.weight for stake in leases)
    return gap > average * IMBALANCE_MAX or gap >= 2 * smallest
