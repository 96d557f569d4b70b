"""Write, read, list and show the sensors in the store, for `interlock sensor`."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from worker.cli.commands.sensor_values import sensor_data
from worker.cli.terminal.console import Screen, counted, json_text
from worker.cli.terminal.pipeline_lookup import say_unknown, warn_if_unknown
from worker.cli.terminal.store_session import Exit, StoreAccess, show_failure, work_on_store
from worker.cli.terminal.truncation import Truncation
from worker.core.model.ids import PipelineId
from worker.core.model.values import Json, show
from worker.operations.pipelines.lookup import pipeline_in
from worker.operations.sensors.names import SensorName, sensor_name
from worker.operations.sensors.plain_sensor import is_plainly_expected
from worker.runtime.clock import Clock
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import Tables

KEYS_COMPARED_MAX = 1_000


SHOW_OTHERS = "narrow with --prefix, or raise --limit"


ALONE = "a sensor without a pipeline starts nothing"


class PutRequest(NamedTuple):
    """Holds what the command line says about a sensor to write; nothing is parsed yet."""

    pipeline: str
    key: str
    fields: Sequence[str]
    data: str | None
    period: str | None
    as_json: bool


def put_sensor(clock: Clock, url: str | None, request: PutRequest) -> int:
    """Write a sensor as the command line says, and return the exit code."""

    async def work(screen: Screen, access: StoreAccess) -> int:
        name = sensor_name(request.pipeline, request.key, request.period)
        data = sensor_data(request.fields, request.data)
        return await run_put(screen, access, name, data, as_json=request.as_json)

    return work_on_store(clock, url, work)


async def run_put(
    screen: Screen, access: StoreAccess, name: SensorName, data: Mapping[str, Json], *, as_json: bool
) -> int:
    """Write the whole sensor, and show it as stored."""
    async with access.tables() as tables:
        await Sensors(tables).put(name.pipeline, name.stored_key, data)
        stored = await Sensors(tables).get(name.pipeline, name.stored_key)
        await advise(screen, tables, name, data, access.clock.now())
    # Another producer may have removed it in the meantime; then show what this command wrote.
    show_sensor(screen, name.pipeline, stored or Sensor(name.stored_key, data), as_json=as_json)
    return Exit.DONE


async def run_get(screen: Screen, access: StoreAccess, name: SensorName, *, as_json: bool) -> int:
    """Show one sensor; for a period, the one that the rules would read."""
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
    """Show a sensor as a table on a terminal; as JSON on a pipe, which a program reads, or on request."""
    if as_json or not screen.out.is_terminal:
        screen.record(record_of(pipeline, sensor))
        return
    screen.line(f"{pipeline} {sensor.key}", style="bold")
    screen.table([(field, json_text(value)) for field, value in sensor.data.items()])


def record_of(pipeline: PipelineId, sensor: Sensor) -> dict[str, Json]:
    return {"type": "sensor", "pipeline": pipeline, "key": sensor.key, "data": sensor.data}


async def advise(screen: Screen, tables: Tables, name: SensorName, data: Mapping[str, Json], now: datetime) -> None:
    """Warn about a pipeline, key or period that is probably mistyped; the sensor is written anyway."""
    stored = await Pipelines(tables).get(name.pipeline)
    if stored is None:
        await warn_if_unknown(screen, tables, name.pipeline, otherwise=ALONE)
        return
    sensor = Sensor(name.stored_key, data)
    if is_plainly_expected(stored.text or "", sensor, now):
        return
    # After the write: loading the code that reads a pipeline takes longer than everything else.
    from worker.operations.sensors.advice import period_warnings, unheard_warning  # noqa: PLC0415

    if pipeline := pipeline_in(stored):
        unheard = unheard_warning(pipeline, name.stored_key)
        for warning in (*([unheard] if unheard else []), *await period_warnings(tables, pipeline, sensor, now)):
            screen.remark(f"warning: {warning}", style="yellow")


async def say_missing(screen: Screen, tables: Tables, name: SensorName) -> int:
    from worker.config.suggestions import suggest  # noqa: PLC0415  only a mistyped key needs it

    known = await first_sensors(tables, name.pipeline, "", KEYS_COMPARED_MAX)
    hint = suggest(name.stored_key, [sensor.key for sensor in known])
    show_failure(
        screen,
        f"there is no sensor {name.stored_key} of {name.pipeline}",
        hint or f"`interlock sensor list {name.pipeline}` shows what there is",
    )
    return Exit.WRONG
