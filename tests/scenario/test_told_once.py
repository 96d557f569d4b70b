"""What is told once is told once, and silences nothing else."""

import asyncio

from tests.support.clock.manual import NOON, ManualClock
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import Fault, FaultyTables, always
from tests.support.worlds.engine import run_key
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import SessionId
from worker.engine.commits import Commits
from worker.store.repos.events import Events
from worker.store.sqlite.tables import SqliteTables


async def test_one_type_that_tells_of_two_things_is_told_once_of_each() -> None:
    tables, key = SqliteTables.in_memory(ManualClock()), run_key()
    commits = Commits(tables, SessionId("s"))
    damage = EmitEvent(type=EventType.INFRA_FAILURE, message="its row is damaged", once=True, about="damage")
    doubt = EmitEvent(type=EventType.INFRA_FAILURE, message="nobody can tell", once=True, about="doubt")

    for tell in (damage, doubt, damage, doubt):
        await commits.tell_once(key, tell, NOON)

    told = await Events(tables).latest(key.pipeline, limit=10)
    assert sorted(stored.event.message for stored in told) == ["its row is damaged", "nobody can tell"]


@on_virtual_time
async def test_workers_that_tell_the_same_at_once_tell_it_once_and_none_fails() -> None:
    tables, key = SqliteTables.in_memory(ManualClock()), run_key()
    damage = EmitEvent(type=EventType.INFRA_FAILURE, message="its row is damaged", once=True, about="damage")
    far = FaultyTables(tables, always(Fault(reply_delay_s=0.01)))  # all have read before the first one commits
    workers = [Commits(far, SessionId(f"s{number}")) for number in range(10)]

    told = await asyncio.gather(*(commits.tell_once(key, damage, NOON) for commits in workers))

    assert sorted(told) == [False] * 9 + [True]
    assert len(await Events(tables).latest(key.pipeline, limit=10)) == 1
