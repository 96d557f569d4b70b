"""Tells the writer of a sensor who reads it, and what about its key or period is probably a mistake."""

from datetime import datetime

from worker.config.suggestions import suggest
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline
from worker.core.run.evaluation import post_run_sensors, required_sensors
from worker.core.run.sensor_match import SensorContent, audience, is_trigger, period_said, post_run_name
from worker.core.schedule.period_range import wrong_grain
from worker.core.time.periods import split_key
from worker.operations.explain.start_gates import refused
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensor
from worker.store.table import Tables


def unheard_warning(pipeline: Pipeline, key: str) -> str | None:
    """Return a warning if nothing in the pipeline reads the key, but it reads a similar one."""
    if is_heard(pipeline, key):
        return None
    named = [each for schedule in pipeline.schedules for each in required_sensors(pipeline, schedule)]
    hint = suggest(split_key(key)[0], [*named, *post_run_sensors(pipeline)])
    return f"nothing in {pipeline.id} reads {key}; {hint}" if hint else None


async def period_warnings(tables: Tables, pipeline: Pipeline, sensor: Sensor, now: datetime) -> list[str]:
    """Return warnings about a trigger whose period creates no run, or has another grain."""
    warnings: list[str] = []
    for schedule in pipeline.schedules:
        if not is_trigger(schedule, sensor.key):
            continue
        period, _ = period_said(SensorContent(sensor.key, sensor.data), schedule, now)
        exists = await Runs(tables).load(RunKey(pipeline.id, schedule.id, period)) is not None
        if refusal := refused(period, schedule, now, exists=exists):
            warnings.append(f"{sensor.key} will begin no run: {refusal.reason}; {refusal.hint}")
        elif grain := wrong_grain(period, schedule):
            warnings.append(f"{sensor.key} {grain}; {grain.hint}")
    return warnings


def is_heard(pipeline: Pipeline, key: str) -> bool:
    return (
        any(is_trigger(schedule, key) for schedule in pipeline.schedules)
        or audience(pipeline, key) is not None
        or post_run_name(pipeline, key) is not None
    )
