"""Cooperative computations: long work that yields, so that other tasks on the loop do not wait."""

import asyncio
from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


async def in_turns(computation: Generator[None, None, T]) -> T:
    """Run a computation; at each of its yields, all other ready tasks run first."""
    while True:
        try:
            next(computation)
        except StopIteration as ended:
            return ended.value
        await asyncio.sleep(0)
