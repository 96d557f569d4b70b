"""Plans drawn from a seed: of many sizes, small ones often and large ones now and then."""

import math
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.simulation.plan import Beat, Plan, full
from worker.core.membership.liveness import Timing

WORKERS: Final = (2, 5)


@dataclass(frozen=True, slots=True)
class Sizes:
    pipelines: tuple[int, int]
    hours: tuple[int, int]


# With the real beat a worker writes a hundred times as often, so such a history costs as much as a large one.
SUITE: Final = Sizes(pipelines=(2, 9), hours=(1, 8))
SUITE_REAL: Final = Sizes(pipelines=(2, 4), hours=(1, 1))
SUITE_REAL_EVERY: Final = 99
CAMPAIGN: Final = Sizes(pipelines=(3, 20), hours=(6, 48))
CAMPAIGN_REAL: Final = 0.01  # as a share
SUITE_GRAPH_EVERY: Final = 8  # has pipelines that run after others
CAMPAIGN_GRAPHS: Final = 0.4
SUITE_PROBES_EVERY: Final = 9  # has a pipeline that waits for a probe
CAMPAIGN_PROBES: Final = 0.25
# How strongly small ones are preferred. At 7, a quarter of a campaign's have 6 pipelines or 13 hours and more.
SUITE_SKEW: Final = 2.8
CAMPAIGN_SKEW: Final = 7.0


def suite_plan(seed: int) -> Plan:
    """A plan of the test suite, where all of them together have some minutes."""
    random = Random(f"suite {seed}")
    if seed % SUITE_REAL_EVERY == 1:
        return full(seed, pipelines=_between(random, SUITE_REAL.pipelines), hours=_between(random, SUITE_REAL.hours))
    plan = Plan(
        seed=seed,
        pipelines=_between(random, SUITE.pipelines),
        hours=_between(random, SUITE.hours),
        workers=random.randint(*WORKERS),
    )
    if seed % SUITE_PROBES_EVERY == 0:
        plan = replace(plan, probes=1)
    if seed % SUITE_GRAPH_EVERY:
        return plan
    # Fewer of the others, so that it costs as much as a history without any.
    return replace(plan, pipelines=random.randint(1, 2), hours=5, workers=2, downstreams=random.randint(1, 4))


def campaign_plan(seed: int) -> Plan:
    """A plan of a campaign, which may take hours."""
    random = Random(f"campaign {seed}")
    pipelines, hours = (
        _between(random, CAMPAIGN.pipelines, CAMPAIGN_SKEW),
        _between(random, CAMPAIGN.hours, CAMPAIGN_SKEW),
    )
    beat = Beat.REAL if random.random() < CAMPAIGN_REAL else Beat.SLOW
    if beat is Beat.REAL:
        hours = min(hours, _between(random, CAMPAIGN.hours, CAMPAIGN_SKEW))
    return plan_of(
        seed,
        pipelines=pipelines,
        hours=hours,
        workers=random.randint(*WORKERS),
        beat=beat,
        is_varied=random.random() < 0.5,
        downstreams=random.randint(1, 6) if random.random() < CAMPAIGN_GRAPHS else 0,
        probes=random.randint(1, pipelines) if random.random() < CAMPAIGN_PROBES else 0,
    )


def plan_of(
    seed: int,
    *,
    pipelines: int,
    hours: int,
    workers: int | None,
    beat: Beat,
    downstreams: int = 0,
    probes: int = 0,
    is_varied: bool = False,
) -> Plan:
    """The plan of a size; without a number of workers, as many as the seed says."""
    if beat is Beat.SLOW:
        plan = Plan(seed=seed, pipelines=pipelines, hours=hours, workers=workers or 2 + seed % 2)
    else:
        plan = full(seed, pipelines=pipelines, hours=hours, workers=workers or 3)
    plan = replace(plan, downstreams=downstreams, probes=probes)
    return _varied(plan) if is_varied else plan


def _varied(plan: Plan) -> Plan:
    """The same size, with other proportions between beats, passes, lags and faults. The real beat stays what it is."""
    random = Random(f"varied {plan.seed}")
    return replace(
        plan,
        is_varied=True,
        timing=_slower(plan.timing, random.choice([0.3, 0.6, 1.0, 1.5])) if plan.beat is Beat.SLOW else plan.timing,
        bucket_leases=random.choice([1, 2, 4, 8]),
        pass_every_s=plan.pass_every_s * random.uniform(0.5, 2.0),
        upkeep_every_s=plan.upkeep_every_s * random.uniform(0.5, 2.0),
        storms_last_s=plan.storms_last_s * random.uniform(0.5, 2.0),
        index_lag_s=plan.index_lag_s * random.uniform(0.2, 2.0),
        fault_every_s=math.exp(random.uniform(math.log(800.0), math.log(4000.0))),
        trouble=random.uniform(0.0, 0.1),
    )


def _slower(timing: Timing, by: float) -> Timing:
    return Timing(
        beat_s=timing.beat_s * by,
        fence_s=timing.fence_s * by,
        kill_s=timing.kill_s * by,
        look_s=timing.look_s * by,
        stall_s=timing.stall_s * by,
    )


def _between(random: Random, bounds: tuple[int, int], skew: float = SUITE_SKEW) -> int:
    """Draw by orders of magnitude, and rather a small one: what goes wrong is easier to see there, and cheaper."""
    least, most = bounds
    return min(most, int(least * ((most + 1) / least) ** (random.random() ** skew)))
