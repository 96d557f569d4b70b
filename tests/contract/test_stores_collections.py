"""Collections of parts, on every backend."""

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.clock.manual import ManualClock
from worker.core.collect.collection import CollectedPart, Collection, Until, add_parts, judge, list_parts, see_marker
from worker.core.model.pipeline import PipelineId
from worker.store.repos.delivery.part_collections import PARTS_PER_COMMIT, CollectionKey, PartCollections, batches
from worker.store.repos.sensors import Sensors
from worker.store.retention import INBOX
from worker.store.table import StaleWrite, Tables


def a_key() -> CollectionKey:
    """A collection of the test's own: backends may keep their tables from one test to the next."""
    return CollectionKey(rule="parts", pipeline=PipelineId(f"p{uuid.uuid4().hex}"), sensor="parts#2026-03-03")


async def test_a_full_commit_of_parts_comes_back_whole(tables: Tables, clock: ManualClock) -> None:
    collections, key, now = PartCollections(tables), a_key(), clock.now()
    names = ["orders/" + "é" * 500 + f"{number:03d}" for number in range(PARTS_PER_COMMIT)]
    parts = [CollectedPart(key=name, etag=f"e{at}", size=at, sequencer="0A") for at, name in enumerate(names)]
    empty = await collections.load(key, names)
    folded = add_parts(empty.collection, empty.parts, parts, now)
    wanted = judge(see_marker(folded.collection, now), Until(count=len(names)), now)

    await collections.save(key, empty, wanted, parts=folded.parts, check_at=now, now=now)

    seen = await collections.load(key, [*names, "unknown"])
    assert (empty.collection, empty.lock) == (Collection(), 0)
    assert (seen.collection, seen.lock, seen.check_at) == (wanted, 1, now)
    assert seen.parts == folded.parts
    assert sorted([part.key async for part in collections.parts(key)]) == names
    assert [len(each) for each in batches([*names, "one more"])] == [PARTS_PER_COMMIT, 1]


async def test_whoever_has_not_seen_the_last_change_cannot_save(tables: Tables, clock: ManualClock) -> None:
    collections, key, now = PartCollections(tables), a_key(), clock.now()
    empty = await collections.load(key)
    mine = add_parts(Collection(), {}, [CollectedPart(key="a", etag="1")], now)
    theirs = add_parts(Collection(), {}, [CollectedPart(key="b", etag="1")], now)
    await collections.save(key, empty, mine.collection, parts=mine.parts, check_at=None, now=now)

    for outdated in (empty, replace(empty, lock=7)):
        with pytest.raises(StaleWrite):
            await collections.save(key, outdated, theirs.collection, parts=theirs.parts, check_at=None, now=now)

    seen = await collections.load(key, ["a", "b"])
    assert (seen.collection, dict(seen.parts)) == (mine.collection, mine.parts)


async def test_a_check_is_found_when_it_is_due_and_moves_with_its_collection(
    tables: Tables, clock: ManualClock
) -> None:
    collections, key, now = PartCollections(tables), a_key(), clock.now()
    soon, later = now + timedelta(minutes=1), now + timedelta(hours=1)
    listed = list_parts(Collection(), {}, ["a"], now)
    await collections.save(
        key, await collections.load(key), listed.collection, parts=listed.parts, check_at=soon, now=now
    )

    async def due(at_minute: float) -> list[CollectionKey]:
        found = await collections.due(now + timedelta(minutes=at_minute), 1000)
        return [each for each, _ in found if each == key]

    assert await due(0.9) == []
    assert await due(1) == [key]
    seen = await collections.load(key)
    await collections.save(key, seen, seen.collection, parts={}, check_at=later, now=now)
    assert await due(59) == []
    assert await due(61) == [key]
    seen = await collections.load(key)
    await collections.save(key, seen, seen.collection, parts={}, check_at=None, now=now)
    assert await due(61) == []


async def test_a_collection_is_forgotten_in_time_and_can_begin_again(tables: Tables, clock: ManualClock) -> None:
    collections, key = PartCollections(tables), a_key()
    first = add_parts(Collection(), {}, [CollectedPart(key="a", etag="1")], clock.now())
    await collections.save(
        key, await collections.load(key), first.collection, parts=first.parts, check_at=None, now=clock.now()
    )

    clock.advance(INBOX)

    empty = await collections.load(key, ["a"])
    again = add_parts(empty.collection, empty.parts, [CollectedPart(key="a", etag="1")], clock.now())
    await collections.save(key, empty, again.collection, parts=again.parts, check_at=None, now=clock.now())
    assert (empty.lock, dict(empty.parts)) == (0, {})
    assert again.collection.version > first.collection.version


async def test_an_older_version_never_replaces_the_sensor_of_a_newer_one(tables: Tables) -> None:
    sensors, key = Sensors(tables), a_key()

    for version in (5, 9, 7, 9, 1):
        await sensors.put_collected(key.pipeline, key.sensor, {"version": version}, version)

    found = await sensors.get(key.pipeline, key.sensor)
    assert found is not None
    assert found.data == {"version": 9}
    await sensors.put(key.pipeline, key.sensor, {"by": "hand"})
    await sensors.put_collected(key.pipeline, key.sensor, {"version": 2}, 2)
    found = await sensors.get(key.pipeline, key.sensor)
    assert found is not None
    assert found.data == {"version": 2}
