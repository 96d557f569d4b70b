"""Warn if no worker is running that would process what a command shows or requests."""

from collections.abc import Iterable
from datetime import datetime

from worker.cli.terminal.console import Screen, passed
from worker.config.store_setting import GROUP
from worker.store.repos.sessions import Session, Sessions
from worker.store.table import Tables


async def warn_if_no_live_worker(screen: Screen, tables: Tables, now: datetime) -> None:
    """Warn if no worker is running, because nothing that was requested happens without one."""
    if absence := absence_of_all(await Sessions(tables, GROUP).list(), now):
        screen.remark(f"{absence}. Start one with `interlock run`; until then nothing is processed.", "yellow")


def absence_of_all(sessions: Iterable[Session], now: datetime) -> str | None:
    """Return why no worker seems to be running; None if one is.

    A worker that was killed leaves its session row behind, so its last heartbeat counts.
    """
    registered = [session for session in sessions if session.is_alive]
    if not registered:
        return "No worker is running on this store"
    silence = min(session.silent_for(now) for session in registered)
    return f"No worker has sent a heartbeat for {passed(silence)}" if silence else None
