"""A deleted run stays deleted, whatever is delivered again, and starts again only on request."""

from dataclasses import dataclass

import pytest

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_AFTER, DROP_BEFORE, NO_FAULT, Fault, FaultyTables, Operation
from tests.support.worlds.engine import CONFIG, DAY, ORDERS, World, a_world, run_key
from worker.config.versions import Version
from worker.core.errors import RetryLater
from worker.core.model import keys
from worker.core.model.events import EventType
from worker.core.run.state import Deletion, State
from worker.operations.operator_actions import Requester
from worker.operations.pipelines.lookup import version_of
from worker.operations.runs.deletion import CannotDelete, DeletionOutcome, DeletionSpec, RunDeletion
from worker.operations.runs.requests import RerunSpec, RunRequests
from worker.store.repos.deletions import Deletions, deletion_write
from worker.store.repos.marks import Marks
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.store.table import Key, StaleWrite, TableName, Tables, Write

ANN = Requester(name="ann", via="cli")
WITH_DEADLINE = CONFIG + "sla: {maxDuration: 90m, expectedDuration: 50m}\n"


async def delete(world: World, *, tables: Tables | None = None, **wanted: bool) -> DeletionOutcome | None:
    deletion = RunDeletion(tables or world.tables, world.clock, ANN)
    return await deletion.delete(run_key(), DeletionSpec(reason="bad test data", **wanted))


async def deliver_again(world: World) -> None:
    """Every record from the first one on, as a stream does after a lost checkpoint."""
    world.read_to.clear()
    await world.write("unrelated", value=1)
    await world.wait(minutes=3)


async def rows_about_run(world: World) -> list[str]:
    page = await world.tables.query(TableName.CONTROL, keys.pipeline_pk(ORDERS))
    return sorted(sk for row in page.rows if DAY in (sk := str(row["SK"])) and not sk.startswith(keys.SENSOR))


@on_virtual_time
async def test_a_deleted_run_leaves_only_the_row_that_says_so_and_an_event_with_who_and_why() -> None:
    world = await a_world()
    async with world.worker():
        await world.deploy(WITH_DEADLINE)
        await world.ready()
        await world.count(100)
        await world.settle()
        world.runner.finish()
        await world.wait(minutes=2)
        before = await rows_about_run(world)
        outcome = await delete(world)
        await world.settle()

    assert f"SLA#stream#{DAY}" in before
    assert f"INPUTS#stream#{DAY}" in before
    assert outcome is not None
    assert outcome.rows == len(before)
    assert await rows_about_run(world) == [f"DELETED#stream#{DAY}"]
    told = [each.event for each in await world.stored_events() if each.event.type == EventType.OPERATOR_ACTION]
    assert [(event.detail["requestedBy"], event.detail["action"], event.detail["reason"]) for event in told] == [
        ("ann", "delete", "bad test data")
    ]


@on_virtual_time
async def test_records_delivered_again_and_late_data_do_not_start_a_deleted_run() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.FAILED_FINAL)
        await world.ask_rerun()
        await world.settle()
        world.runner.fail()
        await world.wait(minutes=3)
        await delete(world)
        starts, events = len(world.runner.starts), await world.events()

        await deliver_again(world)
        await world.count(500)
        await world.ready(rows=7)
        await world.wait(minutes=10)

    assert len(world.runner.starts) == starts
    assert await world.run() is None
    assert await world.events() == events


@on_virtual_time
async def test_a_request_starts_a_deleted_run_and_its_versions_continue() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
        deleted = await world.run()
        await delete(world)
        await RunRequests(world.tables, world.clock, by=ANN).rerun(
            run_key(), await _version(world), RerunSpec(reason="wanted after all")
        )
        await world.settle()
        await deliver_again(world)

    run = await world.run()
    assert deleted is not None
    assert run is not None
    assert run.state is State.POLLING
    assert run.run_id != deleted.run_id
    assert run.version > deleted.version
    assert await Deletions(world.tables).load(run_key()) is None
    assert len(world.runner.starts) == 2


@on_virtual_time
async def test_a_forgotten_run_starts_with_the_next_change_of_its_sensor() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
        await delete(world, forget=True)
        await world.settle()
        gone = await rows_about_run(world)
        await world.ready(rows=7)
        await world.settle()

    assert gone == []
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_deletion_can_be_forgotten_later() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
        await delete(world)
        await world.ready(rows=7)
        await world.settle()
        kept = await world.run()
        outcome = await delete(world, forget=True)
        await world.ready(rows=8)
        await world.settle()

    assert kept is None
    assert outcome is not None
    assert outcome.was_deleted
    assert await world.state() is State.POLLING


@on_virtual_time
async def test_a_second_worker_with_an_old_view_does_not_start_a_deleted_run() -> None:
    world = await a_world()
    async with world.worker("w1"), world.worker("w2", reads_feed=False) as second:
        await world.until(State.COMPLETED)
        changes = await world.tables.changes(TableName.CONTROL, 0)
        await delete(world)
        for change in changes:
            await second.router.handle(change)
        await world.wait(minutes=3)

    assert await world.run() is None
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_a_run_deleted_between_a_workers_read_and_its_commit_is_not_created() -> None:
    world = await a_world(StrikingTables)
    striking = world.seen_by_workers
    assert isinstance(striking, StrikingTables)
    async with world.worker():
        await world.until(State.COMPLETED)
        run = await world.run()
        assert run is not None
        # The worker reads: there is no run. Before it commits, a run has been and was deleted.
        await delete(world, forget=True)
        striking.before_create = _DeletionByAnother(world, run.version)
        await world.ready(rows=9)
        await world.settle()

    assert striking.before_create is None
    assert await world.run() is None
    assert len(world.runner.starts) == 1


@on_virtual_time
async def test_only_an_ended_run_that_nobody_waits_for_is_deleted() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.POLLING)
        with pytest.raises(CannotDelete, match="is running, and only an ended run"):
            await delete(world)
        world.runner.fail()
        await world.wait(minutes=2)
        world.runner.fail()
        await world.wait(minutes=2)
    await world.ask_rerun()
    with pytest.raises(CannotDelete, match=r"was requested at .* and waits for its answer"):
        await delete(world)

    assert await world.state() is State.FAILED_FINAL


@on_virtual_time
async def test_a_run_that_changed_since_it_was_seen_is_not_deleted() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
    seen = await world.run()
    assert seen is not None
    wanted = DeletionSpec(reason="old", version=seen.version - 1)

    with pytest.raises(StaleWrite):
        await RunDeletion(world.tables, world.clock, ANN).delete(run_key(), wanted)

    assert await world.run() == seen


@on_virtual_time
async def test_a_dry_deletion_changes_nothing() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
    before = await rows_about_run(world)

    outcome = await RunDeletion(world.tables, world.clock, ANN, is_rehearsed=True).delete(
        run_key(), DeletionSpec(reason="look", with_history=True)
    )

    assert outcome is not None
    assert outcome.rows == len(before)
    assert outcome.history == len(await world.job_log())
    assert await rows_about_run(world) == before


@pytest.mark.parametrize("fault", [DROP_BEFORE, DROP_AFTER], ids=["lost before the store", "lost after the store"])
@pytest.mark.parametrize("forget", [False, True], ids=["remembered", "forgotten"])
@on_virtual_time
async def test_a_deletion_interrupted_at_any_write_and_repeated_deletes_everything_once(
    fault: Fault, *, forget: bool
) -> None:
    for point in range(3):
        world = await a_world()
        async with world.worker():
            await world.until(State.FAILED_FINAL)
            await world.ask_rerun()
            await world.settle()
            world.runner.fail()
            await world.wait(minutes=3)
        assert await world.job_log()
        loss, repeated = OneLoss(point, fault), None
        try:
            await delete(world, tables=FaultyTables(world.tables, loss), with_history=True, forget=forget)
        except RetryLater:
            repeated = await delete(world, with_history=True, forget=forget)
        # A forgotten run leaves nothing that would tell the repetition from another request, so it is recorded, too.
        requests = 2 if forget and repeated is not None and repeated.was_deleted else 1

        assert await rows_about_run(world) == ([] if forget else [f"DELETED#stream#{DAY}"])
        assert await world.job_log() == []
        assert await world.reruns() == []
        assert (await world.events()).count(EventType.OPERATOR_ACTION) == requests
        assert loss.was_struck or point == 2


@on_virtual_time
async def test_what_is_left_of_a_forgotten_run_is_deleted_only_by_a_recorded_request_to_forget() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
    await delete(world, forget=True)
    left = await world.job_log()
    without = await delete(world, with_history=True)
    kept = await world.job_log()
    finished = await delete(world, with_history=True, forget=True)

    assert (without, kept) == (None, left)
    assert left
    assert finished is not None
    assert (finished.history, await world.job_log()) == (len(left), [])
    assert (await world.events()).count(EventType.OPERATOR_ACTION) == 2


@on_virtual_time
async def test_a_request_that_the_deleted_run_answered_is_no_new_request() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.FAILED_FINAL)
        await world.ask_rerun()
        await world.settle()
        world.runner.fail()
        await world.wait(minutes=3)
        answered = await Requests(world.tables).rerun_of(run_key())
        assert answered is not None
        await delete(world)
        # Another program writes the same row once more.
        await Requests(world.tables).ask_rerun(run_key(), answered, None)
        await world.settle()

    assert await world.run() is None


@on_virtual_time
async def test_marks_of_other_runs_stay() -> None:
    world = await a_world()
    async with world.worker():
        await world.until(State.COMPLETED)
        other = keys.told_mark_sk("X", run_key("2026-03-02"))
        await Marks(world.tables).put_once(ORDERS, other, {}, world.clock.now())
        await delete(world)

    assert await Marks(world.tables).get(ORDERS, other) is not None
    assert await Runs(world.tables).which_exist([run_key()]) == {run_key()}


async def _version(world: World) -> Version:
    version = await version_of(world.tables, ORDERS)
    assert version is not None
    return version


@dataclass
class _DeletionByAnother:
    world: World
    version: int

    async def strike(self) -> None:
        deletion = Deletion(version=self.version, at=self.world.clock.now(), by="bob", reason="meanwhile")
        await self.world.tables.commit(deletion_write(run_key(), deletion))


class StrikingTables(FaultyTables):
    """Lets something happen just before the commit that creates a run."""

    before_create: _DeletionByAnother | None = None

    async def commit(self, *writes: Write) -> None:
        strike = self.before_create
        if strike is not None and any(write.key == _run_row() for write in writes):
            self.before_create = None
            await strike.strike()
        await super().commit(*writes)


class OneLoss:
    """Loses one commit, or its answer."""

    def __init__(self, point: int, fault: Fault) -> None:
        self._left, self._fault, self.was_struck = point, fault, False

    def __call__(self, operation: Operation) -> Fault:
        if operation is not Operation.COMMIT or self.was_struck:
            return NO_FAULT
        self._left -= 1
        self.was_struck = self._left < 0
        return self._fault if self.was_struck else NO_FAULT


def _run_row() -> Key:
    return Key(keys.pipeline_pk(ORDERS), keys.trigger_sk(run_key()))
