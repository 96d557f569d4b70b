"""Computations that take longer than others on the loop should wait: done in turns."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def in_turns(computation: Generator[None, None, T]) -> T:
    """Do a computation; wherever it yields, everything else that is ready gets its turn first."""
    while True:
        try:
            next(computation)
        except StopIteration as ended:
            return ended.value
        await asyncio.sleep(0)
