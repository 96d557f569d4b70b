"""One pass over a pipeline's rules: which sensors it needs, and what follows from what they say."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from worker.core.facts import RulesHeld, RulesNotHeld
from worker.core.pipeline import Pipeline, Schedule
from worker.core.rules import evaluate, keys
from worker.core.values import Json


@dataclass(frozen=True, slots=True)
class Reading:
    """A sensor as a pass found it."""

    data: Mapping[str, Json]
    content_hash: str


def needed(pipeline: Pipeline, schedule: Schedule) -> tuple[str, ...]:
    """The sensors that decide whether a run may start, by the names its rules use: the trigger's and every rule's."""
    trigger = (schedule.trigger.rule.key,) if schedule.trigger else ()
    return tuple(dict.fromkeys((*trigger, *keys(pipeline.rules))))


def watched(pipeline: Pipeline) -> tuple[str, ...]:
    """The sensors that are watched on after the job is done."""
    return tuple(keys(pipeline.post_run.rules)) if pipeline.post_run else ()


def judge(pipeline: Pipeline, readings: Mapping[str, Reading], attempt: int, now: datetime) -> RulesHeld | RulesNotHeld:
    """Judge the rules on what was read, all of it at the one instant `now`."""
    result = evaluate(pipeline.rules, {name: reading.data for name, reading in readings.items()}, now)
    saw = {name: reading.content_hash for name, reading in readings.items()}
    if not result.passed:
        return RulesNotHeld(attempt=attempt, saw=saw, reason=result.reason)
    return RulesHeld(attempt=attempt, saw=saw, baseline=baseline(pipeline, readings))


def baseline(pipeline: Pipeline, readings: Mapping[str, Reading]) -> dict[str, Json]:
    """The data of those sensors that drift is measured against."""
    return {name: readings[name].data for name in watched(pipeline) if name in readings}
