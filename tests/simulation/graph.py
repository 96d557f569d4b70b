"""Pipelines that run after others in a simulated world: chains, diamonds, and a day that needs 24 hours."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Final

from tests.simulation.plan import Plan, draw_job, draw_kind
from tests.simulation.target import world_time
from worker.config.load import load_text
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Dependency, Pipeline, PipelineId
from worker.core.model.values import Json
from worker.core.time.periods import Granularity, Period

HOURLY: Final = PipelineId("h00")  # the one whose 24 hours make a day
HOURS_OF_DAY: Final = 24


class Shape(StrEnum):
    CHAIN = "chain"
    DIAMOND = "diamond"
    FAN_IN = "fan-in"
    ANY = "any"


def draw_graph(plan: Plan, roots: Sequence[Pipeline]) -> list[Pipeline]:
    """The pipelines below the roots, and the hourly one if there is a day. All luck is their own."""
    random = Random(f"graph {plan.seed}")
    if not plan.downstreams:
        return []
    shape = random.choices(list(Shape), weights=[3, 3, 3, 2])[0]
    drawn: list[Pipeline] = []
    above = [random.choice(roots).id]
    if shape is Shape.FAN_IN:
        drawn.append(_load(_hourly(random)))
        above = [HOURLY]
    for number in range(plan.downstreams):
        below = [each.id for each in drawn if each.id != HOURLY]
        match shape:
            case Shape.CHAIN | Shape.FAN_IN:
                upstreams = [*(below[-1:] or above)]
            case Shape.DIAMOND if number < 2:
                upstreams = [*above]
            case Shape.DIAMOND if number == 2:
                upstreams = below
            case _:
                upstreams = random.sample([*dict.fromkeys([*above, *below, random.choice(roots).id])], k=1)
                if below and random.random() < 0.5:
                    upstreams = [*dict.fromkeys([*upstreams, random.choice(below)])]
        grain = "day" if shape is Shape.FAN_IN else None
        drawn.append(_load(_downstream(number, upstreams, grain, random)))
    return drawn


def _hourly(random: Random) -> dict[str, Json]:
    trigger: dict[str, Json] = {"key": "ready", "check": "equals", "field": "status", "value": "done"}
    return {
        "pipeline": {"id": HOURLY},
        "schedule": {"grain": "hour", "trigger": trigger},
        "job": draw_job(draw_kind(random), random),
    }


def _downstream(number: int, upstreams: Sequence[str], grain: str | None, random: Random) -> dict[str, Json]:
    after: list[Json] = [
        {"pipeline": upstream, "onRerun": random.choices(["rerun", "alert", "ignore"], weights=[8, 1, 1])[0]}
        for upstream in upstreams
    ]
    schedule: dict[str, Json] = {"after": after, "evaluation": {"window": "30m", "interval": "5m"}}
    if grain is not None:
        schedule["grain"] = grain
    elif random.random() < 0.2:
        schedule["trigger"] = {"key": "ready", "check": "equals", "field": "status", "value": "done"}
    text: dict[str, Json] = {
        "pipeline": {"id": f"d{number:02d}"},
        "schedule": schedule,
        "job": {**draw_job(draw_kind(random), random), "maxDriftReruns": random.randint(1, 3)},
    }
    if "trigger" in schedule and random.random() < 0.3:
        text["dryRun"] = True
    return text


def _load(text: Mapping[str, Json]) -> Pipeline:
    loaded = load_text(json.dumps(text))
    assert loaded.pipeline is not None, loaded.errors
    return loaded.pipeline


@dataclass(frozen=True, slots=True)
class Graph:
    """Says which runs a run needs, worked out anew here: all is in UTC, so names can be compared."""

    pipelines: Mapping[str, Pipeline]

    @property
    def downstreams(self) -> list[Pipeline]:
        return [each for each in self.pipelines.values() if each.schedules[0].after]

    def needs(self, key: RunKey) -> list[tuple[Dependency, list[RunKey]]]:
        """Each item of `after` of a run, with the upstream runs that it needs."""
        return [(each, self._needed(each, key.period)) for each in self.pipelines[key.pipeline].schedules[0].after]

    def needing(self, upstream: RunKey) -> Iterator[RunKey]:
        """The runs that need an upstream run."""
        for each in self.downstreams:
            schedule = each.schedules[0]
            if self._is_off_grain(upstream):
                return
            if any(item.pipeline == upstream.pipeline for item in schedule.after):
                is_day = schedule.grain is Granularity.DAILY
                yield RunKey(each.id, schedule.id, Period(upstream.period.date) if is_day else upstream.period)

    def above(self, key: RunKey) -> set[RunKey]:
        """All runs that a run needs, at any distance."""
        found: set[RunKey] = set()
        left = [key]
        while left:
            for _, needed in self.needs(left.pop()):
                left += [each for each in needed if each not in found]
                found.update(needed)
        return found

    def roots_above(self, pipeline: Pipeline) -> list[Pipeline]:
        above = [self.pipelines[each.pipeline] for each in pipeline.schedules[0].after]
        if not above:
            return [pipeline]
        return [*{root.id: root for each in above for root in self.roots_above(each)}.values()]

    def _is_off_grain(self, key: RunKey) -> bool:
        """Say whether it is the run of a day of a pipeline that has hours: people start such, nothing needs them."""
        return key.period.hour is None and self._is_hourly(self.pipelines[key.pipeline])

    @staticmethod
    def _is_hourly(pipeline: Pipeline) -> bool:
        schedule = pipeline.schedules[0]
        is_due_hourly = schedule.sla is not None and schedule.sla.deadline is not None  # all of them are like :50
        return schedule.grain is Granularity.HOURLY or is_due_hourly

    def _needed(self, item: Dependency, period: Period) -> list[RunKey]:
        upstream = self.pipelines[item.pipeline]
        is_finer = self._is_hourly(upstream) and period.hour is None
        periods = [Period(period.date, hour) for hour in range(HOURS_OF_DAY)] if is_finer else [period]
        return [RunKey(upstream.id, upstream.schedules[0].id, each) for each in periods]


def yesterday() -> list[Period]:
    """The 24 hours of the day before a history begins."""
    day = (world_time(0) - timedelta(days=1)).date()
    return [Period(day, hour) for hour in range(HOURS_OF_DAY)]
