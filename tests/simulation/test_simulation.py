"""Random histories: whatever crashes, freezes, repeats, is lost or late, the invariants hold after every commit."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.simulation.__main__ import replay
from tests.simulation.graph import HOURLY, draw_graph
from tests.simulation.plan import Beat, Plan, draw_pipeline, small
from tests.simulation.sampler import campaign_plan, plan_of, suite_plan
from tests.simulation.world import Report, simulate
from worker.store.sqlite.tables import SqliteTables

# A test takes some seconds of a core, which may be minutes on a machine with other work to do.
pytestmark = pytest.mark.timeout(300)

SEEDS = 200  # `make simulate-campaign` plays others, as many as asked
ROOTS = [draw_pipeline(number, Random(number)) for number in range(2)]
AT_ONCE = 2  # seeds of one test: few, so that both cores have something to do and no test takes long


@pytest.mark.parametrize("first", range(1, SEEDS + 1, AT_ONCE))
def test_the_invariants_hold_in_every_history(first: int) -> None:
    jobs = sum(_played(suite_plan(seed)).jobs for seed in range(first, first + AT_ONCE))

    assert jobs, "histories in which nothing started show nothing"


def _played(plan: Plan) -> Report:
    try:
        return simulate(plan)
    except AssertionError as violated:
        pytest.fail(f"{violated}\nreplay it with: {replay(plan)}")


# Histories that once broke an invariant. What each of them showed has a smaller test, too.
BROKE = [
    # An undated signal was bound to the day of a look at its row, although its record named the day before.
    Plan(seed=700008, pipelines=6, hours=12, workers=2),
    # A run was cancelled while a job ran that an unanswered start, later repeated, had left.
    Plan(seed=700100, pipelines=6, hours=12, workers=2),
    # The job of an unanswered start reported its failure, and the run was tried again beside the job that it followed.
    Plan(seed=910022, pipelines=6, hours=12, workers=2),
    # The same with a success: the run ended, and nobody was told that the job which it followed ran on.
    Plan(seed=141, pipelines=3, hours=11, workers=2),
    # A signal changed while its reader was frozen, and the history was taken to be over before anybody had read that.
    Plan(seed=4001319, pipelines=3, hours=14, workers=2),
    # A worker evaluated a run of a dead owner, its commit was applied without an answer, and nobody sent the start.
    Plan(seed=7000703, pipelines=3, hours=6, workers=4, is_varied=True),
    # A run further above waited for a failed run, and the results below it stayed out of date in silence.
    Plan(seed=15000012, pipelines=3, hours=6, workers=3, downstreams=6, probes=3, is_varied=True),
    Plan(seed=15000119, pipelines=3, hours=24, workers=2, downstreams=6, is_varied=True),
    Plan(seed=15000164, pipelines=3, hours=6, workers=5, downstreams=6, is_varied=True),
]


@pytest.mark.parametrize("plan", BROKE, ids=str)
def test_the_invariants_hold_in_a_history_that_once_broke_one(plan: Plan) -> None:
    assert simulate(plan).jobs


@pytest.mark.parametrize("draw", [suite_plan, campaign_plan])
def test_the_command_for_a_replay_names_all_of_a_plan(draw: Callable[[int], Plan]) -> None:
    for plan in (draw(seed) for seed in range(1, SEEDS + 1)):
        said = dict(word.split("=") for word in replay(plan).split() if "=" in word)
        again = plan_of(
            int(said["SEED"]),
            pipelines=int(said["PIPELINES"]),
            hours=int(said["HOURS"]),
            workers=int(said["WORKERS"]),
            beat=Beat(said["BEAT"]),
            downstreams=int(said.get("DOWNSTREAMS", "0")),
            probes=int(said.get("PROBES", "0")),
            is_varied="VARIED" in said,
        )

        assert again == plan


def test_the_histories_of_the_suite_are_of_many_sizes() -> None:
    plans = [suite_plan(seed) for seed in range(1, SEEDS + 1)]

    assert {plan.workers for plan in plans} == {2, 3, 4, 5}
    assert {plan.beat for plan in plans} == set(Beat)
    assert len({(plan.pipelines, plan.hours) for plan in plans}) > 25


def test_a_share_of_the_histories_has_chains_diamonds_and_days_that_need_24_hours() -> None:
    graphs = [draw_graph(plan, ROOTS) for plan in map(suite_plan, range(1, SEEDS + 1)) if plan.downstreams]
    after = [[len(each.schedules[0].after) for each in graph] for graph in graphs]

    assert len(graphs) >= SEEDS // 8
    assert sum(any(each.id == HOURLY for each in graph) for graph in graphs) >= 5
    assert sum(counts.count(1) >= 3 for counts in after) >= 5, "chains"
    assert sum(2 in counts for counts in after) >= 3, "diamonds"


@pytest.mark.parametrize("plan", [small(7), suite_plan(2)], ids=str)
def test_a_seed_gives_the_same_history_every_time_and_on_the_shipped_store(plan: Plan) -> None:
    assert simulate(plan) == simulate(plan, make_store=SqliteTables.in_memory)


PRINT_DIGEST = """
from dataclasses import replace
from tests.simulation.__main__ import be_quiet
from tests.simulation.plan import small_probes
from tests.simulation.world import simulate
be_quiet()
print(simulate(replace(small_probes(5), downstreams=2)).digest)
"""


def test_a_seed_gives_the_same_history_in_every_process() -> None:
    """Each process orders sets of texts differently, and draws other random ids."""
    digests = [
        subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST],
            env={**os.environ, "PYTHONHASHSEED": str(number)},
            cwd=Path(__file__).parents[2],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
        for number in (1, 2, 3)
    ]

    assert digests == digests[:1] * 3


def test_two_seeds_give_two_histories() -> None:
    assert simulate(suite_plan(3)).digest != simulate(replace(suite_plan(3), seed=4)).digest
