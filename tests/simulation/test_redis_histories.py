"""Random histories on a real Redis server: each is the same there, commit by commit, as in memory.

So what the simulation finds holds for the Redis store: workers that crash and freeze, requests and answers that are
lost, refused or late, clocks that are wrong, a feed that is trimmed under its readers. CHAOS_ROUNDS plays more of them.
"""

import os
from typing import Final

import pytest

from tests.simulation.sampler import suite_plan
from tests.simulation.world import simulate
from tests.support.redis_virtual import OneSequence

SEEDS: Final = [2, 3] if not (rounds := int(os.environ.get("CHAOS_ROUNDS", "0"))) else range(1, 1 + max(2, rounds // 5))

pytestmark = [pytest.mark.xdist_group("redis"), pytest.mark.timeout(300)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_is_the_same_on_redis(seed: int) -> None:
    plan = suite_plan(seed)

    assert simulate(plan, make_store=OneSequence) == simulate(plan)
