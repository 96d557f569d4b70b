"""Warn the writer of a sensor about a key that no rule reads or a period that starts no run."""

from datetime import datetime

from worker.cli.terminal.console import Screen
from worker.config.problems import suggest
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


def warn_if_unheard(screen: Screen, pipeline: Pipeline, key: str) -> None:
    """Warn if nothing in the pipeline reads the key, but it reads a similar one."""
    if is_heard(pipeline, key):
        return
    named = [each for schedule in pipeline.schedules for each in required_sensors(pipeline, schedule)]
    if hint := suggest(split_key(key)[0], [*named, *post_run_sensors(pipeline)]):
        screen.remark(f"warning: nothing in {pipeline.id} looks at {key}; {hint}", style="yellow")


async def warn_of_period(screen: Screen, tables: Tables, pipeline: Pipeline, sensor: Sensor, now: datetime) -> None:
    """Warn the writer of a trigger if its period creates no run, or has another grain."""
    for schedule in pipeline.schedules:
        if not is_trigger(schedule, sensor.key):
            continue
        period, _ = period_said(SensorContent(sensor.key, sensor.data), schedule, now)
        exists = await Runs(tables).load(RunKey(pipeline.id, schedule.id, period)) is not None
        if refusal := refused(period, schedule, now, exists=exists):
            text = f"{sensor.key} will begin no run: {refusal.reason}; {refusal.hint}"
            screen.remark(f"warning: {text}", style="yellow")
        elif grain := wrong_grain(period, schedule):
            screen.remark(f"warning: {sensor.key} {grain}; {grain.hint}", style="yellow")


def is_heard(pipeline: Pipeline, key: str) -> bool:
    return (
        any(is_trigger(schedule, key) for schedule in pipeline.schedules)
        or audience(pipeline, key) is not None
        or post_run_name(pipeline, key) is not None
    )
