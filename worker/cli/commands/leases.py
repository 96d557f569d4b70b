"""`interlock leases`: show which worker holds which lease, its progress, and the planned moves."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated

import typer

from consumers.streams.shard_tree import is_ready
from worker.app.readers import role_of
from worker.cli.terminal.console import Screen, aligned, counted, shown_time, without_empty_columns
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, Exit, StoreAccess, StoreUrl, on_store
from worker.cli.terminal.worker_presence import absence_of_all
from worker.config.problems import advise
from worker.config.settings import GROUP
from worker.core.errors import ConfigError
from worker.core.membership.placement import Plan, plan, weight
from worker.core.model.keys import SessionId, instant
from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.membership.lease_coordinator import Siblings, stakes
from worker.store.repos.leases import Lease, Leases, LeaseStatus
from worker.store.repos.sessions import Session, Sessions, SessionState
from worker.store.rows import optional_instant_text
from worker.store.table import Tables

# Positions of feeds and shards end with the time of the last record before them.
_TIME = re.compile(r"[@~](\d{13})$")
HEADINGS = ("shard", "state", "holder", "epoch", "done up to", "records/s", "plan")


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

    def absence(self, now: datetime) -> str | None:
        """Return why no worker seems to be running that can hold leases; None if one is."""
        return absence_of_all((each for each in self.sessions if each.state is SessionState.LIVE), now)

    def held_by(self, session: SessionId) -> int:
        return sum(lease.owner == session for each in self.streams for lease in each.leases.values())


async def run_leases(screen: Screen, access: StoreAccess, stream: str | None, *, as_json: bool) -> int:
    """Show sessions and leases. Return exit code 1 if no worker is running that can hold them."""
    now = access.clock.now()
    async with access.tables() as tables:
        view = await look(tables)
    known = [each.stream for each in view.streams]
    if stream is not None and stream not in known:
        hint = advise(stream, known, kind="there are leases of") or "a worker makes them when it starts"
        raise ConfigError(f"there is no lease of {stream!r}; {hint}")
    shown = [each for each in view.streams if stream in {None, each.stream}]
    if as_json:
        for record in records(view, shown):
            screen.record(record)
    else:
        _show(screen, view, shown, now)
    return Exit.PROBLEMS if view.absence(now) else Exit.DONE


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
    planned = plan(stakes(leases, is_ready, lambda session: session not in alive), takers)
    return StreamView(stream=stream, leases=leases, plan=planned, alive=alive)


def reason(lease: Lease, view: StreamView) -> str:
    """Return what the plan does with a lease, and why."""
    if lease.status is LeaseStatus.DONE:
        return f"read to its end, followed by {', '.join(sorted(lease.children)) or 'nothing'}"
    if not is_ready(lease, view.leases):
        unread = sorted(parent for parent in lease.parents if not _is_done(view.leases.get(parent)))
        return f"waits for {', '.join(unread)}"
    if lease.owner not in view.alive:
        cause = "nobody holds it" if lease.owner is None else "its holder is gone"
        taker = view.plan.takes.get(lease.shard)
        return f"{cause}: {_nobody_for(view.stream) if taker is None else f'{taker} carries least and takes it'}"
    if lease.wanted_by is not None:
        return f"is handed to {lease.wanted_by}"
    if lease.shard in view.plan.moves:
        heavier, lighter = _load(lease.owner, view), _load(view.plan.moves[lease.shard], view)
        return f"moves to {view.plan.moves[lease.shard]}, which carries {lighter} against {heavier}"
    return "stays" if lease.status is LeaseStatus.OPEN else "is read to its end, and waits to hear what follows it"


def done_up_to(lease: Lease) -> datetime | None:
    """Return the time of the last record that is done; None if the lease's position does not hold it."""
    found = None if lease.checkpoint is None else _TIME.search(lease.checkpoint)
    at = None if found is None else instant(int(found[1]))
    return None if at is None or at.year == instant(0).year else at


def records(view: GroupView, shown: Sequence[StreamView]) -> list[Mapping[str, Json]]:
    sessions: list[Mapping[str, Json]] = [
        {
            "type": "session",
            "id": session.id,
            "state": session.state.value,
            "beat": session.beat,
            "duties": sorted(session.duties),
            "heardAt": optional_instant_text(session.heard_at),
        }
        for session in view.sessions
    ]
    return sessions + [_record(lease, each) for each in shown for lease in each.leases.values()]


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


def _show(screen: Screen, view: GroupView, shown: Sequence[StreamView], now: datetime) -> None:
    for session in view.sessions:
        duties = f", does {', '.join(sorted(session.duties))}" if session.duties else ""
        held = counted(view.held_by(session.id), "lease")
        heard = f", heard of {_age(now - session.heard_at)} ago" if session.heard_at else ""
        screen.line(f"{session.id}  {session.state.value.lower()}{heard}, holds {held}{duties}")
    if absence := view.absence(now):
        screen.line(f"{absence}. Start one with `interlock run`.", style="red")
    for each in shown:
        screen.line("")
        screen.line(each.stream, style="bold")
        rows = [HEADINGS, *(_cells(lease, each, now) for lease in each.leases.values())]
        for line in aligned(without_empty_columns(rows)):
            screen.line(f"  {line}")


def _cells(lease: Lease, view: StreamView, now: datetime) -> tuple[str, ...]:
    at = done_up_to(lease)
    return (
        lease.shard,
        lease.status.value.lower(),
        lease.owner or "",
        str(lease.epoch),
        "" if at is None else f"{shown_time(at)} ({_age(now - at)} ago)",
        str(lease.rate) if lease.rate else "",
        reason(lease, view),
    )


def _age(age: timedelta) -> str:
    """Return an age in whole seconds; a negative age, which clocks that differ can give, becomes 0."""
    return format_duration(timedelta(seconds=max(age, timedelta()) // timedelta(seconds=1)))


def _is_done(lease: Lease | None) -> bool:
    return lease is not None and lease.status is LeaseStatus.DONE


def _nobody_for(stream: str) -> str:
    duty = role_of(stream)
    return f"no worker with the role {duty} is running" if duty else "no worker is running"


def _load(session: SessionId | None, view: StreamView) -> int:
    return sum(weight(lease.rate) for lease in view.leases.values() if lease.owner == session)


leases_app = typer.Typer()

LEASES_HELP = f"""Show workers, their leases and how far each has read.

Leases are shards of streams, change feeds, groups of active runs, and duties that one worker has at a time. All \
workers make the same plan from the same rows; `plan` says what it does about each lease, and why. "Done up to" is the \
time of the last record that is done: while nothing comes it grows old, and that is no lag. Where workers have \
different duties, a lease goes to those that have its duty.

\b
Examples:
  interlock leases
  interlock leases stream.control
  interlock leases --json | jq 'select(.type == "lease" and .holder == null)'

{EXIT_CODES}"""


@leases_app.command(help=LEASES_HELP)
def leases(
    context: typer.Context,
    stream: Annotated[str | None, typer.Argument(metavar="STREAM", help="Only the leases of one stream.")] = None,
    *,
    store: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    on_store(context, store, lambda screen, at: run_leases(screen, at, stream, as_json=as_json))
