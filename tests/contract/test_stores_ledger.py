"""Record ledgers, on every backend."""

import asyncio
import uuid

import pytest

from tests.support.clock.manual import ManualClock
from worker.core.errors import Rejected
from worker.core.ledger.hold import LedgerHeld, LedgerHolder, LedgerRecord, RecordChanges
from worker.operations.operator_actions import Requester
from worker.operations.record_ledgers import RecordLedgers
from worker.store.table import Tables

FIRST, SECOND, OTHER = LedgerHolder("run", 1), LedgerHolder("run", 2), LedgerHolder("other", 1)


def records(count: int, content_hash: str = "h") -> list[LedgerRecord]:
    return [LedgerRecord(f"id-{number:04d}/é", content_hash) for number in range(count)]


@pytest.fixture
def name() -> str:
    """A ledger of the test's own: backends may keep their tables from one test to the next."""
    return f"l{uuid.uuid4().hex}"


@pytest.fixture
def ledgers(tables: Tables, clock: ManualClock) -> RecordLedgers:
    return RecordLedgers(tables, clock)


async def test_what_is_saved_is_unchanged_until_its_hash_changes(ledgers: RecordLedgers, name: str) -> None:
    await ledgers.take(name, FIRST)
    assert (await ledgers.diff(name, records(250))).counts == RecordChanges(new=250)

    assert await ledgers.commit(name, FIRST, records(250)) == RecordChanges(new=250)
    assert await ledgers.commit(name, FIRST, records(250)) == RecordChanges(unchanged=250)

    found = await ledgers.diff(name, [*records(249), LedgerRecord("id-0249/é", "new")])
    assert (found.is_changed.count(True), found.is_changed[-1]) == (1, True)
    assert (await ledgers.head(name)).records == 250
    assert await ledgers.get(name, "id-0249/é") == LedgerRecord("id-0249/é", "h")


async def test_an_older_attempt_cannot_overwrite_a_newer_one(ledgers: RecordLedgers, name: str) -> None:
    await ledgers.take(name, FIRST)
    await ledgers.take(name, SECOND)
    await ledgers.commit(name, SECOND, records(3, "new"))

    with pytest.raises(LedgerHeld):
        await ledgers.commit(name, FIRST, records(3, "old"))
    with pytest.raises(LedgerHeld):
        await ledgers.take(name, FIRST)

    assert (await ledgers.diff(name, records(3, "new"))).counts == RecordChanges(unchanged=3)


async def test_attempts_that_save_at_the_same_time_leave_the_newer_ones_records(
    ledgers: RecordLedgers, name: str
) -> None:
    await ledgers.take(name, FIRST)

    async def newer() -> None:
        await ledgers.take(name, SECOND)
        await ledgers.commit(name, SECOND, records(200, "new"))

    older = asyncio.create_task(ledgers.commit(name, FIRST, records(200, "old")))
    await newer()
    outcome = (await asyncio.gather(older, return_exceptions=True))[0]

    assert isinstance(outcome, LedgerHeld | RecordChanges)
    assert (await ledgers.diff(name, records(200, "new"))).counts == RecordChanges(unchanged=200)
    assert (await ledgers.head(name)).records == 200


async def test_a_seed_saves_what_is_missing_and_nothing_else(ledgers: RecordLedgers, name: str) -> None:
    await ledgers.commit(name, FIRST, records(2, "processed"))

    assert await ledgers.seed(name, records(5, "seeded")) == RecordChanges(new=3, unchanged=2)
    assert await ledgers.seed(name, records(5, "seeded")) == RecordChanges(unchanged=5)

    head = await ledgers.head(name)
    assert (head.records, head.holder) == (5, FIRST)
    assert await ledgers.get(name, "id-0000/é") == LedgerRecord("id-0000/é", "processed")


async def test_all_records_are_listed_once_and_can_be_cleared(ledgers: RecordLedgers, name: str) -> None:
    await ledgers.seed(name, records(130))
    found, after = list[str](), ""
    while (page := await ledgers.page(name, after, 7)).records:
        found += [each.id for each in page.records]
        after = page.next

    assert sorted(found) == [each.id for each in records(130)]
    await ledgers.take(name, FIRST)
    assert await ledgers.clear(name, "a test", Requester(name="mia", via="test")) == 130
    assert (await ledgers.head(name)).records == 0
    with pytest.raises(LedgerHeld, match="cleared by mia"):
        await ledgers.commit(name, FIRST, records(1))
    await ledgers.take(name, OTHER)
    assert (await ledgers.diff(name, records(130))).counts == RecordChanges(new=130)


async def test_a_name_that_is_none_is_refused(ledgers: RecordLedgers) -> None:
    for name in ("", "A", "a b", "a#1", "x" * 65):
        with pytest.raises(Rejected, match="is no name of a ledger"):
            await ledgers.head(name)
