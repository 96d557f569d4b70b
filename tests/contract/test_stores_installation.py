"""When an installation first started, on every backend."""

import uuid
from datetime import timedelta

from tests.support.clock.manual import ManualClock
from worker.store.repos.installation import installed_at
from worker.store.table import Tables


async def test_the_first_start_is_remembered_for_ever(tables: Tables, clock: ManualClock) -> None:
    group, first = uuid.uuid4().hex, clock.now()

    assert await installed_at(tables, group, first) == first
    clock.advance(timedelta(days=1000))
    assert await installed_at(tables, group, clock.now()) == first


async def test_each_group_has_a_first_start_of_its_own(tables: Tables, clock: ManualClock) -> None:
    await installed_at(tables, uuid.uuid4().hex, clock.now())
    clock.advance(timedelta(days=1))

    assert await installed_at(tables, uuid.uuid4().hex, clock.now()) == clock.now()
