"""Many reads at once, as if they were one: a bounded number at a time, and one failure instead of a group of them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, cast

T = TypeVar("T")
AT_ONCE = 16


async def together(reads: Sequence[Callable[[], Awaitable[T]]], *, at_once: int = AT_ONCE) -> list[T]:
    """Do all of them; the answers come in the order of the questions. Raises what the first that failed raised."""
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
    """Wait for something that does many things at once. Its callers handle failures by type, and a group has none."""
    try:
        return await reading
    except ExceptionGroup as group:
        raise _first(group) from group


def _first(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first(cast("ExceptionGroup[Exception]", first)) if isinstance(first, ExceptionGroup) else first
