"""Whether anybody is there to do what a command shows or asks for."""

from collections.abc import Iterable
from datetime import datetime

from worker.cli.terminal.console import Screen, passed
from worker.config.settings import GROUP
from worker.store.repos.sessions import Session, Sessions
from worker.store.table import Tables


async def warn_if_no_live_worker(screen: Screen, tables: Tables, now: datetime) -> None:
    """Say so if no worker is there: everything may be in order, and nothing will happen all the same."""
    if absence := absence_of_all(await Sessions(tables, GROUP).list(), now):
        screen.remark(f"{absence}, so nothing happens until one comes: `interlock run`", "yellow")


def absence_of_all(sessions: Iterable[Session], now: datetime) -> str | None:
    """Why nobody seems to be there; None if somebody is. The last worker that was killed leaves its row as it was."""
    registered = [session for session in sessions if session.is_alive]
    if not registered:
        return "no worker is there"
    silence = min(session.silent_for(now) for session in registered)
    return f"no worker was heard of for {passed(silence)}" if silence else None
