"""Count the file changes a reader makes who follows one sensor record from the router to the start of its job."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType

from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.engine import a_world
from worker.engine import engine
from worker.store.table import TableName

ENGINE_FILE = Path(engine.__file__)
ENGINE_FOLDER = ENGINE_FILE.parent

FILE_CHANGES_MAX = 43
ENGINE_ENTRIES_MAX = 6


class CallPath:
    """Records, in order, the calls of functions in `worker/engine/` until a runner is told to start a job.

    A coroutine counts once, when it begins to run: resuming it after an `await` is no call.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []  # the file, and the function
        self._frames: dict[int, FrameType] = {}  # kept alive, so that their ids stay unique
        self._is_recording = False

    @contextmanager
    def traced(self) -> Generator[None]:
        """Watch every call in the block; only those after `record` are part of the path."""
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def record(self) -> None:
        self._is_recording = True

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        if frame.f_code is FakeRunner.start.__code__:
            self._is_recording = False
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ENGINE_FOLDER) and id(frame) not in self._frames:
            self._frames[id(frame)] = frame
            if self._is_recording:
                self.calls.append((str(file.relative_to(ENGINE_FOLDER)), frame.f_code.co_qualname))

    @property
    def file_changes(self) -> list[tuple[str, str]]:
        return [(before, after) for (before, _), (after, _) in pairwise(self.calls) if before != after]

    @property
    def engine_entries(self) -> list[tuple[str, str]]:
        return [change for change in self.file_changes if change[1] == ENGINE_FILE.name]

    def __str__(self) -> str:
        return "\n".join(f"{file}: {name}" for file, name in self.calls)


@on_virtual_time
async def test_the_path_from_a_sensor_record_to_the_start_of_its_job_changes_files_rarely() -> None:
    world, path = await a_world(), CallPath()
    with path.traced():
        async with world.worker(reads_feed=False) as worker:
            await world.deploy()
            await world.count(100)
            await world.drain(worker)
            await world.settle()
            await world.ready()
            *_, change = await world.tables.changes(TableName.CONTROL, 0)

            path.record()
            await worker.router.handle(change)
            await world.settle()

    assert len(world.runner.starts) == 1
    assert len(path.file_changes) <= FILE_CHANGES_MAX, str(path)
    assert len(path.engine_entries) <= ENGINE_ENTRIES_MAX, str(path)
