"""Whether anybody is there to do what a command shows or asks for."""

from worker.cli.console import Screen
from worker.settings import GROUP
from worker.store.sessions import Sessions
from worker.store.table import Tables


async def remark_if_nobody_works(screen: Screen, tables: Tables) -> None:
    """Say so if no worker is registered: everything may be in order, and nothing will happen all the same."""
    if not any(session.is_alive for session in await Sessions(tables, GROUP).list()):
        screen.remark("no worker is registered, so nothing happens until one is: `interlock run`", "yellow")
