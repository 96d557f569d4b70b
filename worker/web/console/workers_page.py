"""Workers: who is alive, what each holds, what the plan does with every lease, and the watchdog."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from scheduler.watchdog.check_states import CheckState, load_states
from worker.core.errors import RetryLater
from worker.operations.workers.group_view import GroupView, StreamView, done_up_to, look, reason
from worker.operations.workers.watchdog_view import WatchdogView, look_at_watchdog
from worker.store.repos.leases import Lease
from worker.store.repos.sessions import Session, SessionState
from worker.web.console.console import Console, LivePart
from worker.web.console.wording import Age, Badge, age_of, span

LEASES_SHOWN_MAX: Final = 500
OVERDUE: Final = timedelta(minutes=5)  # beyond its interval, at least: a pass takes a while


@dataclass(frozen=True, slots=True)
class SessionLine:
    session: Session
    badge: Badge
    leases: int
    heard: Age | None
    runs: int | None  # None: the lists are still being read


@dataclass(frozen=True, slots=True)
class LeaseLine:
    lease: Lease
    done_up_to: datetime | None
    age: Age | None
    plan: str


@dataclass(frozen=True, slots=True)
class CheckLine:
    state: CheckState
    badge: Badge
    every: str


async def workers_page(console: Console, request: Request) -> Response:
    now = console.context.clock.now()
    view = await look(console.context.tables)
    leases = [_lease_line(lease, each, now) for each in view.streams for lease in each.leases.values()]
    watchdog = await look_at_watchdog(console.context.tables, now)
    checks = await load_states(console.context.tables)
    return await console.page(
        request,
        "workers.html",
        now=now,
        live_part=LivePart("page", console.links.to("workers"), "", ""),
        sessions=_sessions(view, now, await _runs_held(console)),
        leases=leases[:LEASES_SHOWN_MAX],
        leases_total=len(leases),
        watchdog=watchdog,
        watchdog_badge=_watchdog_badge(watchdog),
        checks=[CheckLine(each, _check_badge(each, now), span(each.every)) for each in checks],
    )


async def _runs_held(console: Console) -> Mapping[str, int] | None:
    """Return how many active runs each session holds, as the lists know it; None while they are read."""
    live = console.context.live
    live.touch()
    if live.as_of is None:
        return None
    try:
        mirror = await live.fresh()
    except RetryLater:
        return None
    return Counter(run.owner for run in mirror.active.values())


def _lease_line(lease: Lease, view: StreamView, now: datetime) -> LeaseLine:
    at = done_up_to(lease)
    return LeaseLine(lease, at, None if at is None else age_of(at, now), reason(lease, view))


def _watchdog_badge(watchdog: WatchdogView) -> Badge:
    if watchdog.settled_up_to is None:
        return Badge("·", "has not run yet", "waiting")
    if watchdog.degraded:
        return Badge("!", "degraded", "failed")
    return Badge("✓", "works", "completed") if watchdog.is_sound is not False else Badge("!", "not sound", "stuck")


def _check_badge(check: CheckState, now: datetime) -> Badge:
    if check.problem:
        return Badge("✕", "failed", "failed")
    if now > check.next_at + max(check.every, OVERDUE):
        return Badge("!", "overdue", "stuck")
    return Badge("✓", "ran", "completed")


def _sessions(view: GroupView, now: datetime, held: Mapping[str, int] | None) -> Sequence[SessionLine]:
    """Return the living first, then those that ended lately."""
    lines = [
        SessionLine(
            each,
            _badge(each, now),
            view.held_by(each.id),
            age_of(each.heard_at, now) if each.heard_at else None,
            None if held is None else held.get(each.id, 0),
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
