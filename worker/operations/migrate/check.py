"""Combines all migration checks of one pipeline of the Lambda edition."""

from collections.abc import Iterator
from datetime import datetime

from worker.operations.migrate.config_check import check_config
from worker.operations.migrate.findings import MigrationFinding, Topic, Weight
from worker.operations.migrate.row_check import check_rows
from worker.operations.migrate.sensor_check import check_sensors
from worker.operations.migrate.survey import ROWS_MAX, Surveyed


def check(found: Surveyed, now: datetime) -> Iterator[MigrationFinding]:
    """Yield the findings, the configuration's first; sensors are checked only with a usable one."""
    config = check_config(found, now)
    yield from config.findings
    if config.pipeline is not None:
        yield from check_sensors(config.pipeline, found.sensors, now)
    yield from check_rows(found, config.pipeline, now)
    if found.is_cut:
        what = f"of sensors, runs and requests the latest {ROWS_MAX:,} each were checked, and there are more"
        yield MigrationFinding(pipeline=found.pipeline, topic=Topic.TOO_MANY, weight=Weight.CHANGES, what=what)
