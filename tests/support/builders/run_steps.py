"""One step of a run, as the engine would take it: decide, then evolve."""

from collections.abc import Iterable
from datetime import datetime

from tests.support.builders.values import ME, a_pipeline
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.pipeline import Pipeline
from worker.core.run.effects import Effect
from worker.core.run.facts import Fact
from worker.core.run.machine import decide, evolve
from worker.core.run.state import Run

PLAIN = a_pipeline()


def step(run: Run | None, fact: Fact, now: datetime, pipeline: Pipeline = PLAIN) -> tuple[Run, list[Effect]]:
    """Give back the run after the step, and what was decided; for steps after which there is a run."""
    decision = decide(run, pipeline, pipeline.schedules[0], fact, now)
    after = evolve(run, decision, now, ME)
    assert after is not None, decision
    return after, [*decision.effects]


def told(effects: Iterable[Effect]) -> list[EventType]:
    return [effect.type for effect in effects if isinstance(effect, EmitEvent)]
