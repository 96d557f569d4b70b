"""Content hashes of sensors: hashes large sensors in a thread, so that the event loop is not blocked.

A row can hold a hundred thousand values.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from worker.core.model.content_hash import hash_and_size
from worker.core.model.values import Json

LARGE_VALUES: Final = 2_000  # hashing this many takes a few milliseconds


async def hash_of(data: Mapping[str, Json]) -> str:
    """Return the content hash of a sensor; hash a large one in a thread."""
    return (await hash_and_size_of(data))[0]


async def hash_and_size_of(data: Mapping[str, Json]) -> tuple[str, int]:
    """Return the content hash of a sensor and its size in bytes; hash a large one in a thread."""
    return await asyncio.to_thread(hash_and_size, data) if is_large(data) else hash_and_size(data)


def is_large(data: Mapping[str, Json]) -> bool:
    """Return whether the data holds more than `LARGE_VALUES` values. Stops counting there."""
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
