"""The log of jobs on every backend: no line lost, and those of others not taken for ours."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.storevalues import NOW, SECOND, a_run, run_key_of
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.store.repos import job_log
from worker.store.repos.job_log import JobLine, JobLog, JobRecord
from worker.store.repos.runs import Runs
from worker.store.table import Put, StaleWrite, TableName, Tables


def a_line(line_id: str = "j1", **changes: str) -> JobLine:
    return replace(JobLine(id=line_id, at=NOW, attempt=1, event="fail"), **changes)


async def lines_of(tables: Tables, key: RunKey) -> list[JobRecord]:
    return [line async for line in JobLog(tables).list(key)]


async def test_two_lines_of_one_millisecond_are_both_kept(tables: Tables) -> None:
    key = run_key_of()

    await JobLog(tables).append(key, a_line("j1"))
    await JobLog(tables).append(key, a_line("j2"))

    assert [line.id for line in await lines_of(tables, key)] == ["j1", "j2"]


async def test_a_line_is_read_back_and_known_as_ours(tables: Tables) -> None:
    key = run_key_of()

    await JobLog(tables).append(key, a_line(run_id="jr_1", error="out of memory", category="TRANSIENT"))

    [line] = await lines_of(tables, key)
    assert (line.attempt, line.event, line.run_id, line.error) == (1, "fail", "jr_1", "out of memory")
    assert (line.at, line.category) == (NOW, "TRANSIENT")
    assert line.is_ours


async def test_the_log_is_kept_for_each_pipeline_schedule_and_period_apart(tables: Tables) -> None:
    key = run_key_of(period="2026-03-03")
    others = [
        run_key_of(),
        replace(key, schedule=keys.ScheduleId("stream")),
        run_key_of(key.pipeline, "2026-03-04"),
        run_key_of(key.pipeline, "2026-03-03T07"),
    ]
    for number, other in enumerate([key, *others]):
        await JobLog(tables).append(other, a_line(f"j{number}"))

    assert [line.id for line in await lines_of(tables, key)] == ["j0"]


async def test_lines_of_others_are_read_and_not_taken_for_ours(tables: Tables) -> None:
    key = run_key_of()
    await JobLog(tables).append(key, replace(a_line(), at=NOW + SECOND))
    written_by_others = {
        "PK": keys.pipeline_pk(key.pipeline),
        "SK": f"{keys.job_prefix(key)}{keys.millis_text(NOW)}",
        "event": "success",
        "runId": 17,
    }
    await tables.commit(Put(TableName.JOBLOG, written_by_others))

    first, second = await lines_of(tables, key)

    assert (first.event, first.at, first.attempt, first.is_ours) == ("success", NOW, None, False)
    assert second.is_ours


async def test_a_line_is_kept_for_thirty_days(tables: Tables) -> None:
    key = run_key_of()

    await JobLog(tables).append(key, replace(a_line(), at=NOW - timedelta(days=30, seconds=-1)))
    await JobLog(tables).append(key, replace(a_line("old"), at=NOW - timedelta(days=30)))

    assert [line.id for line in await lines_of(tables, key)] == ["j1"]


async def test_a_line_written_twice_makes_its_commit_stale(tables: Tables) -> None:
    run = await Runs(tables).save(a_run())
    await JobLog(tables).append(run.key, a_line())

    with pytest.raises(StaleWrite):
        await Runs(tables).save(run, job_log.append_write(run.key, a_line()))

    assert await Runs(tables).load(run.key) == run
