"""A sensor that is plainly expected gets no warning from the full check either."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.support.clock.manual import ManualClock
from worker.config.load import load_directory, load_text
from worker.config.render import to_json
from worker.core.model.pipeline import Pipeline
from worker.operations.sensors.advice import period_warnings, unheard_warning
from worker.operations.sensors.plain_sensor import is_plainly_expected
from worker.store.repos.sensors import Sensor
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables

NOW: Final = datetime(2027, 3, 22, 12, tzinfo=UTC)
DAYS: Final = (-400, -90, -8, -7, -1, 0, 1, 2, 3, 400)
SUFFIXES: Final = ("", "T07", "T0730")

SPECIAL = """\
pipeline: {id: special}
schedules:
  - {id: hours, trigger: {key: by-hour, check: exists, deadline: ":30"}}
  - {id: parts, trigger: {key: part-, check: exists, match: prefix}}
  - {id: soon, maxAhead: 1h, trigger: {key: soon, check: exists}}
  - {id: plain, trigger: {key: plain, check: exists}}
job: {type: command, config: {command: load}}
"""


@pytest.fixture
async def tables() -> AsyncIterator[Tables]:
    made = SqliteTables.in_memory(ManualClock(NOW))
    await made.start()
    yield made
    await made.stop()


def pipelines() -> list[Pipeline]:
    special = load_text(SPECIAL).pipeline
    assert special is not None
    return [*load_directory([Path("examples")]).pipelines, special]


def sensors_of(pipeline: Pipeline) -> list[Sensor]:
    triggers = [schedule.trigger.rule.key for schedule in pipeline.schedules if schedule.trigger]
    names = {*triggers, *(f"{name}x" for name in triggers), "customer-snapshot", "orders-exprot", "nightly-loads"}
    dates = [(NOW + timedelta(days=days)).date().isoformat() for days in DAYS]
    keys = [*names, *(f"{name}#{day}{suffix}" for name in names for day in dates for suffix in SUFFIXES)]
    return [*(Sensor(key, {}) for key in keys), *(Sensor(name, {"date": day}) for name in names for day in dates)]


@pytest.mark.parametrize("pipeline", pipelines(), ids=lambda each: each.id)
async def test_no_sensor_is_plainly_expected_that_the_full_check_warns_about(
    tables: Tables, pipeline: Pipeline
) -> None:
    text = to_json(pipeline)

    for sensor in sensors_of(pipeline):
        if is_plainly_expected(text, sensor, NOW):
            assert unheard_warning(pipeline, sensor.key) is None
            assert await period_warnings(tables, pipeline, sensor, NOW) == []


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("orders-export", True),
        ("orders-export#2027-03-22", True),
        ("customer-snapshot", True),
        ("orders-export#2027-03-24", False),
        ("orders-export#2026-03-22", False),
        ("orders-exprot", False),
    ],
)
def test_the_sensors_of_an_ordinary_pipeline_are_plainly_expected(key: str, expected: bool) -> None:
    [orders] = [each for each in pipelines() if each.id == "orders-daily"]

    assert is_plainly_expected(to_json(orders), Sensor(key, {"rows": 1}), NOW) is expected


@pytest.mark.parametrize("text", ["", "[]", "1", "pipeline: {id: orders}", '{"validation": 3, "schedules": {"a": 1}}'])
def test_a_text_of_another_shape_is_left_to_the_full_check(text: str) -> None:
    assert not is_plainly_expected(text, Sensor("orders-export", {}), NOW)
