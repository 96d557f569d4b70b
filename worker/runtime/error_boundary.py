"""Error boundary: the one place that turns a bug (an unexpected exception) into a retry."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, ParamSpec, TypeAlias, TypeVar

from worker.core.errors import RetryLater, WorkerError
from worker.runtime.logs import logger

P = ParamSpec("P")
T = TypeVar("T")
OnUnexpectedError: TypeAlias = Callable[[Exception], None]
Boundary: TypeAlias = AbstractContextManager[None, None]

# Lets bugs through, because a test of one component must fail on them.
NO_BOUNDARY: Final[Boundary] = nullcontext()

_log = logger()


class UnexpectedError(RetryLater):
    """UnexpectedError is a bug in Interlock: callers retry it, and keep a dead letter if it persists."""


def log_unexpected_error(error: Exception) -> None:
    _log.error("mistake.met", exc_info=error)


class ErrorBoundary:
    """Reports an unexpected exception and raises `UnexpectedError` in its place; a context manager.

    A `WorkerError` and a cancellation pass unchanged. The boundary keeps no state, so tasks can share one.
    """

    def __init__(self, on_unexpected_error: OnUnexpectedError = log_unexpected_error) -> None:
        self._on_unexpected_error = on_unexpected_error

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, WorkerError):
            raise self.report(error) from error

    def report(self, error: Exception) -> UnexpectedError:
        """Report a bug and return the `UnexpectedError` to raise for it."""
        self._on_unexpected_error(error)
        return UnexpectedError(f"{type(error).__name__}: {error}; this is a mistake in Interlock, please report it")

    def around(self, work: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        """Return a function that runs `work` inside this boundary."""

        async def inside(*args: P.args, **kwargs: P.kwargs) -> T:
            with self:
                return await work(*args, **kwargs)

        return inside
