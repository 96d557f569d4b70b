"""`interlock sensor remove`: remove a sensor from the store."""

from worker.cli.commands.sensor_rows import ALONE, record_of, say_missing, show_sensor
from worker.cli.terminal.confirm import Consent
from worker.cli.terminal.console import Screen
from worker.cli.terminal.pipeline_lookup import warn_if_unknown
from worker.cli.terminal.store_session import Exit, StoreAccess
from worker.core.errors import RetryLater
from worker.core.model.ids import PipelineId
from worker.core.time.periods import sensor_keys
from worker.operations.pipelines.lookup import pipeline_in
from worker.operations.sensors.advice import is_heard
from worker.operations.sensors.names import SensorName
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import StaleWrite, Tables

STARTS_NOTHING = "A removal starts nothing; waiting runs notice it at their next evaluation."
UNHEARD = "Nothing in the pipeline uses it."


async def run_remove(screen: Screen, access: StoreAccess, name: SensorName, *, consent: Consent, as_json: bool) -> int:
    """Remove exactly the sensor that was shown; one that was written in the meantime stays."""
    async with access.tables() as tables:
        sensor = await find_own(tables, name)
        if sensor is None:
            await warn_if_unknown(screen, tables, name.pipeline, otherwise=ALONE)
            return await say_missing(screen, tables, name)
        outlook = UNHEARD if await _is_unheard(tables, name.pipeline, sensor) else STARTS_NOTHING
        if not consent.is_given:
            show_sensor(Screen(out=screen.err, err=screen.err), name.pipeline, sensor, as_json=as_json)
        if not consent.obtain(screen, f"Remove sensor {sensor.key} of {name.pipeline}? {outlook}"):
            screen.remark("nothing was removed")
            return Exit.DONE
        await _remove(tables, name.pipeline, sensor)
    if as_json or not screen.out.is_terminal:
        screen.record({**record_of(name.pipeline, sensor), "type": "removed"})
    else:
        screen.line(f"removed sensor {sensor.key} of {name.pipeline}")
        screen.remark(f"    {outlook}")
    return Exit.DONE


async def find_own(tables: Tables, name: SensorName) -> Sensor | None:
    """Return the sensor of this key; with a period, in either spelling.

    With a period, never return the sensor of all periods, because the user did not name it.
    """
    if name.period is None:
        return await Sensors(tables).get(name.pipeline, name.key)
    *dated, _ = sensor_keys(name.key, name.period)
    found = [await Sensors(tables).get(name.pipeline, key) for key in dated]
    return next((sensor for sensor in found if sensor is not None), None)


async def _is_unheard(tables: Tables, pipeline: PipelineId, sensor: Sensor) -> bool:
    """Return whether no rule reads the sensor; False if the pipeline cannot be read, as any rule might."""
    stored = await Pipelines(tables).get(pipeline)
    read = None if stored is None else pipeline_in(stored)
    return stored is None or (read is not None and not is_heard(read, sensor.key))


async def _remove(tables: Tables, pipeline: PipelineId, sensor: Sensor) -> None:
    try:
        await Sensors(tables).remove(pipeline, sensor)
    except StaleWrite as refused:
        raise RetryLater(
            f"sensor {sensor.key} of {pipeline} was written again meanwhile, so it was not removed; "
            "check it, and try again if it is still wrong"
        ) from refused
