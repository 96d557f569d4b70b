"""Runners as the engine may rely on them: what they raise by mistake is an answer like any other.

Targets are others' programs, and one day one of them answers as nobody expected. That must not end the worker: the run
would be taken up by the next one, and end it as well.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from worker.app.surprises import surprise
from worker.core.errors import Rejected, WorkerError
from worker.jobs.runner import (
    BatchRunner,
    Config,
    Handle,
    JobStatus,
    Question,
    Runner,
    Sightings,
    StartAnswer,
    StartRequest,
    StopAnswer,
    Traits,
    Unknown,
)

T = TypeVar("T")
Tell = Callable[[Exception], None]


def careful(runner: Runner, tell: Tell) -> Runner:
    """The same target; what it raises by mistake is told."""
    return _CarefulBatchRunner(runner, tell) if isinstance(runner, BatchRunner) else _CarefulRunner(runner, tell)


class _CarefulRunner:
    def __init__(self, runner: Runner, tell: Tell) -> None:
        self._runner, self._tell = runner, tell

    def traits(self, config: Config, /) -> Traits:
        return self._understood(lambda: self._runner.traits(config))

    async def start(self, request: StartRequest, /) -> StartAnswer:
        try:
            return await self._runner.start(request)
        except Exception as error:  # noqa: BLE001  it may have been sent: only an honest answer keeps it from being doubled
            return Unknown(str(surprise(error, self._tell)))

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        return await self._answered(self._runner.status(handle, config))

    async def find(self, token: str, config: Config, /) -> Handle | None:
        return await self._answered(self._runner.find(token, config))

    async def stop(self, handle: Handle, config: Config, /) -> StopAnswer:
        return await self._answered(self._runner.stop(handle, config))

    async def _answered(self, asking: Awaitable[T]) -> T:
        try:
            return await asking
        except WorkerError:
            raise
        except Exception as error:
            raise surprise(error, self._tell) from error

    def _understood(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except WorkerError:
            raise
        except Exception as error:
            raise Rejected(str(surprise(error, self._tell))) from error


class _CarefulBatchRunner(_CarefulRunner):
    def __init__(self, runner: BatchRunner, tell: Tell) -> None:
        super().__init__(runner, tell)
        self._batching = runner

    def group(self, question: Question, /) -> str:
        return self._understood(lambda: self._batching.group(question))

    async def look(self, questions: Sequence[Question], more: str = "", /) -> Sightings:
        return await self._answered(self._batching.look(questions, more))
