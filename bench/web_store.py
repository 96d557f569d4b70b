"""Stores for the benchmark of the console: pipelines, active runs with deadlines, and ended runs of a week."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Final

from worker.config.versions import PipelineVersions
from worker.core.model.ids import PipelineId
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import ScheduleId
from worker.core.run.state import Outcome, Run, State
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.sla_watches import watch_to_row
from worker.store.table import Put, Row, TableName, Tables

SCHEDULE: Final = ScheduleId("stream")
HASH: Final = "9398a97eb14d"
# Pipelines whose runs wait longest, and whose configurations the overview therefore interprets.
INTERPRETED: Final = 40
CONFIG: Final = """\
pipeline: {{id: {name}, owner: team-{owner}, description: "Loads the {name} of yesterday into the warehouse"}}
schedule:
  timezone: Europe/Berlin
  trigger: {{key: export-{name}, check: equals, field: status, value: complete, deadline: "05:00"}}
  evaluation: {{window: 2h, interval: 5m}}
sla: {{deadline: "06:00", expectedDuration: 45m}}
validation:
  rules:
    - {{key: export-{name}, check: gte, field: rows, value: 1000}}
    - {{key: customers, check: age_lt, field: updatedAt, value: 24h}}
job: {{type: glue, config: {{jobName: {name}}}, maxRetries: 2}}
"""


def name_of(number: int) -> PipelineId:
    return PipelineId(f"pipeline-{number:05d}")


def text_of(number: int) -> str:
    return CONFIG.format(name=name_of(number), owner=number % 40)


async def fill(
    tables: Tables, pipelines: int, active: int, ended: int, now: datetime, *, interpreted: int = INTERPRETED
) -> None:
    """Write a store. Runs of the first pipelines wait under a version that exists; others have none."""
    store, versions = Pipelines(tables), PipelineVersions(tables)
    puts = [partial(store.put, name_of(number), text_of(number)) for number in range(pipelines)]
    await gather_bounded(puts, at_once=100)
    hashes: list[str] = []
    for number in range(min(interpreted, pipelines)):
        version = await versions.current(name_of(number))
        assert version is not None
        await versions.persist(version)
        hashes.append(version.config_hash)
    left = rows_of(pipelines, active, ended, now, hashes)
    while part := list(islice(left, 100)):
        await tables.commit(*(Put(TableName.CONTROL, row) for row in part))


def rows_of(pipelines: int, active: int, ended: int, now: datetime, hashes: Sequence[str] = ()) -> Iterator[Row]:
    """Yield the rows of runs and deadlines. The first runs wait longest; of the ended ones, two in a hundred failed."""
    chance = random.Random(1)
    for number in range(active):
        since = now - timedelta(minutes=chance.uniform(0, 600))
        state = chance.choice((State.EVALUATING, State.POLLING, State.POLLING))
        if number < len(hashes):
            since, state = now - timedelta(hours=12, seconds=number), State.EVALUATING
        run = run_of(number % pipelines, f"{now.date()}", state, since)
        yield run_to_row(replace(run, config_hash=hashes[number]) if number < len(hashes) else run)
        breach = now + timedelta(minutes=chance.uniform(-60, 1_200))
        yield watch_to_row(SlaWatch(key=run.key, version=1, config_hash="h", since=since, breach_at=breach))
    for number in range(ended):
        at = now - timedelta(seconds=chance.uniform(60, 7 * 86_400 - 600))
        period = f"{(now - timedelta(days=1 + number // pipelines)).date()}"
        run = run_of(number % pipelines, period, State.COMPLETED, at)
        if chance.random() < 0.02:
            run = replace(run, state=State.FAILED_FINAL, outcome=Outcome.FAILED, reason="exit code 3: disk full")
        yield run_to_row(run)


def run_of(number: int, day: str, state: State, since: datetime) -> Run:
    period = Period.parse(day)
    assert period is not None
    return Run(
        key=RunKey(name_of(number), SCHEDULE, period),
        run_id=f"{number:032x}",
        version=1,
        state=state,
        outcome=Outcome.SUCCEEDED if state is State.COMPLETED else None,
        config_hash=HASH,
        created_at=since - timedelta(minutes=50),
        started_at=None if state is State.EVALUATING else since - timedelta(minutes=20),
        since=since,
        window_ends_at=None if state is State.COMPLETED else since + timedelta(hours=20),
        timeout_at=since + timedelta(hours=20),
        started_on={f"export-{n}": "ab" * 16 for n in range(3)},
        job_type="glue",
        origin="sensor",
        pipeline_owner=f"team-{number % 40}",
    )
