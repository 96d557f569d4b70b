"""Alerts that are told in one word, by two watchdogs at once."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from scheduler.watchdog.alerts import Alert, Alerts
from tests.support.clock.manual import NOON, ManualClock
from tests.support.worlds.engine import ORDERS, run_key
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.store.repos.events import Events
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Write


class OvertakenTables(SqliteTables):
    """A store on which somebody else is quicker, once."""

    before_commit: Callable[[], Awaitable[None]] | None = None

    async def commit(self, *writes: Write) -> None:
        overtake, self.before_commit = self.before_commit, None
        if overtake is not None:
            await overtake()
        await super().commit(*writes)


def missed(days: int) -> Sequence[Alert]:
    tell = EmitEvent(type=EventType.SCHEDULE_MISSED, message="it did not begin")
    return [
        Alert(key=run_key(f"2026-02-{day:02d}"), due_at=NOON + timedelta(hours=day - 24), tell=tell)
        for day in range(1, days + 1)
    ]


async def test_of_two_watchdogs_that_tell_at_once_the_later_tells_what_the_other_did_not_know() -> None:
    tables = OvertakenTables.in_memory(ManualClock())
    assert isinstance(tables, OvertakenTables)
    one, other = Alerts(tables, ManualClock()), Alerts(tables, ManualClock())
    tables.before_commit = lambda: other.tell(missed(5))

    await one.tell(missed(10))

    told = await Events(tables).latest(ORDERS, limit=10)
    assert sorted(str(stored.event.detail["last"]) for stored in told) == [
        str(alert.key).partition("/")[2] for alert in (missed(5)[-1], missed(10)[-1])
    ]
    assert [stored.event.detail["count"] for stored in told] == [5, 5]
