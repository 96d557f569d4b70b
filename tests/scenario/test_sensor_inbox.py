"""The sensor inbox: what becomes of messages that come twice, late, out of order, at once, or broken."""

import asyncio
import json
from datetime import timedelta
from itertools import permutations
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from consumers.delivery.retry import RetryPolicy
from consumers.inbox.counts import InboxCounts, InboxSummary
from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.dead_letters import QueueDeadLetters, queue_letter_source
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import (
    DROP_BEFORE,
    NO_FAULT,
    Fault,
    Operation,
    RandomFaults,
    always,
    no_faults,
)
from tests.support.fakes.sqs import FakeQueue
from tests.support.worlds.inbox import InboxWorld, an_object, message, notification, over_bus, over_topic
from tests.support.worlds.stream import FULL_WAITS
from worker.core.errors import Rejected, RetryLater
from worker.core.model.keys import inbox_ledger_sk, inbox_pk
from worker.core.model.pipeline import PipelineId
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.inbox_ledger import InboxLedger, LedgerEntry
from worker.store.repos.sensors import Sensors
from worker.store.table import Put, TableName

KEY = "orders/2026-03-03/a.csv"
ENTRY = LedgerEntry("landing", KEY, "orders")
DELETED = "ObjectRemoved:Delete"


def created(etag: str, sequencer: str) -> dict[str, Any]:
    return notification(an_object(KEY, etag, sequencer))


def deleted(sequencer: str) -> dict[str, Any]:
    return notification(an_object(KEY, "", sequencer), name=DELETED)


# --- the ledger -------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_an_object_becomes_a_sensor_and_the_same_content_is_no_news() -> None:
    world = InboxWorld()

    await world.take_in(created("e1", "01"))
    written = world.tables.calls[Operation.COMMIT]
    await world.take_in(created("e1", "01"))
    await world.take_in(over_topic(over_bus(KEY, "e1", "01")))

    assert await world.sensor() == {"event": "created", "etag": "e1"}
    assert world.tables.calls[Operation.COMMIT] == written, "a repeat must write nothing"
    assert world.inbox.counts == InboxCounts(used=1, skipped=2)


@on_virtual_time
async def test_an_unchanged_object_that_is_written_again_leaves_its_sensor_alone() -> None:
    world = InboxWorld()
    await world.take_in(created("e1", "01"))
    await Sensors(world.tables).put(PipelineId("orders"), "export#2026-03-03", {"by": "a person"})

    await world.take_in(created("e1", "02"))

    assert await world.sensor() == {"by": "a person"}


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
@on_virtual_time
async def test_the_sequencer_decides_whatever_came_first(order: tuple[int, ...]) -> None:
    """The last thing that happened is a content that was there before: also then it must win."""
    world = InboxWorld()
    happened = [created("e1", "0A"), created("e2", "0B"), deleted("0C"), created("e1", "0C1")]

    for number in order:
        await world.take_in(happened[number])

    assert await world.sensor() == {"event": "created", "etag": "e1"}
    assert world.inbox.counts.seen == 4


@on_virtual_time
async def test_without_sequencers_the_last_to_come_counts() -> None:
    world = InboxWorld()

    await world.take_in(created("e2", ""))
    await world.take_in(created("e1", ""))

    assert await world.sensor() == {"event": "created", "etag": "e1"}


@on_virtual_time
async def test_an_object_without_an_etag_is_told_apart_by_its_time() -> None:
    world = InboxWorld()
    first, later = created("", "0A"), created("", "0B")
    later["Records"][0]["eventTime"] = "2026-03-03T12:00:01.000Z"

    for body in (first, first, later):
        await world.take_in(body)

    assert world.inbox.counts == InboxCounts(used=2, skipped=1)


@on_virtual_time
async def test_the_sensor_is_written_before_the_ledger_so_a_crash_between_tells_again() -> None:
    world = InboxWorld()
    faults = iter([NO_FAULT, DROP_BEFORE])

    def drop_second_commit(operation: Operation) -> Fault:
        return next(faults) if operation is Operation.COMMIT else NO_FAULT

    world.tables.choose = drop_second_commit
    with pytest.raises(RetryLater):
        await world.take_in(created("e1", "01"))

    assert await world.sensor() == {"event": "created", "etag": "e1"}
    assert await InboxLedger(world.tables).get(ENTRY) is None
    world.tables.choose = no_faults
    await world.take_in(created("e1", "01"))
    assert world.inbox.counts == InboxCounts(used=1)


@pytest.mark.parametrize("seed", range(20))
@on_virtual_time
async def test_workers_that_hear_of_one_object_at_once_leave_its_latest_sensor(seed: int) -> None:
    """Each call takes its own time, so that they meet between sensor and ledger in every way."""
    world = InboxWorld()
    happened = [created("e1", "0A"), created("e2", "0B"), created("e3", "0C"), created("e4", "0D")]
    world.tables.choose = RandomFaults(random=Random(seed), delay_max_s=1.0)

    async with asyncio.TaskGroup() as tasks:
        for body in happened:
            tasks.create_task(world.worker().handle(message(body)))

    known = await InboxLedger(world.tables).get(ENTRY)
    assert known is not None
    assert known.etag == "e4"
    assert await world.sensor() == {"event": "created", "etag": "e4"}


async def until_handled(world: InboxWorld, body: object, random: Random) -> None:
    """Deliver a message until it is done: again to the same worker while the store is away, or later to another."""
    worker, receipts = world.worker(), 1
    while True:
        try:
            return await worker.handle(message(body, receipts))
        except RetryLater:
            await world.clock.sleep(random.uniform(0.0, 2.0))
        if random.random() < 0.5:
            worker, receipts = world.worker(), receipts + 1


@pytest.mark.parametrize("seed", range(40))
@on_virtual_time
async def test_lost_requests_and_replies_leave_the_latest_sensor_too(seed: int) -> None:
    world, random = InboxWorld(), Random(seed)
    happened = [created("e1", "0A"), created("e2", "0B"), deleted("0C"), created("e3", "0D")]
    world.tables.choose = RandomFaults(random=random, delay_max_s=1.0, lost_requests=0.15, lost_replies=0.15)

    async with asyncio.TaskGroup() as tasks:
        for body in happened:
            tasks.create_task(until_handled(world, body, random))

    world.tables.choose = no_faults
    assert await world.sensor() == {"event": "created", "etag": "e3"}


@on_virtual_time
async def test_what_a_worker_wrote_over_before_it_died_is_put_right_when_its_message_comes_again() -> None:
    world = InboxWorld()
    await world.take_in(created("e2", "0B"))
    await Sensors(world.tables).put(PipelineId("orders"), "export#2026-03-03", {"event": "created", "etag": "e1"})

    await world.inbox.handle(message(created("e1", "0A"), receive_count=2))

    assert await world.sensor() == {"event": "created", "etag": "e2"}


@on_virtual_time
async def test_a_message_that_comes_again_after_it_was_noted_writes_nothing() -> None:
    world = InboxWorld()
    await world.take_in(created("e1", "0A"))
    await Sensors(world.tables).put(PipelineId("orders"), "export#2026-03-03", {"by": "a person"})

    await world.inbox.handle(message(created("e1", "0A"), receive_count=2))

    assert await world.sensor() == {"by": "a person"}


@on_virtual_time
async def test_a_ledger_entry_expires_and_then_the_object_is_news_again() -> None:
    world = InboxWorld()
    await world.take_in(created("e1", "01"))

    world.clock.step(timedelta(days=401))
    await world.take_in(created("e1", "01"))

    assert world.inbox.counts.used == 2


# --- rules ------------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_events_and_messages_become_sensors_too() -> None:
    world = InboxWorld()

    await world.take_in({"source": "acme.billing", "detail-type": "Closed", "detail": {"rows": 7, "share": 0.5}})
    await world.take_in(over_topic({"kind": "load", "table": "facts", "rows": 9}))

    assert await world.sensor("invoices", "books") == {"rows": 7, "share": pytest.approx(0.5)}
    assert await world.sensor("loads", "facts") == {"rows": 9}
    assert world.inbox.counts == InboxCounts(used=2)


@on_virtual_time
async def test_what_no_rule_is_about_is_counted_and_done() -> None:
    world = InboxWorld()

    await world.take_in(notification(an_object("other/a.csv")))
    await world.take_in({"source": "acme.shop", "detail-type": "Sold", "detail": {}})
    await world.take_in({"Service": "Amazon S3", "Event": "s3:TestEvent"})

    assert world.inbox.counts == InboxCounts(unmatched=2, skipped=1)


@on_virtual_time
async def test_a_record_that_cannot_be_used_does_not_keep_the_others_of_its_message() -> None:
    world = InboxWorld()

    with pytest.raises(Rejected, match=r"rule orders .*2026-13-99.* no period"):
        await world.take_in(notification(an_object("orders/2026-13-99/a.csv"), an_object(KEY)))

    assert await world.sensor() is not None
    assert world.inbox.counts == InboxCounts(used=1, failed=1)


# --- on a queue -------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_poison_is_kept_as_a_dead_letter_with_its_body_and_reason_and_holds_up_nobody() -> None:
    world = InboxWorld()
    queue = FakeQueue(world.clock)
    tries = RetryPolicy(world.clock, world.tables.ping, FULL_WAITS)
    letters = DeadLetters(world.tables)
    consumer = QueueConsumer(
        name="sensors",
        calls=queue,
        handle=world.inbox.handle,
        tries=tries,
        clock=world.clock,
        park=QueueDeadLetters("sensors", letters, tries, world.clock).park,
        pace=QueuePace(),
    )
    queue.send("no json")
    for number in range(20):
        queue.send(json.dumps(notification(an_object(f"orders/2026-03-{number + 1:02d}/a.csv"))))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(consumer.run())
        await world.clock.sleep(30)
        consumer.stop()

    [letter] = await letters.list(queue_letter_source("sensors"))
    body = await letters.body(letter)
    assert "not JSON" in letter.reason
    assert body is not None
    assert "no json" in str(body)
    assert (consumer.counts.done, consumer.counts.parked, len(queue)) == (20, 1, 0)
    assert world.inbox.counts == InboxCounts(used=20, failed=1)


@on_virtual_time
async def test_a_damaged_ledger_row_is_named_and_a_store_that_is_away_is_waited_for() -> None:
    world = InboxWorld()
    damaged = {"PK": inbox_pk("landing", KEY), "SK": inbox_ledger_sk("orders"), "etag": 7}
    await world.tables.commit(Put(TableName.CONTROL, damaged))

    with pytest.raises(Rejected, match="'etag' must be text"):
        await world.take_in(created("e1", "01"))

    world.tables.choose = always(DROP_BEFORE)
    with pytest.raises(RetryLater):
        await world.take_in(created("e1", "01"))
    assert world.inbox.counts == InboxCounts(failed=1), "what is tried again is counted when it ends"


# --- the summary ------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_line_a_minute_says_what_became_of_the_news_and_none_while_nothing_comes() -> None:
    world = InboxWorld()
    with capture_logs() as lines:
        summary = asyncio.create_task(InboxSummary(world.inbox.counts, world.clock).run())
        await world.take_in(created("e1", "01"))
        await world.take_in(created("e1", "01"))
        await world.take_in(notification(an_object("other/a.csv")))
        await world.clock.sleep(300)
        summary.cancel()

    [line] = [line for line in lines if line["event"] == "inbox.summary"]
    said = {name: line[name] for name in ("seen", "used", "skipped", "unmatched", "failed")}
    assert said == {"seen": 3, "used": 1, "skipped": 1, "unmatched": 1, "failed": 0}


@on_virtual_time
async def test_a_worker_that_ends_before_the_minute_is_over_says_what_became_of_the_rest() -> None:
    world = InboxWorld()
    with capture_logs() as lines:
        summary = asyncio.create_task(InboxSummary(world.inbox.counts, world.clock).run())
        await world.take_in(created("e1", "01"))
        await world.clock.sleep(70)
        await world.take_in(created("e2", "02"))
        await world.take_in(created("e2", "02"))
        await world.clock.sleep(10)
        summary.cancel()
        await asyncio.wait([summary])

    told = [(line["seen"], line["used"], line["skipped"]) for line in lines if line["event"] == "inbox.summary"]
    assert told == [(1, 1, 0), (2, 1, 1)]
