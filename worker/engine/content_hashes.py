"""Hashes of sensors: a row has room for a hundred thousand values, and the loop must not wait for those."""

import asyncio
from collections.abc import Mapping
from typing import Final

from worker.core.model.content_hash import content_hash
from worker.core.model.values import Json

LARGE_VALUES: Final = 2_000  # takes some thousandths of a second


async def hash_of(data: Mapping[str, Json]) -> str:
    """The content hash of a sensor; a large one is hashed in a thread."""
    return await asyncio.to_thread(content_hash, data) if is_large(data) else content_hash(data)


def is_large(data: Mapping[str, Json]) -> bool:
    """Say whether it holds many values. It counts no further than that."""
    count, pending = 0, list[Json]([data])
    while pending and count <= LARGE_VALUES:
        value = pending.pop()
        count += 1
        if isinstance(value, Mapping):
            count += len(value)
            pending += [member for member in value.values() if isinstance(member, Mapping | list | tuple)]
        elif isinstance(value, list | tuple):
            count += len(value)
            pending += [member for member in value[:LARGE_VALUES] if isinstance(member, Mapping | list | tuple)]
    return count > LARGE_VALUES
