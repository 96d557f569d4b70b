"""The simulation can fail: each of a dozen mistakes is caught within a few seeds, by the invariant it breaks."""

from collections.abc import Callable, Mapping

import pytest

from tests.simulation.bugs import (
    BUGS,
    GRAPH_BUGS,
    PROBE_BUGS,
    Bug,
    adopt_by_one_index_read,
    ask_whenever_a_run_begins_to_wait,
    double_the_budgets,
    forget_reruns_above,
    forget_what_changed_while_the_job_ran,
    judge_by_the_time_only,
    judge_outside_of_the_runs_commit,
    leave_the_run_id_out_of_the_token,
    rerun_for_each_upstream,
    wake_one_downstream_only,
)
from tests.simulation.plan import Plan, small, small_graph, small_probes
from tests.simulation.violations import Violated
from tests.simulation.world import simulate

SEEDS_MAX = 12
# Most bugs show at once; where it takes a rarer history, the search begins close to one.
FIRST_SEED: Mapping[Bug, int] = {
    adopt_by_one_index_read: 4,
    ask_whenever_a_run_begins_to_wait: 7,
    double_the_budgets: 5,
    forget_reruns_above: 3,
    forget_what_changed_while_the_job_ran: 33,
    judge_by_the_time_only: 4,
    judge_outside_of_the_runs_commit: 5,
    leave_the_run_id_out_of_the_token: 2,
    rerun_for_each_upstream: 10,
    wake_one_downstream_only: 3,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_is_caught_within_a_few_seeds(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    caught = _first_violation(FIRST_SEED.get(bug, 1))

    assert caught.invariant in BUGS[bug], caught


@pytest.mark.parametrize("bug", GRAPH_BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_of_dependencies_is_caught_within_a_few_seeds(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    caught = _first_violation(FIRST_SEED.get(bug, 1), small_graph)

    assert caught.invariant in GRAPH_BUGS[bug], caught


@pytest.mark.parametrize("bug", PROBE_BUGS, ids=lambda bug: bug.__name__)
def test_a_seeded_bug_of_probes_is_caught_within_a_few_seeds(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)

    caught = _first_violation(FIRST_SEED.get(bug, 1), small_probes)

    assert caught.invariant in PROBE_BUGS[bug], caught


def _first_violation(first: int, draw: Callable[[int], Plan] = small) -> Violated:
    for seed in range(first, first + SEEDS_MAX):
        try:
            simulate(draw(seed))
        except Violated as violated:
            return violated
    pytest.fail(f"{SEEDS_MAX} seeds did not show it")
