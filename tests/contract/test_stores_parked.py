"""Parked keys, on every backend."""

import uuid

from tests.support.clock.manual import ManualClock
from worker.store.repos.delivery.parked_keys import ParkedKey, ParkedKeys
from worker.store.retention import PARKED_KEYS
from worker.store.table import Tables


async def test_a_parked_key_is_listed_for_its_own_stream_until_it_is_released(
    tables: Tables, clock: ManualClock
) -> None:
    keys = ParkedKeys(tables, uuid.uuid4().hex)
    first = await keys.park("feed.control", "aa", since="007", now=clock.now())
    await keys.park("feed.joblog", "bb", since="008", now=clock.now())

    assert await keys.list("feed.control") == [first]
    await keys.release("feed.control", "aa")
    await keys.release("feed.control", "aa")
    assert await keys.list("feed.control") == []
    assert len(await keys.list("feed.joblog")) == 1


async def test_a_key_is_not_parked_for_ever(tables: Tables, clock: ManualClock) -> None:
    keys = ParkedKeys(tables, uuid.uuid4().hex)
    parked = await keys.park("feed.control", "aa", since="007", now=clock.now())

    assert parked == ParkedKey(stream="feed.control", key_hash="aa", since="007", until=clock.now() + PARKED_KEYS)
    clock.advance(PARKED_KEYS)
    assert await keys.list("feed.control") == []
