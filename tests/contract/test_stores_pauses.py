"""A pause, its end, and the events that say who asked and why, on every store."""

import asyncio

from tests.contract.storevalues import NOW, a_pipeline
from tests.support.fakes.remote_store import FaultyTables, Operation
from worker.core.model.events import Event
from worker.core.model.ids import PipelineId
from worker.core.run.state import Pause
from worker.operations.operator_actions import Requester
from worker.operations.pipelines.pausing import pause_pipeline, resume_pipeline
from worker.store.repos.events import Events
from worker.store.repos.pauses import Pauses
from worker.store.table import Tables

KIM = Requester(name="kim", via="cli")


async def recorded(tables: Tables, pipeline: PipelineId) -> list[Event]:
    return [stored.event for stored in await Events(tables).latest(pipeline)]


async def test_a_pause_and_its_event_are_one_commit(tables: Tables) -> None:
    pipeline = a_pipeline()
    commits = FaultyTables(tables)

    assert await pause_pipeline(commits, pipeline, Pause("migration"), KIM, NOW) is None
    assert await resume_pipeline(commits, pipeline, "done", KIM, NOW) == Pause("migration")

    assert commits.calls[Operation.COMMIT] == 2
    said = {event.message for event in await recorded(tables, pipeline)}
    assert said == {f"kim requested pause of {pipeline}: migration", f"kim requested resume of {pipeline}: done"}


async def test_two_people_who_resume_at_once_are_recorded_once(tables: Tables) -> None:
    pipeline = a_pipeline()
    await Pauses(tables).put(pipeline, Pause("migration"))

    ended = await asyncio.gather(*(resume_pipeline(tables, pipeline, "done", KIM, NOW) for _ in range(10)))

    assert [pause for pause in ended if pause is not None] == [Pause("migration")]
    assert len(await recorded(tables, pipeline)) == 1
