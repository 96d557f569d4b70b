"""A history of runs for benchmarks, written to SQLite or to an emulator of DynamoDB."""

import json
import random
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

import aiohttp

from scheduler.watchdog.checks.rollups import RollupCheck
from tests.support.aws.emulators import AWS_ENVIRONMENT
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Outcome, Run, State
from worker.core.time.periods import Period
from worker.runtime.json_bytes import to_json
from worker.store.dynamodb.values import encode_row
from worker.store.repos.run_rows import run_to_row
from worker.store.table import Put, Row, TableName, Tables

PIPELINES: Final = 500
FAILED_EVERY: Final = 50
REASONS: Final = ("Timeout: no answer in 30s", "exit code 3: disk full", "throttled by the target")
BATCH_MAX: Final = 25  # of BatchWriteItem


def a_run(number: int, now: datetime, age: timedelta, chance: random.Random, *, is_active: bool) -> Run:
    ended = now - age
    period = Period.parse((now - timedelta(days=number // PIPELINES % 390)).date().isoformat())
    assert period is not None
    failed = not is_active and number % FAILED_EVERY == 0
    state = State.POLLING if is_active else State.FAILED_FINAL if failed else State.COMPLETED
    since = now - timedelta(minutes=chance.uniform(0, 600)) if is_active else ended
    name = PipelineId(f"pipeline-{number % PIPELINES:04d}")
    return Run(
        key=RunKey(name, ScheduleId("active" if is_active else "cron"), period),
        run_id=f"{number:032x}",
        version=3,
        state=state,
        config_hash="9398a97eb14d",
        created_at=since - timedelta(minutes=50),
        started_at=since - timedelta(minutes=chance.uniform(1, 45)),
        since=since,
        timeout_at=since + timedelta(hours=4),
        started_on={f"export-{n}": "ab" * 16 for n in range(3)},
        job={"runId": f"jr_{number:032x}", "jobName": name},
        job_type="glue",
        outcome=None if is_active else Outcome.FAILED if failed else Outcome.SUCCEEDED,
        reason=chance.choice(REASONS) if failed else "",
        origin="sensor",
        pipeline_owner=f"team-{number % 20}",
    )


def rows_of(ended: int, active: int, days: int, now: datetime) -> Iterator[Row]:
    """Yield rows whose runs ended evenly over the days, so that histories of any length have equal days."""
    chance = random.Random(1)
    for number in range(ended + active):
        age = timedelta(days=days) * ((number + chance.random()) / ended)
        yield run_to_row(a_run(number, now, age, chance, is_active=number >= ended))


def in_parts(rows: Iterator[Row], size: int) -> Iterator[Sequence[Row]]:
    while part := list(islice(rows, size)):
        yield part


async def fill(tables: Tables, rows: Iterator[Row]) -> None:
    for part in in_parts(rows, 100):
        await tables.commit(*(Put(TableName.CONTROL, row) for row in part))


async def fill_emulator(port: int, table: str, rows: Iterator[Row]) -> None:
    """Write by BatchWriteItem: the transactions that the store would use take an emulator hours."""
    scope = f"test/20260303/{AWS_ENVIRONMENT['AWS_DEFAULT_REGION']}/dynamodb/aws4_request"
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.BatchWriteItem",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
    }
    async with aiohttp.ClientSession(headers=headers) as session:
        for part in in_parts(rows, BATCH_MAX):
            puts = [{"PutRequest": {"Item": encode_row(row)}} for row in part]
            async with session.post(f"http://127.0.0.1:{port}/", data=to_json({"RequestItems": {table: puts}})) as said:
                answer: dict[str, Any] = json.loads(await said.read())
            left: object = answer.get("UnprocessedItems")
            assert said.status == 200, answer
            assert not left, answer


async def roll_up(tables: Tables, days: int, now: datetime) -> None:
    """Write the rollups of all days, as the watchdog does within a day of its first start."""
    check = RollupCheck(tables)
    for hours in range(days // 4 + 3, -1, -1):
        for finding in await check.due(now - timedelta(hours=hours)):
            await finding.act()
