"""A world is at rest only once its workers have taken note of every input: handled, or seen in the rows instead."""

import pytest

from consumers.streams.consumer import SHARD, Beginning, Subscription
from consumers.streams.embedded.feed import FeedPosition, feed_name
from consumers.streams.source import Gap
from tests.simulation.ledger import FeedLedger
from tests.simulation.target import world_time
from tests.simulation.violations import Verdicts
from tests.support.clock.virtual_time import run as on_virtual_loop
from worker.core.model import keys
from worker.engine.intake.router import is_input
from worker.store.table import Change, ChangeKind, Key, TableName, Update


@pytest.fixture
def ledger() -> FeedLedger:
    async def opened() -> FeedLedger:
        return FeedLedger(Verdicts.open())

    return on_virtual_loop(opened())


def test_an_input_is_unread_until_it_is_handled(ledger: FeedLedger) -> None:
    late = sensor(7)
    assert ledger.unread([late]) == [late]

    handle(ledger, late)

    assert ledger.unread([late]) == []


def test_a_report_in_the_job_log_is_an_input_too(ledger: FeedLedger) -> None:
    report = changed(7, "JOB#stream#2026-03-04T01#1772586935095", TableName.JOBLOG)
    checkpoint(ledger, 9)  # of the other table's reader

    assert ledger.unread([report]) == [report]


def test_what_workers_write_for_themselves_is_no_input(ledger: FeedLedger) -> None:
    assert ledger.unread([changed(7, "SLA#stream#2026-03-04T01")]) == []


def test_what_was_there_before_the_first_reader_is_read_once_it_has_looked_at_the_rows(ledger: FeedLedger) -> None:
    early, late = sensor(7), sensor(8)

    checkpoint(ledger, 7)

    assert ledger.unread([early, late]) == [late]


def test_a_record_that_the_feed_forgot_is_unread_until_a_reader_has_looked_at_the_rows(ledger: FeedLedger) -> None:
    first, second = sensor(7), sensor(8)
    ledger.trimmed([first])
    ledger.trimmed([second])
    assert ledger.unread([]) == [first, second]

    checkpoint(ledger, 8)

    assert ledger.unread([]) == []


def test_a_forgotten_record_that_a_reader_had_in_hand_is_read_once_it_is_handled(ledger: FeedLedger) -> None:
    taken = sensor(7)
    ledger.trimmed([taken])

    handle(ledger, taken)

    assert ledger.unread([]) == []


def sensor(position: int) -> Change:
    return changed(position, f"{keys.SENSOR}ready")


def changed(position: int, sk: str, table: TableName = TableName.CONTROL) -> Change:
    key = Key(keys.pipeline_pk("p02"), sk)
    return Change(position=position, table=table, key=key, kind=ChangeKind.MODIFY, image=None, at=world_time(0))


def handle(ledger: FeedLedger, change: Change) -> None:
    async def done(_: Change) -> None:
        return

    async def caught_up(_: Gap | None) -> None:
        return

    asked = Subscription(wants=is_input, lane_of=str, handle=done, catch_up=caught_up, begin=Beginning.NEWEST)
    watched = ledger.watched(change.table, asked)

    async def deliver() -> None:
        assert watched.wants(change)
        await watched.handle(change)

    on_virtual_loop(deliver())


def checkpoint(ledger: FeedLedger, number: int) -> None:
    """Store how far the reader of the control table is."""
    lease = Key("any group", keys.lease_sk(feed_name(TableName.CONTROL), SHARD))
    position = FeedPosition(number, world_time(0)).text()
    ledger.committed([Update(table=TableName.CONTROL, key=lease, set={"cp": position})])
