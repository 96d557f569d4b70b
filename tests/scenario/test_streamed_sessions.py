"""Whole workers on streams: their first start on tables that are in use, and gaps longer than a stream keeps anything.

Nothing is missed that came meanwhile, and nothing is done again that was done.
"""

import json
from collections.abc import Sequence
from random import Random

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.streams import change_record
from tests.support.worlds.embedded_workers import told_of
from tests.support.worlds.engine import DAY, ORDERS, run_key
from tests.support.worlds.streamed_workers import TABLES, StreamedCrew, Way
from worker.config.roles import Role
from worker.core.model import keys
from worker.core.run.state import State
from worker.core.time.timestamps import format_rfc3339
from worker.membership.sessions import Membership
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.events import Events
from worker.store.repos.requests import Requests, RerunRequest
from worker.store.table import ChangeKind, Key, Put, TableName

HOUR_S = 3600.0
BEFORE = "2026-03-02"
EARLIER = "2026-03-01"

each_way = pytest.mark.parametrize("way", list(Way))


async def ask_rerun(crew: StreamedCrew, day: str, name: str) -> None:
    asked = RerunRequest(reason="manual", requested_at=format_rfc3339(crew.clock.now()), id=name)
    requests = Requests(crew.store)
    await requests.ask_rerun(run_key(day), asked, await requests.rerun_of(run_key(day)))


async def completed_by_the_reference(crew: StreamedCrew, day: str) -> None:
    """A run that another program did, with all it leaves behind."""
    pk, at = keys.pipeline_pk(ORDERS), keys.millis(crew.clock.now())
    await crew.ready(day)
    row = {"PK": pk, "SK": f"TRIGGER#stream#{day}", "status": "COMPLETED"}
    log = {"PK": pk, "SK": f"JOB#stream#{day}#{at}", "event": "success"}
    await crew.store.commit(Put(TableName.CONTROL, row))
    await crew.store.commit(Put(TableName.JOBLOG, log))


async def event_types(crew: StreamedCrew) -> list[str]:
    return [stored.event.type for stored in await Events(crew.store).latest(ORDERS, limit=200)]


async def stopped(crew: StreamedCrew, *workers: Membership) -> None:
    for worker in workers:
        worker.stop()
    await crew.clock.sleep(10)


async def worked(crew: StreamedCrew, name: str, *, for_s: float = 60.0) -> None:
    """A worker that was there for a while, and finished what it started."""
    _, worker = crew.worker(name)
    await crew.clock.sleep(for_s / 2)
    crew.finish_jobs()
    await crew.clock.sleep(for_s / 2)
    await stopped(crew, worker)


@each_way
@on_virtual_time
async def test_at_a_first_start_what_waits_is_begun_and_nothing_that_is_over_is_done_again(way: Way) -> None:
    crew = StreamedCrew(way=way)
    await crew.deployed()
    await completed_by_the_reference(crew, BEFORE)
    await ask_rerun(crew, BEFORE, "old")
    await crew.ready()
    await crew.clock.sleep(HOUR_S)

    crew.worker("a")
    await crew.clock.sleep(30)

    assert await crew.state() is State.POLLING
    assert len(crew.runner.starts) == 1
    assert not {"LATE_DATA_ARRIVAL", "RERUN_ACCEPTED", "DATA_LOSS_SUSPECTED"} & set(await event_types(crew))


@each_way
@on_virtual_time
async def test_after_a_first_start_news_is_read_and_a_restart_finds_nothing_left_to_do(way: Way) -> None:
    crew = StreamedCrew(way=way)
    await crew.deployed()
    await crew.ready()
    await crew.clock.sleep(HOUR_S)
    _, first = crew.worker("a")
    await crew.clock.sleep(30)
    await crew.ready(EARLIER)
    await crew.clock.sleep(30)
    crew.finish_jobs()
    await crew.clock.sleep(300)
    await stopped(crew, first)

    await worked(crew, "b")

    assert (await crew.state(), await crew.state(EARLIER)) == (State.COMPLETED, State.COMPLETED)
    assert len(crew.runner.starts) == 2
    assert "LATE_DATA_ARRIVAL" not in await event_types(crew)


@each_way
@on_virtual_time
async def test_what_came_in_a_gap_longer_than_the_stream_is_found_and_what_was_done_is_not_done_again(way: Way) -> None:
    crew = StreamedCrew(way=way)
    await crew.deployed()
    _, first = crew.worker("a")
    await crew.clock.sleep(30)
    await crew.ready()
    await crew.ready(EARLIER)
    await crew.clock.sleep(30)
    crew.finish_jobs()
    await crew.clock.sleep(300)
    await stopped(crew, first)
    assert len(crew.runner.starts) == 2
    await crew.clock.sleep(HOUR_S)
    await crew.ready(BEFORE)
    await ask_rerun(crew, EARLIER, "again")
    await crew.clock.sleep(30 * HOUR_S)

    await worked(crew, "b", for_s=600)

    assert await crew.state(BEFORE) is State.COMPLETED
    assert await attempts(crew, DAY, BEFORE, EARLIER) == [1, 1, 2]
    assert len(crew.runner.starts) == 4
    assert told_of(crew.told, "DATA_LOSS_SUSPECTED") >= 1
    assert "LATE_DATA_ARRIVAL" not in await event_types(crew)


@each_way
@on_virtual_time
async def test_a_gap_is_told_and_caught_up_with_once(way: Way) -> None:
    crew = StreamedCrew(way=way)
    await crew.deployed()
    await worked(crew, "a")
    await crew.ready()
    await crew.clock.sleep(30 * HOUR_S)
    await worked(crew, "b", for_s=600)
    told, starts = told_of(crew.told, "DATA_LOSS_SUSPECTED"), len(crew.runner.starts)
    await ask_rerun(crew, DAY, "again")

    await worked(crew, "c", for_s=600)

    assert told_of(crew.told, "DATA_LOSS_SUSPECTED") == told
    assert (starts, len(crew.runner.starts)) == (1, 2)


@each_way
@on_virtual_time
async def test_events_that_a_stream_has_forgotten_are_published_from_the_index_under_the_same_ids(way: Way) -> None:
    crew = StreamedCrew(way=way)
    await crew.deployed()
    await crew.ready(EARLIER)
    await worked(crew, "a", for_s=600)  # so that the relay has a place in its stream
    seen = {event.id for event in crew.told}
    _, engine = crew.worker("b", Role.ENGINE)
    await crew.clock.sleep(30)
    await crew.ready()
    await crew.clock.sleep(30)
    crew.finish_jobs()
    await crew.clock.sleep(300)
    await stopped(crew, engine)
    stored = await Events(crew.store).latest(ORDERS, limit=200)
    decided = {each.event.id for each in stored if each.out} - seen
    assert decided
    await crew.clock.sleep(30 * HOUR_S)

    _, relay = crew.worker("c", Role.RELAY)
    await crew.clock.sleep(600)
    await stopped(crew, relay)

    assert decided <= {event.id for event in crew.told}


async def attempts(crew: StreamedCrew, *days: str) -> Sequence[int]:
    runs = [await crew.run(day) for day in days]
    return [0 if run is None else run.attempt for run in runs]


@on_virtual_time
async def test_a_record_that_the_relay_trips_over_is_kept_and_the_worker_goes_on() -> None:
    crew = StreamedCrew(way=Way.KINESIS)
    await crew.deployed()
    crew.worker("a")
    await crew.clock.sleep(30)
    key = keys.pipeline_pk("others"), keys.stamped_sk(crew.clock.now(), "JOB_FAILED", "e1")
    told = change_record(
        Key(*key), {"out": True}, crew.clock.now(), kind=ChangeKind.INSERT, table=TABLES[TableName.EVENTS]
    )
    tripping = json.loads(told)
    del tripping["dynamodb"]["NewImage"]["SK"]

    crew.streams.kinesis.deliver([(key[0], json.dumps(tripping).encode())], Random(1))
    await crew.clock.sleep(120)
    await crew.ready()
    await crew.clock.sleep(60)

    [letter] = await DeadLetters(crew.store).list("kinesis.events")
    assert "a mistake in Interlock" in letter.reason
    assert told_of(crew.told, "JOB_TRIGGERED") == 1
