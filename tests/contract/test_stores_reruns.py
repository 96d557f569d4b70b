"""Reruns on every backend: each has a number of its own."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.storevalues import NOW, a_run, race, run_key_of
from tests.support.clock.manual import ManualClock
from worker.core.model import keys
from worker.core.model.keys import RunKey
from worker.store import retention
from worker.store.repos.reruns import Rerun, Reruns, record_write
from worker.store.repos.runs import Runs
from worker.store.table import Put, StaleWrite, TableName, Tables


def a_rerun(rerun_id: str = "r1") -> Rerun:
    return Rerun(id=rerun_id, reason="manual", at=NOW, attempt=2)


async def next_write(tables: Tables, key: RunKey, rerun: Rerun) -> Put:
    return record_write(key, rerun, await Reruns(tables).next_number(key))


async def test_reruns_are_numbered_from_nought_in_the_order_they_came(tables: Tables) -> None:
    key = run_key_of()

    numbers = [await Reruns(tables).record(key, a_rerun(f"r{number}")) for number in range(12)]

    assert numbers == list(range(12))
    assert [record.id for record in await Reruns(tables).list(key)] == [f"r{number}" for number in range(12)]


async def test_reruns_recorded_at_once_all_get_a_number_of_their_own(tables: Tables, backend: str) -> None:
    key = run_key_of()

    numbers = await race(backend, *(Reruns(tables).record(key, a_rerun(f"r{number}")) for number in range(6)))

    assert set(numbers) == set(range(6))
    assert {record.id for record in await Reruns(tables).list(key)} == {f"r{number}" for number in range(6)}


async def test_a_rerun_recorded_again_keeps_its_number(tables: Tables) -> None:
    key = run_key_of()
    await Reruns(tables).record(key, a_rerun("r1"))
    await Reruns(tables).record(key, a_rerun("r2"))

    assert await Reruns(tables).record(key, a_rerun("r1")) == 0
    assert len(await Reruns(tables).list(key)) == 2


async def test_numbering_goes_on_after_records_of_others_even_if_one_is_missing(tables: Tables) -> None:
    key = run_key_of()
    for number in (0, 10):
        row = {"PK": keys.pipeline_pk(key.pipeline), "SK": keys.rerun_sk(key, number), "reason": "late-data"}
        await tables.commit(Put(TableName.RERUN, row))

    assert await Reruns(tables).record(key, a_rerun()) == 11


async def test_a_record_in_a_bigger_commit_makes_it_stale_if_its_number_was_taken(tables: Tables) -> None:
    run = await Runs(tables).save(a_run())
    record = await next_write(tables, run.key, a_rerun("r1"))
    await Reruns(tables).record(run.key, a_rerun("r2"))

    with pytest.raises(StaleWrite):
        await Runs(tables).save(run, record)

    saved = await Runs(tables).save(run, await next_write(tables, run.key, a_rerun("r1")))
    assert saved.version == run.version + 1
    assert [record.id for record in await Reruns(tables).list(run.key)] == ["r2", "r1"]


async def test_a_run_whose_last_reruns_are_past_their_time_can_be_rerun_before_the_table_deletes_them(
    tables: Tables, clock: ManualClock
) -> None:
    run = await Runs(tables).save(a_run())
    for rerun_id in ("r1", "r2"):
        await Reruns(tables).record(run.key, a_rerun(rerun_id))
    clock.advance(retention.RERUNS + timedelta(hours=1))
    later = replace(a_rerun("r3"), at=clock.now())

    await Runs(tables).save(run, await next_write(tables, run.key, later))

    assert [record.id for record in await Reruns(tables).list(run.key)] == ["r3"]
