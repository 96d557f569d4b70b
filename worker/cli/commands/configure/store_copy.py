"""`interlock store copy`: move an installation from one store to another."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Final

from worker.cli.terminal.console import Screen, counted
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.config.settings import read_settings
from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError
from worker.operations.store_copy import CopyProgress, CopySummary, StoreCopy
from worker.runtime.clock import Clock
from worker.store.backends.open import open_tables, opened_whole
from worker.store.repos.sessions import Sessions

REPORT_EVERY: Final = 20  # pages


async def run_copy(screen: Screen, clock: Clock, source: str, target: str, *, resent: timedelta, as_json: bool) -> int:
    """Copy a store, and report how many rows were verified. Raises `ConfigError` if a worker is alive."""
    urls = [read_settings({}, store=url).store for url in (source, target)]
    places = [StoreAccess(url=url, clock=clock).admin for url in urls]
    if places[0].place == places[1].place:
        raise ConfigError(f"{places[0].place} cannot be copied to itself; name another target")
    await places[0].require_ready()
    await places[1].init(may_create=False)
    async with AsyncExitStack() as stack:
        opened = [open_tables(url, clock) for url in urls]
        for tables in opened:
            await tables.start()
            stack.push_async_callback(tables.stop)
        rows = [await stack.enter_async_context(opened_whole(url, clock)) for url in urls]
        copy = StoreCopy(
            source_name=places[0].place,
            source=rows[0],
            target_rows=rows[1],
            target=opened[1],
            groups=[Sessions(tables, GROUP) for tables in opened],
            clock=clock,
            resent=resent,
            report=_reporting(screen, as_json=as_json),
        )
        summary = await copy.run(read_settings({}).timing.kill_s)
    _show(screen, places[0].place, places[1].place, summary, as_json=as_json)
    return Exit.DONE


def _reporting(screen: Screen, *, as_json: bool) -> Callable[[CopyProgress], None]:
    pages = 0

    def report(progress: CopyProgress) -> None:
        nonlocal pages
        pages += 1
        if not as_json and pages % REPORT_EVERY == 0:
            screen.remark(f"{counted(progress.rows, 'row')} copied, now {progress.table}")

    return report


def _show(screen: Screen, source: str, target: str, summary: CopySummary, *, as_json: bool) -> None:
    total = sum(summary.rows.values())
    if as_json:
        rows = {table.value: count for table, count in summary.rows.items()}
        screen.record(
            {"type": "copy", "from": source, "to": target, "rows": rows, "total": total, "expired": summary.expired}
        )
        return
    parts = ", ".join(f"{count:,} {table}" for table, count in summary.rows.items())
    done = "was complete already" if summary.is_repeat else "is complete"
    screen.line(f"the copy of {source} to {target} {done}: {counted(total, 'row')} verified ({parts})")
    if summary.expired:
        screen.line(f"{counted(summary.expired, 'expired row')} left behind")
    screen.line("start workers on the new store only, and remove the old one once you no longer need it")
