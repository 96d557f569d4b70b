"""A group of tasks that can say what is still under way."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar

T = TypeVar("T")


class Undertakings(asyncio.TaskGroup):
    """As any task group; besides, its tasks can be waited for and ended by their names."""

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
        """Wait for the tasks whose names begin so, and no longer than this."""
        if chosen := {task for task in self._under_way if task.get_name().startswith(beginning)}:
            await asyncio.wait(chosen, timeout=timeout_s)

    def end_all(self) -> None:
        """Cancel every task; the group itself goes on."""
        for task in self._under_way:
            task.cancel()
