"""Checks which sensors have another effect here than in the Lambda edition."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from worker.core.model.pipeline import Match, Pipeline, PipelineId, Schedule
from worker.core.model.rules import keys
from worker.core.run.sensor_match import SensorContent, is_named, is_trigger, triggered
from worker.core.time.periods import split_key
from worker.operations.migrate.findings import MigrationFinding, Topic, Weight
from worker.operations.migrate.survey import SensorRow

SHOWN_MAX: Final = 5
# The Lambda edition stored its own marks among the producers' sensors.
_INTERNAL: Final = frozenset(
    {
        "first-sensor-arrival",
        "postrun-baseline",
        "postrun-check",
        "irregular-missed-check",
        "relative-sla-breach-check",
    }
)


def check_sensors(pipeline: Pipeline, rows: Iterable[SensorRow], now: datetime) -> Iterator[MigrationFinding]:
    produced = [row for row in rows if split_key(row.sensor.key)[0] not in _INTERNAL]
    for schedule in pipeline.schedules:
        yield from _trigger_keys(pipeline, schedule, produced)
        yield from _undated(pipeline, schedule, produced, now)
    yield from _post_run_keys(pipeline, produced)
    yield from _shadowed(pipeline)
    yield from _flat(pipeline, produced)


def _trigger_keys(pipeline: Pipeline, schedule: Schedule, rows: Sequence[SensorRow]) -> Iterator[MigrationFinding]:
    trigger = schedule.trigger
    if trigger is None or trigger.match is Match.PREFIX or not schedule.starts_by_trigger:
        return
    lost = [key for key in _keys(rows) if key.startswith(trigger.rule.key) and not is_trigger(schedule, key)]
    if lost:
        what = f"only begin with the trigger key `{trigger.rule.key}`, and start nothing here"
        remedy = "give the trigger `match: prefix` to keep it so, or a pipeline of their own to those sensors"
        yield _changes(pipeline.id, Topic.PREFIX, f"{_named(lost)} {what}", remedy)


def _post_run_keys(pipeline: Pipeline, rows: Sequence[SensorRow]) -> Iterator[MigrationFinding]:
    post_run = pipeline.post_run
    if post_run is None or post_run.match is Match.PREFIX:
        return
    for name in dict.fromkeys(keys(post_run.rules)):
        begin = [key for key in _keys(rows) if key.startswith(name) and not is_named(key, name, post_run.match)]
        if begin:
            what = f"only begin with the post-run key `{name}`, and are not watched here"
            remedy = "give `postRun` `match: prefix` to keep it so"
            yield _changes(pipeline.id, Topic.PREFIX, f"{_named(begin)} {what}", remedy)


def _undated(
    pipeline: Pipeline, schedule: Schedule, rows: Sequence[SensorRow], now: datetime
) -> Iterator[MigrationFinding]:
    sayings = [SensorContent(row.sensor.key, row.sensor.data) for row in rows]
    starts = [saying.key for saying in sayings if (found := triggered(schedule, saying, now)) and found.binds_once]
    if starts:
        what = f"{_named(starts)} would start {schedule.id} and names no date: it counts once, for the day it came"
        remedy = "put a date into the sensor or its key, or set `trigger.undated: daily` to have it mean every day"
        yield _changes(pipeline.id, Topic.UNDATED, what, remedy)


def _shadowed(pipeline: Pipeline) -> Iterator[MigrationFinding]:
    """Report post-run keys that start with the trigger's key: the Lambda edition never checked them."""
    if pipeline.post_run is None:
        return
    starts = [schedule.trigger.rule.key for schedule in pipeline.schedules if schedule.trigger]
    hidden = [name for name in dict.fromkeys(keys(pipeline.post_run.rules)) if name.startswith(tuple(starts))]
    if hidden:
        what = f"post-run {_named(hidden)} starts like the trigger's; the Lambda edition ignored it, Interlock does not"
        yield _changes(pipeline.id, Topic.SHADOWED, what, "check that its post-run rules are as intended")


def _flat(pipeline: Pipeline, rows: Sequence[SensorRow]) -> Iterator[MigrationFinding]:
    names = set(keys(pipeline.rules))
    flat = [row.sensor.key for row in rows if row.is_flat and names & {row.sensor.key, split_key(row.sensor.key)[0]}]
    if flat:
        what = f"{_named(flat)} has its fields on the row itself; no rule saw them, and here rules do"
        yield _changes(pipeline.id, Topic.SHAPE, what, "nothing, if the rules are as intended")


def _keys(rows: Iterable[SensorRow]) -> list[str]:
    return [row.sensor.key for row in rows]


def _named(found: Sequence[str]) -> str:
    shown = ", ".join(f"`{key}`" for key in found[:SHOWN_MAX])
    more = f" and {len(found) - SHOWN_MAX:,} more" if len(found) > SHOWN_MAX else ""
    return f"{'sensor' if len(found) == 1 else f'{len(found):,} sensors:'} {shown}{more}"


def _changes(pipeline: PipelineId, topic: Topic, what: str, remedy: str) -> MigrationFinding:
    return MigrationFinding(pipeline=pipeline, topic=topic, weight=Weight.CHANGES, what=what, remedy=remedy)
