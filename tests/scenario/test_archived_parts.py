"""The objects of a completed run are archived: none is lost, and none that the run did not use."""

import asyncio
from itertools import count, pairwise
from typing import Final

import pytest

from consumers.inbox import part_archive
from consumers.inbox.consumer import SensorInbox
from consumers.inbox.notifications import Happened, ObjectNotification
from consumers.inbox.objects import Objects
from consumers.inbox.rules_file import rules_of
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.objects import FakeObjects, etag_of
from tests.support.worlds.engine import DAY, World, a_world
from worker.core.errors import Rejected, RetryLater
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import State
from worker.store.repos.delivery.part_collections import CollectionKey, PartCollections

RULES: Final = """\
rules:
  - name: parts
    object: {bucket: landing, key: "orders/${date}/part-${part}.csv"}
    pipeline: orders
    sensor: parts
    period: ${date}
    collect: {until: {count: 3}}
    archive: s3://landing/done/
"""
CONFIG: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: parts, check: equals, field: complete, value: true}
validation:
  rules: [{key: parts, check: gte, field: count, value: 1}]
job:
  type: command
  config: {command: "true"}
  maxRetries: 0
"""
KEYS: Final = [f"orders/{DAY}/part-{number}.csv" for number in range(3)]


class KilledError(BaseException):
    """The end of a process."""


async def report(world: World, objects: Objects, key: str, body: bytes, sequencer: str = "") -> None:
    inbox = SensorInbox(world.tables, rules_of(RULES), world.clock, objects)
    await inbox.take_in(
        ObjectNotification(
            bucket="landing",
            key=key,
            happened=Happened.CREATED,
            etag=etag_of(body),
            sequencer=sequencer,
            size=len(body),
            at=world.clock.now(),
        )
    )


async def a_bucket(world: World) -> FakeObjects:
    await world.deploy(CONFIG)
    objects = FakeObjects()
    for key in KEYS:
        objects.put("landing", key, key.encode())
        await report(world, objects, key, key.encode())
    await world.settle()
    return objects


async def check(world: World, objects: FakeObjects, times: int = 1) -> None:
    """What the checks of a process that starts now do. A killed one leaves no more than its rows."""
    for _ in range(times):
        await world.wait(minutes=10)
        await SensorInbox(world.tables, rules_of(RULES), world.clock, objects).collector.check_due()


def places(objects: FakeObjects, body: bytes) -> list[str]:
    return sorted(key for (_, key), each in objects.bodies.items() if each == body)


@on_virtual_time
async def test_the_objects_are_archived_once_their_run_is_completed_and_not_before() -> None:
    world = await a_world()
    async with world.worker():
        objects = await a_bucket(world)
        assert await world.state() is State.POLLING
        await check(world, objects, times=3)
        assert {key for _, key in objects.bodies} == set(KEYS)
        world.runner.finish()
        await check(world, objects, times=3)

    assert {key for _, key in objects.bodies} == {f"done/{key}" for key in KEYS}
    key = CollectionKey(rule="parts", pipeline=PipelineId("orders"), sensor=f"parts#{DAY}")
    seen = await PartCollections(world.tables).load(key, KEYS)
    assert all(part.is_archived for part in seen.parts.values())
    assert (seen.collection.archived, seen.check_at) == (seen.collection.version, None)
    assert (await world.events()).count("LATE_DATA_ARRIVAL") == 0


@on_virtual_time
async def test_a_failed_run_keeps_its_objects_where_they_are() -> None:
    world = await a_world()
    async with world.worker():
        objects = await a_bucket(world)
        world.runner.fail()
        await check(world, objects, times=5)

    assert await world.state() is State.FAILED_FINAL
    assert {key for _, key in objects.bodies} == set(KEYS)


@on_virtual_time
async def test_a_look_archives_a_bounded_number_of_objects_and_later_ones_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(part_archive, "PARTS_PER_COMMIT", 1)
    monkeypatch.setattr(part_archive, "PER_LOOK_MAX", 1)
    world = await a_world()
    async with world.worker():
        objects = await a_bucket(world)
        world.runner.finish()
        archived: list[int] = []
        for _ in range(6):
            await check(world, objects)
            archived.append(sum(key.startswith("done/") for _, key in objects.bodies))

    assert max(later - earlier for earlier, later in pairwise([0, *archived])) == 1
    assert archived[-1] == len(KEYS)


@on_virtual_time
async def test_a_collection_that_cannot_be_checked_keeps_no_other_from_its_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = await a_world()
    checked = list[str]()

    async def archive(_self: part_archive.PartArchive, key: CollectionKey, *_: object) -> int:
        checked.append(key.sensor)
        if key.sensor == f"parts#{DAY}":
            raise Rejected("the row of its run is damaged")
        return 0

    monkeypatch.setattr(part_archive.PartArchive, "archive", archive)
    async with world.worker():
        objects = await a_bucket(world)
        for key in KEYS:
            await report(world, objects, key.replace(DAY, "2026-03-02"), key.encode())
        await check(world, objects, times=2)

    assert {f"parts#{DAY}", "parts#2026-03-02"} <= set(checked)
    key = CollectionKey(rule="parts", pipeline=PipelineId("orders"), sensor=f"parts#{DAY}")
    check_at = (await PartCollections(world.tables).load(key)).check_at
    assert check_at is not None
    assert check_at > world.clock.now()


@pytest.mark.parametrize("phase", ["before copy", "after copy", "before delete", "after delete"])
@pytest.mark.parametrize("victim", KEYS, ids=["first", "second", "third"])
@on_virtual_time
async def test_a_process_that_is_killed_anywhere_loses_nothing_and_the_next_one_continues(
    phase: str, victim: str
) -> None:
    world = await a_world()
    deaths = count()

    def kill(now: str, key: str) -> None:
        if (now, key) == (phase, victim) and next(deaths) < 2:
            raise KilledError

    async with world.worker():
        objects = await a_bucket(world)
        world.runner.finish()
        await world.wait(minutes=2)
        objects.meet = kill
        for _ in range(2):
            with pytest.raises(BaseException) as ended:  # noqa: PT011  a group may hold it
                await check(world, objects)
            assert isinstance(ended.value, KilledError) or ended.group_contains(KilledError)
            assert all(places(objects, key.encode()) for key in KEYS), "an object is lost"
            if phase == "after delete":
                objects.meet = lambda _, __: None
                break
        await check(world, objects, times=3)

    assert {key for _, key in objects.bodies} == {f"done/{key}" for key in KEYS}


@on_virtual_time
async def test_what_the_run_did_not_use_stays_until_a_run_used_it() -> None:
    world = await a_world()
    late, changed = f"orders/{DAY}/part-9.csv", KEYS[0]
    async with world.worker():
        objects = await a_bucket(world)
        world.runner.finish()
        await world.wait(minutes=2)
        objects.put("landing", late, b"late")
        objects.put("landing", changed, b"changed")
        await report(world, objects, late, b"late")
        await report(world, objects, changed, b"changed")
        await world.settle()
        assert await world.state() is State.POLLING, "late data: the rerun is under way"
        await check(world, objects, times=3)
        assert {key for _, key in objects.bodies} == {*KEYS, late}, "not while a rerun uses them"
        world.runner.finish()
        await check(world, objects, times=3)

    assert {key for _, key in objects.bodies} == {f"done/{key}" for key in (*KEYS, late)}
    assert objects.bodies["landing", f"done/{changed}"] == b"changed"


@on_virtual_time
async def test_an_object_that_changed_without_a_notification_is_not_archived() -> None:
    world = await a_world()
    async with world.worker():
        objects = await a_bucket(world)
        world.runner.finish()
        await world.wait(minutes=2)
        objects.put("landing", KEYS[1], b"unreported")
        await check(world, objects, times=3)

    assert places(objects, b"unreported") == [KEYS[1]]
    assert {key for _, key in objects.bodies} == {KEYS[1], f"done/{KEYS[0]}", f"done/{KEYS[2]}"}
    assert (await world.events()).count("ARCHIVE_FAILED") == 1


@on_virtual_time
async def test_a_failure_is_reported_once_and_tried_again_until_it_works() -> None:
    world = await a_world()

    def refuse(now: str, _: str) -> None:
        if now == "before copy":
            raise RetryLater("slow down")

    async with world.worker():
        objects = await a_bucket(world)
        world.runner.finish()
        await world.wait(minutes=2)
        objects.meet = refuse
        await check(world, objects, times=3)
        assert (await world.events()).count("ARCHIVE_FAILED") == 1
        objects.meet = lambda _, __: None
        await check(world, objects, times=9)

    assert {key for _, key in objects.bodies} == {f"done/{key}" for key in KEYS}


@on_virtual_time
async def test_the_checks_of_a_running_inbox_archive_by_themselves() -> None:
    world = await a_world()
    async with world.worker():
        objects = await a_bucket(world)
        inbox = SensorInbox(world.tables, rules_of(RULES), world.clock, objects)
        checks = asyncio.get_running_loop().create_task(inbox.collector.run())
        await world.wait(minutes=1)
        world.runner.finish()
        await world.wait(minutes=5)
        checks.cancel()
        await asyncio.wait([checks])

    assert {key for _, key in objects.bodies} == {f"done/{key}" for key in KEYS}
