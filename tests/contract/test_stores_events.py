"""Events on every backend: kept whole and once, and every reader gets them all."""

from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from tests.contract.storevalues import NOW, SECOND, a_name, a_pipeline
from worker.core.model import keys
from worker.core.model.events import Event
from worker.operations.runs.events import EventReader
from worker.store.repos import events
from worker.store.repos.delivery.threads import ThreadKey, Threads
from worker.store.repos.events import Events, StoredEvent
from worker.store.table import Put, TableName, Tables
from worker.store.tail import LOOK_BACK, Tail


def an_event(event_id: str = "e1", at: datetime = NOW, **changes: str | int) -> Event:
    return replace(Event(id=event_id, type="JOB_FAILED", at=at), **changes)  # pyright: ignore[reportArgumentType]


async def test_an_event_is_kept_whole(tables: Tables) -> None:
    detail = {"runId": "jr_1", "counts": [1, Decimal("0.1")], "nested": {"empty": "", "none": None}, "big": 10**20}
    event = Event(
        id="e1",
        type="POST_RUN_DRIFT",
        at=NOW,
        pipeline=a_pipeline(),
        schedule="cron",
        period="2026-03-03",
        message="drift",
        detail=detail,
    )

    await tables.commit(events.event_write(event))

    assert await Events(tables).latest(event.pipeline) == [StoredEvent(event, out=True)]


async def test_two_events_of_one_type_and_millisecond_are_both_kept(tables: Tables) -> None:
    pipeline = a_pipeline()

    await tables.commit(*(events.event_write(an_event(event_id, pipeline=pipeline)) for event_id in ("e1", "e2")))

    assert {told.event.id for told in await Events(tables).latest(pipeline)} == {"e1", "e2"}


async def test_an_event_of_others_is_kept_once_and_not_sent(tables: Tables) -> None:
    event = an_event(pipeline=a_pipeline())

    assert await Events(tables).put_foreign(event)
    assert not await Events(tables).put_foreign(event)

    assert await Events(tables).latest(event.pipeline) == [StoredEvent(event, out=False)]


async def test_an_event_without_a_pipeline_has_a_home_too(tables: Tables) -> None:
    event = an_event(a_name(), type=a_name())

    await tables.commit(events.event_write(event))

    assert [told.event async for told in Events(tables).of_type(event.type, NOW)] == [event]


async def test_the_latest_events_of_a_pipeline_are_listed_without_its_threads(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(*(events.event_write(an_event(f"e{n}", NOW + n * SECOND, pipeline=pipeline)) for n in range(4)))
    await Threads(tables).claim(ThreadKey(pipeline), channel="c", claimant="a", now=NOW)

    assert [told.event.id for told in await Events(tables).latest(pipeline, limit=3)] == ["e3", "e2", "e1"]


async def test_events_of_one_decision_are_listed_in_its_order(tables: Tables) -> None:
    pipeline, order = a_pipeline(), ["TRIGGER_RECOVERED", "VALIDATION_PASSED", "SLA_WARNING", "JOB_TRIGGERED"]
    ids = ["c", "a", "d", "b"]  # neither types nor ids are in the order of the alphabet
    decided = [
        an_event(event_id, pipeline=pipeline, type=event_type, order=place)
        for place, (event_id, event_type) in enumerate(zip(ids, order, strict=True))
    ]
    await tables.commit(*map(events.event_write, decided))
    reader = EventReader(tables, NOW, pipeline=pipeline)

    assert [event.type for event in await reader.news(NOW)] == order
    assert [told.event.type for told in await Events(tables).latest(pipeline)] == order[::-1]


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_the_latest_events_of_one_decision_are_the_last_of_it(tables: Tables, limit: int) -> None:
    pipeline, order = a_pipeline(), ["VALIDATION_PASSED", "SLA_WARNING", "JOB_TRIGGERED"]
    await tables.commit(
        *(events.event_write(an_event(each, pipeline=pipeline, type=each, order=n)) for n, each in enumerate(order))
    )

    assert [told.event.type for told in await Events(tables).latest(pipeline, limit)] == order[::-1][:limit]


async def test_a_damaged_event_hides_no_other(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(events.event_write(an_event(pipeline=pipeline)))
    damaged = {"PK": keys.pipeline_pk(pipeline), "SK": keys.stamped_sk(NOW, "X"), "eventType": "X", "detail": 3}
    await tables.commit(Put(TableName.EVENTS, damaged))

    assert {told.event.type for told in await Events(tables).latest(pipeline)} == {"X", "JOB_FAILED"}


async def test_events_of_one_type_are_found_over_all_pipelines_by_time(tables: Tables) -> None:
    event_type = a_name()
    for number in range(4):
        event = an_event(f"e{number}", NOW + number * SECOND, type=event_type, pipeline=a_pipeline())
        await tables.commit(events.event_write(event))

    found = Events(tables).of_type(event_type, NOW + SECOND, NOW + 2 * SECOND)

    assert [told.event.id async for told in found] == ["e1", "e2"]


async def test_a_reader_gets_every_event_once_whatever_the_size_of_its_bites(tables: Tables) -> None:
    pipeline = a_pipeline()
    for number in range(7):
        await tables.commit(events.event_write(an_event(f"e{number}", NOW + number * SECOND, pipeline=pipeline)))

    tail, had = Tail.starting(NOW), list[str]()
    for _ in range(5):
        news, tail = await Events(tables).since(pipeline, tail, NOW + timedelta(hours=1), limit=2)
        had += [told.event.id for told in news]

    assert had == [f"e{number}" for number in range(7)]


async def test_a_reader_gets_an_event_that_was_committed_late(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(events.event_write(an_event("fast", NOW, pipeline=pipeline)))
    first, tail = await Events(tables).since(pipeline, Tail.starting(NOW - LOOK_BACK), NOW + SECOND)

    await tables.commit(events.event_write(an_event("slow", NOW - 10 * SECOND, pipeline=pipeline)))
    second, tail = await Events(tables).since(pipeline, tail, NOW + 2 * SECOND)
    third, tail = await Events(tables).since(pipeline, tail, NOW + 3 * SECOND)

    assert [[told.event.id for told in news] for news in (first, second, third)] == [["fast"], ["slow"], []]


async def test_a_reader_forgets_what_no_commit_can_still_precede(tables: Tables) -> None:
    pipeline = a_pipeline()
    await tables.commit(events.event_write(an_event(pipeline=pipeline)))
    _, near = await Events(tables).since(pipeline, Tail.starting(NOW), NOW + SECOND)

    nothing, far = await Events(tables).since(pipeline, near, NOW + timedelta(hours=1))

    assert len(near.seen) == 1
    assert (nothing, far.seen) == ([], frozenset())
