"""A worker in shadow mode, alone and beside the workers in charge: it decides everything and changes nothing."""

import asyncio

from tests.support.clock.virtual_time import Host, on_virtual_time
from tests.support.worlds.embedded_workers import Crew, told_of
from tests.support.worlds.engine import DAY, ORDERS, run_key
from worker.app.embedded import embedded_deps
from worker.app.session import SessionWork
from worker.app.shadow import SHADOW_ROLES, shadow_deps
from worker.app.worker import LEASED
from worker.config.store_setting import GROUP
from worker.core.model.keys import SHADOW
from worker.core.model.pipeline import JobType
from worker.core.run.state import DryRun, DryState, State
from worker.membership.heartbeat_threads import TaskBeater
from worker.membership.sessions import GroupSettings, Member, Membership, session_ids
from worker.runtime.concurrency import TrackedTaskGroup
from worker.store.repos.dry_runs import DryRuns
from worker.store.repos.events import Events
from worker.store.shadow import ShadowTables
from worker.store.table import Change, Key, Put, TableName

CONFIG_ROW = Key("PIPELINE#orders", "CONFIG")


def a_shadow(crew: Crew, name: str = "shadow") -> Host:
    """Begin a worker as `INTERLOCK_SHADOW=1` wires it. It is even given what could start jobs and tell people."""
    tables = ShadowTables(crew.store, crew.clock)
    deps = shadow_deps(embedded_deps(crew.store, crew.tell, {JobType.COMMAND: crew.runner}, crew.clock), tables)

    async def work(member: Member) -> None:
        async with TrackedTaskGroup() as tasks:
            session = SessionWork(deps, member, tasks)
            await session.begin()
            await member.stopping.wait()
            await session.finish()

    host = Host(name)
    membership = Membership(
        GroupSettings(name=GROUP, program="test", roles=SHADOW_ROLES & LEASED),
        tables=tables,
        beater=TaskBeater(tables),
        clock=crew.clock,
        new_session_id=session_ids(name),
    )
    host.start(membership.serve(work))
    return host


async def rehearsed(crew: Crew) -> DryRun | None:
    return await DryRuns(ShadowTables(crew.store, crew.clock)).load(run_key(DAY))


async def changes(crew: Crew, after: int) -> list[Change]:
    return [change for table in TableName for change in await crew.store.changes(table, after)]


def is_shadows(change: Change) -> bool:
    return SHADOW in {change.key.pk[: len(SHADOW)], change.key.sk[: len(SHADOW)]}


@on_virtual_time
async def test_a_shadow_decides_and_writes_nothing_but_its_own_rows() -> None:
    crew = Crew()
    await crew.deployed()
    a_shadow(crew)
    await asyncio.sleep(30)
    await crew.ready()
    said_by_others = await crew.store.last_position()

    await asyncio.sleep(600)

    run = await rehearsed(crew)
    assert run is not None
    assert run.state is DryState.WOULD_TRIGGER
    assert crew.runner.jobs == {}
    assert crew.told == []
    assert await crew.run() is None
    made = await changes(crew, said_by_others)
    assert made
    assert [change.key for change in made if not is_shadows(change)] == []


@on_virtual_time
async def test_what_a_shadow_has_to_say_is_kept_and_never_goes_out() -> None:
    crew = Crew()
    await crew.deployed()
    crew.worker("relay")
    a_shadow(crew)
    await asyncio.sleep(30)
    await crew.ready()
    await asyncio.sleep(120)

    kept = await Events(ShadowTables(crew.store, crew.clock)).latest(ORDERS)

    assert "DRY_RUN_WOULD_TRIGGER" in {stored.event.type for stored in kept}
    assert not any(stored.out for stored in kept)
    assert told_of(crew.told, "DRY_RUN_WOULD_TRIGGER") == 0


@on_virtual_time
async def test_workers_in_charge_do_not_notice_a_shadow_and_it_agrees_with_them() -> None:
    crew = Crew()
    await crew.deployed()
    crew.worker("live")
    a_shadow(crew)
    await asyncio.sleep(30)
    await crew.ready()
    await asyncio.sleep(30)
    crew.finish_jobs()
    await asyncio.sleep(300)

    run = await rehearsed(crew)

    assert await crew.state() is State.COMPLETED
    assert len(crew.runner.jobs) == 1
    assert told_of(crew.told, "JOB_COMPLETED") == 1
    assert run is not None
    assert run.state is DryState.WOULD_TRIGGER


@on_virtual_time
async def test_a_rehearsal_whose_worker_died_is_taken_up_by_another_shadow_alone() -> None:
    crew = Crew()
    await crew.deployed()
    first = a_shadow(crew, "one")
    await asyncio.sleep(30)
    await crew.sensor("ready", status="done")
    await asyncio.sleep(5)
    first.crash()
    crew.worker("live")
    await asyncio.sleep(120)
    waiting = await rehearsed(crew)

    a_shadow(crew, "two")
    await asyncio.sleep(60)
    await crew.sensor("count", rows=120)
    await asyncio.sleep(60)

    run = await rehearsed(crew)
    assert waiting is not None
    assert waiting.state is DryState.EVALUATING
    assert run is not None
    assert run.state is DryState.WOULD_TRIGGER


@on_virtual_time
async def test_a_shadow_stamps_no_configuration_that_others_deploy() -> None:
    crew = Crew()
    await crew.deployed()
    deployed = await crew.store.get(TableName.CONTROL, CONFIG_ROW)
    assert deployed is not None
    a_shadow(crew)
    await asyncio.sleep(30)
    await crew.store.commit(
        Put(TableName.CONTROL, {"PK": CONFIG_ROW.pk, "SK": CONFIG_ROW.sk, "config": deployed["config"]})
    )

    await asyncio.sleep(120)

    row = await crew.store.get(TableName.CONTROL, CONFIG_ROW)
    assert row is not None
    assert set(row) == {"PK", "SK", "config", "cid"}
