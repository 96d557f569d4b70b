"""The inbox's ledger, on every backend."""

from dataclasses import replace
from decimal import Decimal

import pytest

from tests.support.clock.manual import ManualClock
from worker.core.model.pipeline import PipelineId
from worker.store.repos.delivery.inbox_ledger import InboxLedger, Known, LedgerEntry, SensorReport
from worker.store.retention import INBOX
from worker.store.table import StaleWrite, Tables

ENTRY = LedgerEntry("landing", "orders/" + "é" * 500, "orders")  # as long as a key may be in S3
REPORT = SensorReport(PipelineId("orders"), "export#2026-03-03", {"rows": 7, "share": Decimal("0.5"), "parts": ["a"]})
FIRST = Known(etag="e1", sequencer="0A", report=REPORT)


async def test_what_is_known_comes_back_whole(tables: Tables, clock: ManualClock) -> None:
    ledger = InboxLedger(tables)
    assert await ledger.get(ENTRY) is None

    await ledger.move(ENTRY, None, FIRST, clock.now())
    await ledger.move(replace(ENTRY, rule="other"), None, Known(etag="e2"), clock.now())

    assert await ledger.get(ENTRY) == FIRST
    assert await ledger.get(replace(ENTRY, rule="other")) == Known(etag="e2", report=None)


async def test_whoever_has_not_seen_the_last_move_cannot_move(tables: Tables, clock: ManualClock) -> None:
    ledger = InboxLedger(tables)
    await ledger.move(ENTRY, None, FIRST, clock.now())
    seen = await ledger.get(ENTRY)
    await ledger.move(ENTRY, seen, replace(FIRST, etag="e2"), clock.now())

    for outdated in (seen, None):
        with pytest.raises(StaleWrite):
            await ledger.move(ENTRY, outdated, replace(FIRST, etag="e3"), clock.now())

    now = await ledger.get(ENTRY)
    assert now is not None
    assert now.etag == "e2"


async def test_only_what_is_missing_is_added(tables: Tables, clock: ManualClock) -> None:
    ledger = InboxLedger(tables)
    entries = [replace(ENTRY, key=f"k{number}") for number in range(3)]
    await ledger.move(entries[1], None, FIRST, clock.now())

    assert await ledger.missing(entries) == [entries[0], entries[2]]
    assert [await ledger.add(entry, Known(etag="e9"), clock.now()) for entry in entries] == [True, False, True]
    assert await ledger.get(entries[1]) == FIRST
    assert await ledger.missing(entries) == []


async def test_an_entry_is_forgotten_in_time_and_can_be_made_anew(tables: Tables, clock: ManualClock) -> None:
    ledger = InboxLedger(tables)
    await ledger.move(ENTRY, None, FIRST, clock.now())

    clock.advance(INBOX)

    assert await ledger.get(ENTRY) is None
    assert await ledger.missing([ENTRY]) == [ENTRY]
    assert await ledger.add(ENTRY, Known(etag="e2"), clock.now())


@pytest.mark.parametrize(
    ("mine", "theirs", "is_later"),
    [("0B", "0A", True), ("0A", "0B", False), ("0A", "0A", False), ("", "0A", True), ("0A", "", True), ("", "", True)],
)
def test_the_later_one_is_told_by_its_sequencer_and_else_by_who_came_last(
    mine: str, theirs: str, *, is_later: bool
) -> None:
    assert Known(etag="a", sequencer=mine).is_later_than(Known(etag="b", sequencer=theirs)) is is_later
