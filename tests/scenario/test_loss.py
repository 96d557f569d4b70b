"""Records that were gone before they were read: people are told once, whoever notices it and when."""

from datetime import timedelta

from consumers.streams.resync import tell_loss
from consumers.streams.source import Gap, Position
from tests.support.clock.manual import NOON, ManualClock
from worker.core.model.events import EventType
from worker.store.repos.events import Events
from worker.store.sqlite.tables import SqliteTables


def gap(*, asked: str, minutes: int) -> Gap:
    """A gap that is noticed so many minutes after noon."""
    at = NOON + timedelta(minutes=minutes)
    return Gap("feed.control", asked=Position(asked), resume_at=Position("9"), since=None, noticed_at=at)


async def test_a_gap_that_is_noticed_again_by_a_successor_is_not_told_again() -> None:
    tables = SqliteTables.in_memory(ManualClock())
    await tables.start()

    await tell_loss(tables, gap(asked="1", minutes=0))
    await tell_loss(tables, gap(asked="1", minutes=7))
    await tell_loss(tables, gap(asked="2", minutes=8))

    span = (NOON - timedelta(hours=1), NOON + timedelta(hours=1))
    told = [each async for each in Events(tables).of_type(EventType.DATA_LOSS_SUSPECTED, *span)]
    assert [each.event.detail["from"] for each in told] == ["1", "2"]
    await tables.stop()
