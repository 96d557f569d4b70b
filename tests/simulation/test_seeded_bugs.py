"""The simulation can fail: each of a dozen mistakes is caught within a few seeds, by the invariant it breaks."""

import pytest

from tests.simulation.bugs import BUGS, Bug
from tests.simulation.plan import small
from tests.simulation.violations import Violated
from tests.simulation.world import simulate

SEEDS_MAX = 12


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_is_caught_within_a_few_seeds(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    caught = _first_violation()

    assert caught.invariant in BUGS[bug], caught


def _first_violation() -> Violated:
    for seed in range(1, SEEDS_MAX + 1):
        try:
            simulate(small(seed))
        except Violated as violated:
            return violated
    pytest.fail(f"{SEEDS_MAX} seeds did not show it")
