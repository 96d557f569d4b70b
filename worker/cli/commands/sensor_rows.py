"""Sensors in the store, as `interlock sensor` writes, reads and shows them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from itertools import islice

from worker.cli.commands.pipelines import entry_of, say_unknown, warn_if_unknown
from worker.cli.terminal.console import Screen, counted, json_text
from worker.cli.terminal.store_access import Exit, StoreAccess
from worker.cli.terminal.truncation import Truncation
from worker.config.problems import suggest
from worker.core.errors import ConfigError
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, PipelineId
from worker.core.model.values import Json, show
from worker.core.run.evaluation import post_run_sensors, required_sensors
from worker.core.run.sensor_match import SensorContent, audience, is_trigger, period_said, post_run_name
from worker.core.schedule.period_range import wrong_grain
from worker.core.time.periods import Period, split_key
from worker.operations.explain.start_gates import refused
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import Tables

KEYS_COMPARED_MAX = 1_000


SHOW_OTHERS = "narrow with --prefix, or raise --limit"


ALONE = "a sensor without a pipeline starts nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorName:
    """Which sensor: of which pipeline, and of which period if it has one."""

    pipeline: PipelineId
    key: str
    period: Period | None = None

    @property
    def stored_key(self) -> str:
        return f"{self.key}#{self.period}" if self.period else self.key


def sensor_name(pipeline: str, key: str, period: str | None) -> SensorName:
    """Raises `ConfigError` for a name that no rule could ever look for."""
    if not pipeline or not key:
        raise ConfigError("a pipeline or sensor without a name cannot be stored; name both")
    if period is None:
        return SensorName(pipeline=PipelineId(pipeline), key=key)
    read = Period.parse(period) or Period.parse_compact(period)
    if read is None:
        raise ConfigError(f"{period!r} is not a period; write 2026-03-03, 2026-03-03T07 or 2026-03-03T0730")
    if split_key(key)[1] is not None:
        raise ConfigError(f"the key {key!r} names a period already; leave --period out")
    return SensorName(pipeline=PipelineId(pipeline), key=key, period=read)


async def run_put(
    screen: Screen, access: StoreAccess, name: SensorName, data: Mapping[str, Json], *, as_json: bool
) -> int:
    """Write the whole sensor, and show it as it was stored."""
    async with access.tables() as tables:
        now = access.clock.now()
        await warn_if_unheard(screen, tables, name, now.date())
        await warn_of_period(screen, tables, name.pipeline, Sensor(name.stored_key, data), now)
        await Sensors(tables).put(name.pipeline, name.stored_key, data)
        stored = await Sensors(tables).get(name.pipeline, name.stored_key)
    # Another producer may have removed it in between; then what we wrote is what can be shown.
    show_sensor(screen, name.pipeline, stored or Sensor(name.stored_key, data), as_json=as_json)
    return Exit.DONE


async def run_get(screen: Screen, access: StoreAccess, name: SensorName, *, as_json: bool) -> int:
    """Show one sensor; for a period, the one its rules would see."""
    async with access.tables() as tables:
        sensor = await find(tables, name)
        if sensor is None:
            await warn_if_unknown(screen, tables, name.pipeline, otherwise=ALONE)
            return await say_missing(screen, tables, name)
    show_sensor(screen, name.pipeline, sensor, as_json=as_json)
    return Exit.DONE


async def find(tables: Tables, name: SensorName) -> Sensor | None:
    if name.period is None:
        return await Sensors(tables).get(name.pipeline, name.key)
    seen = await Sensors(tables).read(name.pipeline, [name.key], name.period)
    return seen.get(name.key)


async def run_list(
    screen: Screen, access: StoreAccess, pipeline: PipelineId, *, prefix: str, limit: int, as_json: bool
) -> int:
    async with access.tables() as tables:
        sensors = await first_sensors(tables, pipeline, prefix, limit + 1)
        if not sensors and await Pipelines(tables).get(pipeline) is None:
            return await say_unknown(screen, tables, pipeline)
    shown, is_cut = list(islice(sensors, limit)), len(sensors) > limit
    if as_json or not screen.out.is_terminal:
        for sensor in shown:
            screen.record(record_of(pipeline, sensor))
        if is_cut:
            screen.record(Truncation(what="sensors", shown=limit, hint=SHOW_OTHERS).record)
    else:
        screen.table([(sensor.key, show(sensor.data)) for sensor in shown])
        screen.line(f"{counted(len(shown), 'sensor')}{' shown, and there are more' if is_cut else ''}")
    if is_cut:
        screen.remark(f"there are more than {limit:,}: {SHOW_OTHERS}", style="yellow")
    return Exit.DONE


async def first_sensors(tables: Tables, pipeline: PipelineId, prefix: str, limit: int) -> list[Sensor]:
    found: list[Sensor] = []
    async for sensor in Sensors(tables).list(pipeline, prefix):
        found.append(sensor)
        if len(found) == limit:
            break
    return found


def show_sensor(screen: Screen, pipeline: PipelineId, sensor: Sensor, *, as_json: bool) -> None:
    """A table for people; JSON for a pipe, because what follows is a program."""
    if as_json or not screen.out.is_terminal:
        screen.record(record_of(pipeline, sensor))
        return
    screen.line(f"{pipeline} {sensor.key}", style="bold")
    screen.table([(field, json_text(value)) for field, value in sensor.data.items()])


def record_of(pipeline: PipelineId, sensor: Sensor) -> dict[str, Json]:
    return {"type": "sensor", "pipeline": pipeline, "key": sensor.key, "data": sensor.data}


async def warn_if_unheard(screen: Screen, tables: Tables, name: SensorName, today: date) -> None:
    """The same, and of a key that nothing in its pipeline names, if one like it is named there."""
    stored = await Pipelines(tables).get(name.pipeline)
    if stored is None:
        await warn_if_unknown(screen, tables, name.pipeline, otherwise=ALONE)
        return
    pipeline = entry_of(stored, today).pipeline
    if pipeline is None or is_heard(pipeline, name.stored_key):
        return
    named = [key for schedule in pipeline.schedules for key in required_sensors(pipeline, schedule)]
    if hint := suggest(split_key(name.stored_key)[0], [*named, *post_run_sensors(pipeline)]):
        screen.remark(f"warning: nothing in {name.pipeline} looks at {name.stored_key}; {hint}", style="yellow")


async def warn_of_period(screen: Screen, tables: Tables, pipeline: PipelineId, sensor: Sensor, now: datetime) -> None:
    """Tell whoever writes a trigger what becomes of its period: no run at all, or one of another grain."""
    stored = await Pipelines(tables).get(pipeline)
    read = None if stored is None else entry_of(stored, now.date()).pipeline
    for schedule in read.schedules if read else ():
        if not is_trigger(schedule, sensor.key):
            continue
        period, _ = period_said(SensorContent(sensor.key, sensor.data), schedule, now)
        exists = await Runs(tables).load(RunKey(pipeline, schedule.id, period)) is not None
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


async def say_missing(screen: Screen, tables: Tables, name: SensorName) -> int:
    known = await first_sensors(tables, name.pipeline, "", KEYS_COMPARED_MAX)
    hint = suggest(name.stored_key, [sensor.key for sensor in known])
    screen.remark(f"there is no sensor {name.stored_key} of {name.pipeline}", style="red")
    screen.remark(f"    {hint or f'`interlock sensor list {name.pipeline}` shows what there is'}")
    return Exit.WRONG
