"""Large sensors are hashed where the loop does not wait for it, and to the same hash."""

import asyncio

import pytest

from worker.core.model.content_hash import content_hash
from worker.core.model.values import Json
from worker.engine.content_hashes import LARGE_VALUES, hash_of, is_large


def nested(depth: int) -> dict[str, Json]:
    return {"inner": nested(depth - 1), "rows": 1} if depth else {}


SMALL: list[dict[str, Json]] = [
    {},
    {"rows": 3},
    {"text": "x" * 300_000},
    nested(50),
    {"rows": list(range(LARGE_VALUES - 3))},
]
LARGE: list[dict[str, Json]] = [
    {"rows": [1.5] * 100_000},
    {str(number): "" for number in range(30_000)},
    {"rows": [[[1]]] * 1_000},
    {"files": [{"name": "a", "rows": 1}] * 1_000},
]


@pytest.mark.parametrize(("data", "large"), [*((data, False) for data in SMALL), *((data, True) for data in LARGE)])
async def test_a_sensor_of_many_values_is_large_and_every_hash_is_the_same(data: dict[str, Json], large: bool) -> None:
    assert is_large(data) is large
    assert await hash_of(data) == content_hash(data)


async def test_the_loop_goes_on_while_a_large_sensor_is_hashed() -> None:
    hashing = asyncio.create_task(hash_of(LARGE[0]))
    turns = 0

    while not hashing.done():
        turns += 1
        await asyncio.sleep(0)

    assert turns > 3
