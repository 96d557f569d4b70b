"""Workers: who is alive, what each holds, and what the plan does with every lease."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.operations.workers.group_view import GroupView, done_up_to, look, reason
from worker.store.repos.leases import Lease
from worker.store.repos.sessions import Session, SessionState
from worker.web.console.console import Console, LivePart
from worker.web.console.wording import Age, Badge, age_of

LEASES_SHOWN_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class SessionLine:
    session: Session
    badge: Badge
    leases: int
    heard: Age | None


@dataclass(frozen=True, slots=True)
class LeaseLine:
    lease: Lease
    done_up_to: datetime | None
    plan: str


async def workers_page(console: Console, request: Request) -> Response:
    now = console.context.clock.now()
    view = await look(console.context.tables)
    leases = [
        LeaseLine(lease, done_up_to(lease), reason(lease, each))
        for each in view.streams
        for lease in each.leases.values()
    ]
    return await console.page(
        request,
        "workers.html",
        now=now,
        live_part=LivePart("page", console.links.to("workers"), "", ""),
        sessions=_sessions(view, now),
        leases=leases[:LEASES_SHOWN_MAX],
        leases_total=len(leases),
    )


def _sessions(view: GroupView, now: datetime) -> Sequence[SessionLine]:
    """Return the living first, then those that ended lately."""
    lines = [
        SessionLine(
            each,
            _badge(each, now),
            view.held_by(each.id),
            age_of(each.heard_at, now) if each.heard_at else None,
        )
        for each in view.sessions
    ]
    return sorted(lines, key=lambda line: (not line.session.is_alive, line.session.id))


def _badge(session: Session, now: datetime) -> Badge:
    if session.state is SessionState.DEAD:
        return Badge("\u2013", "ended", "waiting")
    if session.silent_for(now):
        return Badge("!", "silent", "stuck")
    if session.state is SessionState.DRAINING:
        return Badge("■", "leaving", "running")
    return Badge("✓", "alive", "completed")
