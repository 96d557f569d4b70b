"""A record of a real stream that cannot be handled: from the table to a dead letter, and by a person's command back."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from consumers.streams.aws.dynamodb_streams import DIGITS
from consumers.streams.positions import parse_place
from tests.support.worlds.aws_workers import CONTROL, PATIENCE_S, Crew, crew, lines
from tests.support.worlds.live_worker import interlock
from tests.support.worlds.observer import last_days, wait_until
from worker.config.store_setting import GROUP
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.runs import run_key
from worker.store.table import Delete, Put, TableName

pytestmark = [pytest.mark.xdist_group("aws-workers"), pytest.mark.timeout(300)]


async def test_a_poisonous_record_is_kept_whole_and_handled_once_its_cause_is_mended_and_it_is_replayed(
    tmp_path: Path,
) -> None:
    [key] = last_days(1)
    where = run_key(key)
    async with crew(tmp_path, "only", timing="fast") as group:
        await wait_until(lambda: _has_read(group), within_s=PATIENCE_S, workers=group.workers)
        # What somebody wrote where the run belongs: no sensor of that day can be handled.
        await group.tables.commit(Put(TableName.CONTROL, {"PK": where.pk, "SK": where.sk, "state": "NONSENSE"}))
        await group.onlooker.say_ready([key])
        await wait_until(lambda: _has_letters(group, tmp_path, 1), within_s=PATIENCE_S, workers=group.workers)
        await group.onlooker.say_ready([key])  # it comes again, and must not overtake the first
        await wait_until(lambda: _has_letters(group, tmp_path, 2), within_s=PATIENCE_S, workers=group.workers)
        first, second = await _letters(group, tmp_path)
        shown = json.loads(await _said(group, tmp_path, "dlq", "show", CONTROL, first["id"]))
        assert "the row was changed from outside" in first["reason"]
        assert "its key is parked" in second["reason"]
        assert shown["body"]["image"]["data"] == {"rows": 12}

        await group.tables.commit(Delete(TableName.CONTROL, where))
        await _said(group, tmp_path, "dlq", "replay", "--all")

        await group.complete([key])
        await wait_until(lambda: _has_letters(group, tmp_path, 0), within_s=PATIENCE_S, workers=group.workers)
        assert await ParkedKeys(group.tables, GROUP).list(CONTROL) == []
        [worker] = group.workers
        assert [line["letter"] for line in lines(worker, "letter.replayed")] == [first["id"], second["id"]]
        await group.assert_each_ran_once([key])


async def _has_read(group: Crew) -> bool:
    """It is past the record of the pipeline itself, which would else be poisoned as well."""
    marks = [lease.checkpoint for lease in await group.leases() if lease.stream == CONTROL]
    return any(mark is not None and not parse_place(mark, DIGITS).is_start for mark in marks)


async def _letters(group: Crew, at: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (await _said(group, at, "dlq", "list", "--json")).splitlines()]


async def _has_letters(group: Crew, at: Path, count: int) -> bool:
    return len(await _letters(group, at)) == count


async def _said(group: Crew, at: Path, *arguments: str) -> str:
    """What the command prints, run by a person with the worker's own settings."""
    variables = group.place.variables(slack_api="")
    done = await asyncio.to_thread(lambda: interlock(*arguments, at=at, **variables))
    assert done.returncode in {0, 1}, done.stderr  # 1: there are dead letters
    return done.stdout
