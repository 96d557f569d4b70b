"""The job log names a job as its target does."""

import pytest

from tests.support.builders.values import a_run
from tests.support.clock.manual import NOON, ManualClock
from worker.core.model.events import JobEvent
from worker.core.model.keys import SessionId
from worker.core.model.values import Json
from worker.core.run.decision import Decision
from worker.core.run.effects import LogJob
from worker.core.run.state import State
from worker.engine.commits import Commits
from worker.engine.related_rows import RelatedRows
from worker.store.repos.job_log import JobLog
from worker.store.sqlite.tables import SqliteTables


@pytest.mark.parametrize(
    ("handle", "run_id"),
    [
        ({"jobName": "etl", "runId": "jr_1"}, "jr_1"),
        ({"token": "il-1", "id": "42"}, "42"),
        ({"token": "il-1", "dagRunId": "il-1"}, "il-1"),
        ({"token": "il-1", "host": "alpha", "pid": 7}, "il-1"),
    ],
)
async def test_a_line_has_the_id_that_people_find_the_job_by(handle: dict[str, Json], run_id: str) -> None:
    tables, run = SqliteTables.in_memory(ManualClock()), a_run(State.POLLING, job=handle)
    line = LogJob(event=JobEvent.FAIL, message="out of memory")

    await Commits(tables, SessionId("s")).of_run(run, run, Decision.of(line), RelatedRows(), key=run.key, now=NOON)

    assert [logged.run_id async for logged in JobLog(tables).list(run.key)] == [run_id]
