"""What keeps a group of workers and its store in order: adoption, resync and upkeep."""

import asyncio
import gc
from collections.abc import Container, Iterable
from datetime import datetime, timedelta

import msgspec
import pytest

from consumers.delivery.retry import RetryPolicy
from consumers.streams.embedded.feed import FeedPosition, trim_behind
from consumers.streams.embedded.housekeeping import Housekeeping
from consumers.streams.resync import Resync
from consumers.streams.source import Gap, Position
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from tests.support.worlds.stream import GROUP, STREAM, World
from worker.core.errors import Rejected, RetryLater
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.facts import Origin
from worker.core.time.periods import Period
from worker.engine.intake.router import is_input
from worker.membership.adoption import AT_ONCE, BATCH_MAX, FROZEN_AFTER, Adoption
from worker.runtime.gc_tuning import GrowthFreezer
from worker.store.repos.active_rows import ActiveRow
from worker.store.repos.events import Events
from worker.store.repos.leases import Leases
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Change, ChangeKind, Key, Put, TableName, Trimmed


def an_orphan(
    number: int, *, kind: RowKind = RowKind.TRIGGER, state: str = "EVALUATING", due_at: datetime | None = None
) -> ActiveRow:
    key = RunKey(PipelineId(f"p{number}"), ScheduleId("daily"), Period(NOON.date()))
    return ActiveRow(kind=kind, key=key, owner=None, state=state, since="", due_at=due_at)


# --- adoption ---------------------------------------------------------------------------------------------------------


async def taken_up(adoption: Adoption, clock: VirtualClock, seconds: float = 10) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(adoption.run())
        await clock.sleep(seconds)
        running.cancel()


@on_virtual_time
async def test_orphans_are_taken_up_in_batches_and_few_of_them_at_once() -> None:
    clock, taken = VirtualClock(), list[RunKey]()
    at_once = at_once_max = 0

    async def adopt(_: RowKind, *keys: RunKey) -> None:
        nonlocal at_once, at_once_max
        assert len(keys) <= BATCH_MAX
        at_once += 1
        at_once_max = max(at_once, at_once_max)
        await clock.sleep(1)
        at_once -= 1
        taken.extend(keys)

    adoption = Adoption(adopt, clock)
    for number in range(10 * BATCH_MAX):
        adoption.take_up(an_orphan(number))
    await taken_up(adoption, clock)

    assert len(set(taken)) == len(taken) == 10 * BATCH_MAX
    assert at_once_max == AT_ONCE


@on_virtual_time
async def test_the_most_urgent_orphans_are_taken_up_first_whatever_the_order_in_which_they_were_found() -> None:
    clock, taken = VirtualClock(), list[str]()

    async def adopt(_: RowKind, *keys: RunKey) -> None:
        taken.extend(key.pipeline for key in keys)

    adoption, hour = Adoption(adopt, clock), timedelta(hours=1)
    adoption.take_up(an_orphan(1, kind=RowKind.SLA, state="", due_at=clock.now() + hour))
    adoption.take_up(an_orphan(2, state="POLLING", due_at=clock.now() + hour))
    adoption.take_up(an_orphan(3, state="EVALUATING", due_at=clock.now() + 2 * hour))
    adoption.take_up(an_orphan(4, state="EVALUATING", due_at=clock.now() + hour))
    adoption.take_up(an_orphan(5, state="TRIGGERING", due_at=clock.now() + 3 * hour))
    adoption.take_up(an_orphan(6, state="POLLING", due_at=clock.now() - hour))
    await taken_up(adoption, clock)

    assert taken == ["p6", "p5", "p4", "p3", "p2", "p1"]


@on_virtual_time
async def test_an_urgent_orphan_that_is_found_late_is_still_taken_up_before_those_that_only_wait() -> None:
    clock, taken = VirtualClock(), list[str]()

    async def adopt(_: RowKind, *keys: RunKey) -> None:
        taken.extend(key.pipeline for key in keys)

    async def find() -> None:
        for number in range(5):
            adoption.take_up(an_orphan(number, due_at=clock.now() + timedelta(hours=1)))
            await clock.sleep(0.4)  # another bucket is read
        adoption.take_up(an_orphan(9, state="TRIGGERING", due_at=clock.now() + timedelta(hours=1)))

    adoption = Adoption(adopt, clock)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(find())
        tasks.create_task(taken_up(adoption, clock))

    assert taken == ["p9", "p0", "p1", "p2", "p3", "p4"]


async def freezes_of(passes: Iterable[Iterable[int]], *, damaged: Container[int] = ()) -> int:
    """Return how often the objects of a worker are frozen that finds these orphans, and releases them later."""
    clock, held, freezes = VirtualClock(), set[RunKey](), 0

    async def adopt(_: RowKind, *keys: RunKey) -> None:
        held.update(key for key in keys if int(key.pipeline[1:]) not in damaged)

    adoption = Adoption(adopt, clock, runs_held=lambda: len(held), freezer=GrowthFreezer(FROZEN_AFTER))
    try:
        for found in passes:
            for number in found:
                adoption.take_up(an_orphan(number))
            frozen = gc.get_freeze_count()
            await taken_up(adoption, clock, seconds=60)
            freezes += gc.get_freeze_count() > frozen
            held.clear()
    finally:
        gc.unfreeze()
    return freezes


@on_virtual_time
async def test_what_is_made_of_many_orphans_is_not_searched_by_the_collector_again() -> None:
    assert await freezes_of([range(FROZEN_AFTER)]) == 1


@on_virtual_time
async def test_orphans_that_cannot_be_taken_up_cause_no_freeze_however_often_they_are_found() -> None:
    damaged = range(FROZEN_AFTER)

    assert await freezes_of([damaged] * 3, damaged=damaged) == 0


@on_virtual_time
async def test_many_takeovers_of_one_size_freeze_as_often_as_one() -> None:
    assert await freezes_of([range(FROZEN_AFTER), range(FROZEN_AFTER), range(2 * FROZEN_AFTER)]) == 2


@on_virtual_time
async def test_an_orphan_that_is_named_again_is_taken_up_once_and_one_that_is_held_not_at_all() -> None:
    clock, taken = VirtualClock(), list[RunKey]()

    async def adopt(_: RowKind, *keys: RunKey) -> None:
        taken.extend(keys)

    adoption = Adoption(adopt, clock, is_held=lambda row: row.key.pipeline == "p2")
    for number in (1, 1, 2):
        adoption.take_up(an_orphan(number))
    await taken_up(adoption, clock)

    assert [key.pipeline for key in taken] == ["p1"]


@on_virtual_time
async def test_trouble_with_some_orphans_keeps_no_others_from_being_taken_up() -> None:
    clock, taken, log = VirtualClock(), list[RunKey](), list[tuple[str, object]]()

    async def adopt(kind: RowKind, *keys: RunKey) -> None:
        if kind is RowKind.SLA:
            raise RetryLater("the store does not answer")
        taken.extend(keys)

    adoption = Adoption(adopt, clock, lambda event, about: log.append((event, about["rows"])))
    for number in (1, 2, 3):
        adoption.take_up(an_orphan(number, kind=RowKind.SLA if number < 3 else RowKind.TRIGGER))
    await taken_up(adoption, clock)

    assert [key.pipeline for key in taken] == ["p3"]
    assert log == [("row.troubled", 2)]


# --- resync -----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_loss_is_told_once_however_often_catching_up_is_tried() -> None:
    world, seen = World(), list[tuple[str, Origin]]()
    await Pipelines(world.store).put(PipelineId("orders"), "{}")
    gap = Gap("feed.control", asked=Position("1"), resume_at=Position("9"), since=None, noticed_at=world.clock.now())

    async def resync(pipeline: PipelineId, origin: Origin) -> None:
        seen.append((pipeline, origin))

    catching_up = Resync(world.store, resync, RetryPolicy(world.clock, world.store.ping), world.clock)
    await catching_up.catch_up(gap)
    await world.clock.sleep(60)
    await catching_up.catch_up(gap)

    told, over = sorted(await Events(world.store).latest(""), key=lambda stored: stored.event.type)
    assert (told.event.type, told.out) == ("DATA_LOSS_SUSPECTED", True)
    assert told.event.detail == {"source": "feed.control", "from": "1", "to": "9"}
    assert (over.event.type, over.out) == ("DATA_RESYNCED", True)
    assert over.event.detail == {"source": "feed.control", "from": "1", "to": "9", "pipelines": 1}
    assert seen == [("orders", Origin.RECONCILIATION)] * 2


@on_virtual_time
async def test_the_first_start_looks_at_every_pipeline_and_one_in_trouble_holds_up_none() -> None:
    world, seen = World(), list[str]()
    for name in ("a", "b", "c", "d"):
        await Pipelines(world.store).put(PipelineId(name), "{}")
    trouble = {"b": [Rejected("damaged")], "c": [RetryLater("throttled")], "d": [RetryLater("down")] * 5}

    async def resync(pipeline: PipelineId, origin: Origin) -> None:
        assert origin is Origin.SENSOR  # nothing was missed: it is the first start
        if failures := trouble.get(pipeline):
            raise failures.pop()
        seen.append(pipeline)

    await Resync(world.store, resync, RetryPolicy(world.clock, world.store.ping), world.clock).catch_up(None)

    assert seen == ["a", "c"]
    assert await Events(world.store).latest("") == []


# --- upkeep -----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_feed_is_trimmed_up_to_its_slowest_reader_and_expired_rows_are_swept() -> None:
    world = World()
    gone = {"PK": "PIPELINE#x", "SK": "OLD", "ttl": int(world.clock.now().timestamp()) - 10 * 86400}
    await world.store.commit(Put(TableName.CONTROL, gone))
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(3)
    upkeep = Housekeeping(world.store, Leases(world.store, GROUP), [STREAM], world.clock)

    await upkeep.once(world.clock.now())

    checkpoint = FeedPosition.parse(await world.checkpoint()).number
    with pytest.raises(Trimmed):
        await world.store.changes(TableName.CONTROL, checkpoint - 1)
    after = await world.store.changes(TableName.CONTROL, checkpoint)
    assert [change.key.sk for change in after if change.kind is ChangeKind.REMOVE] == ["OLD"]


@on_virtual_time
async def test_a_reader_that_has_not_begun_keeps_the_feed_whole() -> None:
    world = World()
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(3)

    await Housekeeping(world.store, Leases(world.store, GROUP), [STREAM, "feed.never"], world.clock).once(
        world.clock.now()
    )

    assert (await world.store.changes(TableName.CONTROL, 0))[0].position == 1


# --- what the wiring adds ---------------------------------------------------------------------------------------------


def a_change(pk: str, sk: str) -> Change:
    return Change(
        position=1,
        table=TableName.JOBLOG if sk.startswith("JOB#") else TableName.CONTROL,
        key=Key(pk, sk),
        kind=ChangeKind.INSERT,
        image={"PK": pk, "SK": sk},
        at=NOON,
    )


@pytest.mark.parametrize(
    ("pk", "sk", "is_fact"),
    [
        ("PIPELINE#p", "SENSOR#s", True),
        ("PIPELINE#p", "CONFIG", True),
        ("PIPELINE#p", "PAUSE", True),
        ("PIPELINE#p", "RERUN_REQUEST#daily#2026-03-03", True),
        ("PIPELINE#p", "JOB#daily#2026-03-03#1772539200000", True),
        ("MARKER#p", "2026-03-03#daily", True),
        ("PIPELINE#p", "TRIGGER#daily#2026-03-03", False),
        ("PIPELINE#p", "SLA#daily#2026-03-03", False),
        ("PIPELINE#p", "MARK#SIGNAL#s", False),
        ("GROUP#embedded", "W#host-1", False),
        ("CONFIGLOG", "1772539200000#x", False),
    ],
)
def test_our_own_writing_is_no_fact(pk: str, sk: str, is_fact: bool) -> None:
    assert is_input(a_change(pk, sk)) == is_fact


def test_our_own_lines_of_the_job_log_are_no_facts_when_they_return() -> None:
    others = a_change("PIPELINE#p", "JOB#daily#2026-03-03#1772539200000")

    ours = msgspec.structs.replace(others, image={"PK": others.key.pk, "SK": others.key.sk, "by": "interlock"})

    assert is_input(others)
    assert not is_input(ours)


@on_virtual_time
async def test_a_feed_is_forgotten_behind_the_slowest_of_its_readers() -> None:
    world = World()
    for value in range(30):
        await world.sensor("a", value)
    marks = [FeedPosition(number, world.clock.now()).text() for number in (25, 10, 28)]

    assert await trim_behind(world.store, marks) == 10

    assert [change.position for change in await world.store.changes(TableName.CONTROL, 10)] == list(range(11, 31))
