"""The archive on every backend: every event and every end of a run is in it, whatever goes wrong meanwhile."""

import gzip
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from tests.contract.storevalues import NOW, a_name, a_run, a_watch, run_key_of
from tests.support.clock.manual import ManualClock
from worker.core.errors import RetryLater
from worker.core.model.events import Event
from worker.core.model.job_data import JobInput, JobInputs, JobOutputs
from worker.core.model.pipeline import PipelineId
from worker.core.model.values import Json
from worker.core.run.state import Outcome, Run, State
from worker.operations.archive.archiver import RECORDS_MAX, STALLED_AFTER, Archiver
from worker.operations.archive.history import History
from worker.operations.archive.windows import ArchiveWindow
from worker.store.repos import run_data
from worker.store.repos.delivery.archive_progress import ArchiveProgress, ArchiveProgresses
from worker.store.repos.events import event_write
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class Shelf:
    """Keeps objects in memory; the next `failures` puts fail, before or after the object was kept."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.puts = self.failures = 0
        self.keeps_although_failing = False

    async def put(self, name: str, content: bytes) -> None:
        self.puts += 1
        if self.failures:
            self.failures -= 1
            if self.keeps_although_failing:
                self.objects[name] = content
            raise RetryLater("the shelf is full; make room")
        self.objects[name] = content

    def records(self, kind: str, pipeline: str = "") -> list[dict[str, Any]]:
        lines = [
            json.loads(line)
            for name, content in sorted(self.objects.items())
            if name.startswith(f"{kind}/")
            for line in gzip.decompress(content).splitlines()
        ]
        return [each for each in lines if each["pipeline"].startswith(pipeline)]

    def ids(self, kind: str, pipeline: str = "") -> list[str]:
        return [each["id"] for each in self.records(kind, pipeline)]


class OneTeam(History):
    """Leaves out what other tests wrote into the same tables."""

    def __init__(self, tables: Tables, team: str) -> None:
        super().__init__(tables)
        self._team = team

    async def events(self, window: ArchiveWindow) -> AsyncIterator[Mapping[str, Json]]:
        async for each in super().events(window):
            if str(each["pipeline"]).startswith(self._team):
                yield each

    async def runs(self, window: ArchiveWindow) -> AsyncIterator[Mapping[str, Json]]:
        async for each in super().runs(window):
            if str(each["pipeline"]).startswith(self._team):
                yield each


class Rig:
    def __init__(self, tables: Tables, clock: ManualClock) -> None:
        self.tables, self.clock, self.shelf, self.team = tables, clock, Shelf(), f"p-{a_name()}"
        self.progresses = ArchiveProgresses(tables, f"memory:{self.team}")

    async def begin(self, at: datetime) -> None:
        """Begin at a time near the test's rows: a new archive would first read all days of the retention."""
        assert await self.progresses.save(ArchiveProgress(up_to=at, began_at=NOW, moved_at=NOW)) is not None

    def archiver(self) -> Archiver:
        return Archiver(OneTeam(self.tables, self.team), self.shelf, self.progresses, self.clock, name="memory")

    async def archive(self) -> int:
        archiver, steps = self.archiver(), 0
        while await archiver.step(lambda: True) is not None:
            steps += 1
        return steps

    async def put_event(self, at: datetime, number: int = 0, detail: Mapping[str, Json] | None = None) -> Event:
        event = Event(id=a_name(), type="JOB_COMPLETED", at=at, pipeline=f"{self.team}-{number}", detail=detail or {})
        await self.tables.commit(event_write(event))
        return event

    async def put_ended(self, at: datetime, name: str = "run") -> Run:
        run = replace(
            a_run(State.COMPLETED),
            key=run_key_of(PipelineId(f"{self.team}-{name}")),
            outcome=Outcome.SUCCEEDED,
            since=at,
        )
        return await Runs(self.tables).save(run)


# A window is some ninety queries, which take a second on an emulator: it shows what depends on the backend.
ON_EMULATORS = {"test_events_and_ended_runs_are_archived_by_day_with_inputs_outputs_and_attempts"}


@pytest.fixture
async def rig(tables: Tables, clock: ManualClock, backend: str, request: pytest.FixtureRequest) -> Rig:
    if backend.startswith("dynamodb") and str(cast("Any", request).node.originalname) not in ON_EMULATORS:
        pytest.skip("the other backends show it")
    made = Rig(tables, clock)
    await made.begin(NOW - HOUR)
    return made


async def test_events_and_ended_runs_are_archived_by_day_with_inputs_outputs_and_attempts(rig: Rig) -> None:
    event = await rig.put_event(NOW - 30 * MINUTE, detail={"rows": 3, "password": "hunter2"})
    run = await rig.put_ended(NOW - 20 * MINUTE)
    inputs = JobInputs(attempt=1, inputs={"S": JobInput(content_hash="h", data={"rows": 7, "apiToken": "hunter2"})})
    outputs = JobOutputs(attempt=1, outputs={"seen": 7, "secret": "hunter2"})
    await rig.tables.commit(run_data.inputs_write(run.key, inputs, NOW), run_data.outputs_write(run.key, outputs, NOW))
    await SlaWatches(rig.tables).save(a_watch(run.key))

    await rig.archive()

    [archived], [ended] = rig.shelf.records("events"), rig.shelf.records("runs")
    assert (archived["id"], archived["type"], archived["eventType"]) == (event.id, "event", "JOB_COMPLETED")
    assert (ended["runId"], ended["inputs"]["S"]["data"]["rows"], ended["outputs"]["seen"]) == (run.run_id, 7, 7)
    assert (ended["deadline"]["verdict"], len(ended["attempts"])) == (None, 1)
    assert not [name for name, content in rig.shelf.objects.items() if b"hunter2" in gzip.decompress(content)]
    assert {name.split("/")[1] for name in rig.shelf.objects} == {"day=2026-03-03"}


async def test_a_run_that_ends_again_is_archived_again(rig: Rig) -> None:
    run = await rig.put_ended(NOW - 40 * MINUTE)
    await rig.archive()
    rig.clock.advance(HOUR)
    await Runs(rig.tables).save(replace(run, attempt=2, since=NOW + 10 * MINUTE))
    await rig.archive()

    assert [(each["runId"], each["attempt"]) for each in rig.shelf.records("runs")] == [
        (run.run_id, 1),
        (run.run_id, 2),
    ]
    assert len(set(rig.shelf.ids("runs"))) == 2


async def test_each_side_of_midnight_is_in_its_own_day(rig: Rig) -> None:
    midnight = NOW.replace(hour=0)
    await rig.progresses.save(replace(await _progress(rig), up_to=midnight - DAY))
    before = await rig.put_event(midnight - timedelta(milliseconds=1))
    after = await rig.put_event(midnight)
    await rig.put_ended(midnight - timedelta(milliseconds=1), "before")
    await rig.put_ended(midnight, "after")

    await rig.archive()

    days = {each["id"]: name.split("/")[1] for name in rig.shelf.objects for each in _lines(rig.shelf, name)}
    assert (days[before.id], days[after.id]) == ("day=2026-03-02", "day=2026-03-03")
    runs = {each["pipeline"].rpartition("-")[2]: days[each["id"]] for each in rig.shelf.records("runs")}
    assert runs == {"before": "day=2026-03-02", "after": "day=2026-03-03"}


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_failing_target_loses_nothing_and_a_repeat_has_the_same_names(rig: Rig, is_kept: bool) -> None:
    events = [await rig.put_event(NOW - 50 * MINUTE + number * 8 * MINUTE) for number in range(5)]
    rig.shelf.keeps_although_failing = is_kept
    for failures in (1, 2):
        rig.shelf.failures = failures
        for _ in range(failures):
            with pytest.raises(RetryLater, match="make room"):
                await rig.archive()

    await rig.archive()

    assert Counter(rig.shelf.ids("events")) == Counter(event.id for event in events)


async def test_a_crash_between_the_object_and_the_progress_repeats_the_same_objects(rig: Rig) -> None:
    await rig.put_event(NOW - 50 * MINUTE)
    seen = await _progress(rig)
    await rig.archive()
    names = set(rig.shelf.objects)
    reached = await _progress(rig)
    assert await rig.progresses.save(replace(seen, version=reached.version))  # as if none of it had been saved

    await rig.archive()

    assert set(rig.shelf.objects) == names
    assert rig.shelf.puts == 2 * len(names)


async def test_two_archivers_at_once_write_the_same_and_one_saves(rig: Rig) -> None:
    await rig.put_event(NOW - 50 * MINUTE)
    one, two = rig.archiver(), rig.archiver()
    stale = await _progress(rig)

    while await one.step(lambda: True) is not None:
        pass
    assert await rig.progresses.save(replace(stale, up_to=NOW - 2 * DAY)) is None
    while await two.step(lambda: True) is not None:
        pass

    assert len(rig.shelf.ids("events")) == 1
    assert (await _progress(rig)).up_to > NOW - 20 * MINUTE


async def test_an_event_that_appears_late_is_found_by_the_second_reading(rig: Rig) -> None:
    first = await rig.put_event(NOW - 50 * MINUTE)
    await rig.archive()
    names = set(rig.shelf.objects)
    late = await rig.put_event(NOW - 48 * MINUTE)
    rig.clock.advance(HOUR)
    await rig.archive()

    assert set(rig.shelf.ids("events")) == {first.id, late.id}
    assert len(set(rig.shelf.objects) - names) == 1


async def test_the_second_reading_writes_nothing_if_nothing_changed(rig: Rig) -> None:
    await rig.put_event(NOW - 50 * MINUTE)
    await rig.put_ended(NOW - 50 * MINUTE)
    await rig.archive()
    puts = rig.shelf.puts
    rig.clock.advance(2 * HOUR)
    await rig.archive()

    assert rig.shelf.puts == puts
    assert min((await _progress(rig)).open) == "2026-03-03T13:00:00Z 15m"  # later ones are read again later


async def test_an_archive_that_stands_still_says_so_and_when_history_is_lost(rig: Rig) -> None:
    archiver = rig.archiver()
    await rig.archive()

    assert await archiver.problem(NOW + STALLED_AFTER - MINUTE) is None
    assert "events are lost from 2026-06" in str(await archiver.problem(NOW + STALLED_AFTER))
    assert "events are being lost" in str(await archiver.problem(NOW + 91 * DAY))


async def test_an_archiver_without_its_lease_writes_nothing(rig: Rig) -> None:
    await rig.put_event(NOW - 50 * MINUTE)

    assert await rig.archiver().step(lambda: False) is None
    assert rig.shelf.objects == {}


async def test_ten_thousand_events_of_one_window_become_objects_of_bounded_size(rig: Rig, backend: str) -> None:
    if backend != "sqlite-memory":
        pytest.skip("the bounds are the archiver's own; one backend shows them")
    at = NOW - 50 * MINUTE
    for begin in range(0, 10_000, 100):
        events = [
            Event(id=f"{number}", type="JOB_COMPLETED", at=at, pipeline=f"{rig.team}-{number}")
            for number in range(begin, begin + 100)
        ]
        await rig.tables.commit(*map(event_write, events))

    await rig.archive()

    sizes = [len(_lines(rig.shelf, name)) for name in rig.shelf.objects]
    assert max(sizes) == RECORDS_MAX
    assert len(rig.shelf.ids("events")) == len(set(rig.shelf.ids("events"))) == 10_000


async def test_a_new_archive_begins_with_the_oldest_rows_of_the_store(rig: Rig, backend: str) -> None:
    if backend != "memory":
        pytest.skip("four hundred days of lists take seconds; the windows are the archiver's own")
    old = await rig.put_ended(NOW - 380 * DAY)
    rig.progresses = ArchiveProgresses(rig.tables, "memory:another")

    steps = await rig.archive()

    assert [each["runId"] for each in rig.shelf.records("runs")] == [old.run_id]
    assert steps < 450


async def _progress(rig: Rig) -> ArchiveProgress:
    progress = await rig.progresses.load()
    assert progress is not None
    return progress


def _lines(shelf: Shelf, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(shelf.objects[name]).splitlines()]
