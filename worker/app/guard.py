"""Containment of bugs: an unexpected error becomes a retry or a failed answer instead of a crash loop."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

from worker.core.errors import Rejected, RetryLater, WorkerError
from worker.jobs.runner import (
    BatchRunner,
    Config,
    Handle,
    JobStatus,
    Runner,
    Sightings,
    StartAnswer,
    StartRequest,
    StatusQuery,
    StopAnswer,
    Traits,
    Unknown,
)
from worker.runtime.logs import logger

T = TypeVar("T")
Handler: TypeAlias = Callable[[T], Awaitable[None]]

_log = logger()


class UnexpectedError(RetryLater):
    """Something nobody expected: tried again like any trouble, and kept as a dead letter if it stays."""


def log_unexpected(surprise: Exception) -> None:
    _log.error("mistake.met", exc_info=surprise)


def unexpected(error: Exception, tell: Callable[[Exception], None]) -> UnexpectedError:
    """Tell what was raised by mistake, and give what it is from then on."""
    tell(error)
    return UnexpectedError(f"{type(error).__name__}: {error}; this is a mistake in Interlock, please report it")


def contain_bugs(handle: Handler[T], tell: Callable[[Exception], None] = log_unexpected) -> Handler[T]:
    """Do what `handle` does; what it raises by mistake is told and becomes a `UnexpectedError`."""

    async def guarded(thing: T) -> None:
        try:
            await handle(thing)
        except WorkerError:
            raise
        except Exception as error:
            raise unexpected(error, tell) from error

    return guarded


Tell = Callable[[Exception], None]


def contain_runner_bugs(runner: Runner, tell: Tell) -> Runner:
    """The same target; what it raises by mistake is told."""
    return _GuardedBatchRunner(runner, tell) if isinstance(runner, BatchRunner) else _GuardedRunner(runner, tell)


class _GuardedRunner:
    def __init__(self, runner: Runner, tell: Tell) -> None:
        self._runner, self._tell = runner, tell

    def traits(self, config: Config, /) -> Traits:
        return self._understood(lambda: self._runner.traits(config))

    async def start(self, request: StartRequest, /) -> StartAnswer:
        try:
            return await self._runner.start(request)
        except Exception as error:  # noqa: BLE001  it may have been sent: only an honest answer keeps it from being doubled
            return Unknown(str(unexpected(error, self._tell)))

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
            raise unexpected(error, self._tell) from error

    def _understood(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except WorkerError:
            raise
        except Exception as error:
            raise Rejected(str(unexpected(error, self._tell))) from error


class _GuardedBatchRunner(_GuardedRunner):
    def __init__(self, runner: BatchRunner, tell: Tell) -> None:
        super().__init__(runner, tell)
        self._batching = runner

    def group(self, question: StatusQuery, /) -> str:
        return self._understood(lambda: self._batching.group(question))

    async def look(self, questions: Sequence[StatusQuery], more: str = "", /) -> Sightings:
        return await self._answered(self._batching.look(questions, more))
