"""Mistakes of our own, kept from ending the worker again and again after every restart."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from worker.core.errors import RetryLater, WorkerError
from worker.runtime.logs import logger

T = TypeVar("T")
Handle: TypeAlias = Callable[[T], Awaitable[None]]

_log = logger()


class Surprise(RetryLater):
    """Something nobody expected: tried again like any trouble, and kept as a dead letter if it stays."""


def log_surprise(surprise: Exception) -> None:
    _log.error("mistake.met", exc_info=surprise)


def surprise(error: Exception, tell: Callable[[Exception], None]) -> Surprise:
    """Tell what was raised by mistake, and give what it is from then on."""
    tell(error)
    return Surprise(f"{type(error).__name__}: {error}; this is a mistake in Interlock, please report it")


def expecting_surprises(handle: Handle[T], tell: Callable[[Exception], None] = log_surprise) -> Handle[T]:
    """Do what `handle` does; what it raises by mistake is told and becomes a `Surprise`."""

    async def guarded(thing: T) -> None:
        try:
            await handle(thing)
        except WorkerError:
            raise
        except Exception as error:
            raise surprise(error, tell) from error

    return guarded
