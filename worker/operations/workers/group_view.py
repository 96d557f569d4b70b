"""Reads the workers of a group, their leases and progress, and the plan that every worker makes."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from consumers.streams.shard_tree import is_ready
from worker.config.lease_roles import role_of
from worker.config.store_setting import GROUP
from worker.core.membership.placement import Plan, plan, weight
from worker.core.model.keys import SessionId, instant
from worker.core.model.values import Json
from worker.membership.lease_coordinator import Siblings, stakes
from worker.store.repos.leases import Lease, Leases, LeaseStatus
from worker.store.repos.sessions import Session, Sessions, SessionState
from worker.store.rows import optional_instant_text
from worker.store.table import Tables

# Positions of feeds and shards end with the time of the last record before them.
_TIME = re.compile(r"[@~](\d{13})$")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamView:
    """StreamView holds the leases of one stream, and the plan that all workers make for them."""

    stream: str
    leases: Siblings
    plan: Plan
    alive: frozenset[SessionId]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    sessions: Sequence[Session]
    streams: Sequence[StreamView]

    def held_by(self, session: SessionId) -> int:
        return sum(lease.owner == session for each in self.streams for lease in each.leases.values())


async def look(tables: Tables) -> GroupView:
    """Read leases and sessions as a worker does, and make the plan that every worker makes."""
    leases, sessions = await Leases(tables, GROUP).list(), await Sessions(tables, GROUP).list()
    by_stream: dict[str, dict[str, Lease]] = defaultdict(dict)
    for lease in leases:
        by_stream[lease.stream][lease.shard] = lease
    return GroupView(
        sessions=sessions, streams=[_view(name, siblings, sessions) for name, siblings in sorted(by_stream.items())]
    )


def _view(stream: str, leases: Siblings, sessions: Sequence[Session]) -> StreamView:
    alive = frozenset(session.id for session in sessions if session.is_alive)
    takers = [each.id for each in sessions if each.state is SessionState.LIVE and each.does(role_of(stream))]
    loads = {each.id: each.load for each in sessions}
    planned = plan(stakes(leases, is_ready, lambda session: session not in alive), takers, loads)
    return StreamView(stream=stream, leases=leases, plan=planned, alive=alive)


def reason(lease: Lease, view: StreamView) -> str:
    """Return what the plan does with a lease, and why."""
    if lease.status is LeaseStatus.DONE:
        return f"read to its end, followed by {', '.join(sorted(lease.children)) or 'nothing'}"
    if not is_ready(lease, view.leases):
        unread = sorted(parent for parent in lease.parents if not _is_done(view.leases.get(parent)))
        return f"waits for {', '.join(unread)}"
    if lease.owner not in view.alive:
        cause = "no worker holds it" if lease.owner is None else "its holder is gone"
        taker = view.plan.takes.get(lease.shard)
        return f"{cause}: {_nobody_for(view.stream) if taker is None else f'{taker} has the least load and takes it'}"
    if lease.wanted_by is not None:
        return f"is being handed to {lease.wanted_by}"
    if lease.shard in view.plan.moves:
        heavier, lighter = _load(lease.owner, view), _load(view.plan.moves[lease.shard], view)
        return f"moves to {view.plan.moves[lease.shard]}, whose load is {lighter}, not {heavier}"
    return "stays" if lease.status is LeaseStatus.OPEN else "read to its end; waits for its child shards"


def done_up_to(lease: Lease) -> datetime | None:
    """Return the time of the last record that is done; None if the lease's position does not hold it."""
    found = None if lease.checkpoint is None else _TIME.search(lease.checkpoint)
    at = None if found is None else instant(int(found[1]))
    return None if at is None or at.year == instant(0).year else at


def session_records(view: GroupView) -> list[Mapping[str, Json]]:
    return [
        {
            "type": "session",
            "id": session.id,
            "state": session.state.value,
            "beat": session.beat,
            "duties": sorted(session.roles),
            "heardAt": optional_instant_text(session.heard_at),
        }
        for session in view.sessions
    ]


def lease_records(shown: Sequence[StreamView]) -> list[Mapping[str, Json]]:
    return [_record(lease, each) for each in shown for lease in each.leases.values()]


def _record(lease: Lease, view: StreamView) -> Mapping[str, Json]:
    return {
        "type": "lease",
        "stream": lease.stream,
        "shard": lease.shard,
        "status": lease.status.value,
        "holder": lease.owner,
        "epoch": lease.epoch,
        "checkpoint": lease.checkpoint,
        "doneUpTo": optional_instant_text(done_up_to(lease)),
        "rate": lease.rate,
        "weight": weight(lease.rate),
        "parents": sorted(lease.parents),
        "children": sorted(lease.children),
        "wantedBy": lease.wanted_by,
        "deaths": lease.ordeal.deaths if lease.ordeal.at == lease.checkpoint else 0,
        "plan": reason(lease, view),
    }


def _is_done(lease: Lease | None) -> bool:
    return lease is not None and lease.status is LeaseStatus.DONE


def _nobody_for(stream: str) -> str:
    role = role_of(stream)
    return f"no worker with the role {role} is running" if role else "no worker is running"


def _load(session: SessionId | None, view: StreamView) -> int:
    return sum(weight(lease.rate) for lease in view.leases.values() if lease.owner == session)
