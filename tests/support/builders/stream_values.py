"""What the tests of both stream adapters write, read and wait for: one row by its value, and a day until it is gone."""

import asyncio
from datetime import timedelta

from consumers.streams.source import Batch, Source
from worker.store.table import Change, Key, Value

ROW = Key("PIPELINE#orders", "SENSOR#orders")
DAY = timedelta(hours=24, seconds=1)


def values(batch: Batch) -> list[Value]:
    return [value_of(record.change) for record in batch.records]


def value_of(change: Change) -> Value:
    assert change.image is not None
    return change.image["value"]


async def read_beside_others(source: Source) -> tuple[Batch, int]:
    """Read from the beginning, and say how many turns others had on the loop meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(others())
        batch = await source.read(await source.oldest())
        waiting.cancel()
    return batch, turns
