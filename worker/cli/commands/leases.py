"""`interlock leases`: show which worker holds which lease, its progress, and the planned moves."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import typer

from worker.cli.terminal.console import Screen, aligned, counted, shown_time, without_empty_columns
from worker.cli.terminal.store_access import EXIT_CODES, AsJson, StoreUrl, on_store
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.cli.terminal.worker_presence import absence_of_all
from worker.config.problems import advise
from worker.core.errors import ConfigError
from worker.core.time.durations import format_duration
from worker.operations.workers.group_view import (
    GroupView,
    StreamView,
    done_up_to,
    lease_records,
    look,
    reason,
    session_records,
)
from worker.store.repos.leases import Lease
from worker.store.repos.sessions import SessionState

HEADINGS = ("shard", "state", "holder", "epoch", "done up to", "records/s", "plan")


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
        for record in [*session_records(view), *lease_records(shown)]:
            screen.record(record)
    else:
        _show(screen, view, shown, now)
    return Exit.PROBLEMS if _absence(view, now) else Exit.DONE


def _absence(view: GroupView, now: datetime) -> str | None:
    """Return why no worker seems to be running that can hold leases; None if one is."""
    return absence_of_all((each for each in view.sessions if each.state is SessionState.LIVE), now)


def _show(screen: Screen, view: GroupView, shown: Sequence[StreamView], now: datetime) -> None:
    for session in view.sessions:
        roles = f", roles: {', '.join(sorted(session.roles))}" if session.roles else ""
        held = counted(view.held_by(session.id), "lease")
        heard = f", last heartbeat {_age(now - session.heard_at)} ago" if session.heard_at else ""
        screen.line(f"{session.id}  {session.state.value.lower()}{heard}, holds {held}{roles}")
    if absence := _absence(view, now):
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


leases_app = typer.Typer()

LEASES_HELP = f"""Show workers, their leases and how far each has read.

A lease is the exclusive right to a shard of a stream, a change feed, a group of active runs, or a task of one worker. \
All workers compute the same plan from the same rows; `plan` shows what happens to each lease, and why. \
"Done up to" is the time of the last record handled; its age is no lag while no records arrive. If workers have \
different roles, only those with the role of a lease take it.

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
