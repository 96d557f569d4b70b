"""Bounded concurrency: gather with a limit, and a task group that lists its tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from contextvars import Context
from typing import Any, TypeVar, cast

T = TypeVar("T")
AT_ONCE = 16


async def gather_bounded(reads: Sequence[Callable[[], Awaitable[T]]], *, at_once: int = AT_ONCE) -> list[T]:
    """Run all reads, at most `at_once` at a time; return results in order. Raises the first error."""
    turn = asyncio.Semaphore(at_once)

    async def take_turn(read: Callable[[], Awaitable[T]]) -> T:
        async with turn:
            return await read()

    async def all_of_them() -> list[T]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(take_turn(read), name=f"read:{number}") for number, read in enumerate(reads)]
        return [task.result() for task in tasks]

    return await as_one(all_of_them())


async def as_one(reading: Awaitable[T]) -> T:
    """Await a task group's work and raise its first error alone, because callers handle errors by type."""
    try:
        return await reading
    except ExceptionGroup as group:
        raise _first(group) from group


def _first(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first(cast("ExceptionGroup[Exception]", first)) if isinstance(first, ExceptionGroup) else first


class TrackedTaskGroup(asyncio.TaskGroup):
    """TaskGroup whose tasks can be awaited by name and cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._under_way: set[asyncio.Task[Any]] = set()

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        task = super().create_task(coro, name=name, context=context)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def wait_for(self, beginning: str, *, timeout_s: float) -> None:
        """Wait at most `timeout_s` for the tasks whose names start with `beginning`."""
        if chosen := {task for task in self._under_way if task.get_name().startswith(beginning)}:
            await asyncio.wait(chosen, timeout=timeout_s)

    def end_all(self) -> None:
        """Cancel every task; the group itself continues."""
        for task in self._under_way:
            task.cancel()
