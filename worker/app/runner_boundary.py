"""Error boundary around job runners: a bug becomes a retry, or the safe answer to that call."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from worker.core.errors import Rejected
from worker.core.probes.trait import ProbeUnknown
from worker.jobs.runner import (
    BatchRunner,
    Config,
    EndNotifier,
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
from worker.probes.runner import ProbeRequest, ProbeRunner, RawResponse
from worker.runtime.error_boundary import ErrorBoundary, UnexpectedError

T = TypeVar("T")


def contain_runner_bugs(runner: Runner, boundary: ErrorBoundary) -> Runner:
    """Return a runner that answers like `runner` and raises only what the port allows."""
    if isinstance(runner, BatchRunner):
        return _ContainedBatchRunner(runner, boundary)
    return _ContainedNotifier(runner, boundary) if isinstance(runner, EndNotifier) else _Contained(runner, boundary)


def contain_probe_bugs(runner: ProbeRunner, boundary: ErrorBoundary) -> ProbeRunner:
    """Return a probe runner that answers like `runner` and raises only what the port allows."""
    return _ContainedProbes(runner, boundary)


class _ContainedProbes:
    def __init__(self, runner: ProbeRunner, boundary: ErrorBoundary) -> None:
        self._runner, self._boundary = runner, boundary

    def target(self, config: Config, /) -> str:
        try:
            with self._boundary:
                return self._runner.target(config)
        except UnexpectedError as error:
            raise Rejected(str(error)) from error

    async def ask(self, request: ProbeRequest, /) -> RawResponse | ProbeUnknown:
        with self._boundary:
            return await self._runner.ask(request)


class _Contained:
    def __init__(self, runner: Runner, boundary: ErrorBoundary) -> None:
        self._runner, self._boundary = runner, boundary

    def traits(self, config: Config, /) -> Traits:
        return self._read(lambda: self._runner.traits(config))

    async def start(self, request: StartRequest, /) -> StartAnswer:
        try:
            return await self._runner.start(request)
        except Exception as error:  # noqa: BLE001  the job may have started: "unknown" prevents a second start
            return Unknown(str(self._boundary.report(error)))

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        with self._boundary:
            return await self._runner.status(handle, config)

    async def find(self, token: str, config: Config, /) -> Handle | None:
        with self._boundary:
            return await self._runner.find(token, config)

    async def stop(self, handle: Handle, config: Config, /) -> StopAnswer:
        with self._boundary:
            return await self._runner.stop(handle, config)

    def _read(self, read: Callable[[], T]) -> T:
        """Read a configuration. It stays the same, so a bug that it triggers is not worth a retry."""
        try:
            with self._boundary:
                return read()
        except UnexpectedError as error:
            raise Rejected(str(error)) from error


class _ContainedBatchRunner(_Contained):
    def __init__(self, runner: BatchRunner, boundary: ErrorBoundary) -> None:
        super().__init__(runner, boundary)
        self._batching = runner

    def group(self, question: StatusQuery, /) -> str:
        return self._read(lambda: self._batching.group(question))

    async def look(self, questions: Sequence[StatusQuery], more: str = "", /) -> Sightings:
        with self._boundary:
            return await self._batching.look(questions, more)


class _ContainedNotifier(_Contained):
    def __init__(self, runner: EndNotifier, boundary: ErrorBoundary) -> None:
        super().__init__(runner, boundary)
        self._notifying = runner

    async def wait_for_end(self, handle: Handle, /) -> bool:
        with self._boundary:
            return await self._notifying.wait_for_end(handle)
