"""The page of workers: the watchdog's checks, what is degraded, and how many runs each worker holds."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta

import pytest

from scheduler.watchdog.check_states import CheckState, states_data
from scheduler.watchdog.dead_mans_switch import Heartbeat
from scheduler.watchdog.degraded import Degraded, Trouble
from scheduler.watchdog.expectations_loader import OURSELVES
from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import MORNING, YESTERDAY, ConsoleWorld, a_console_world, fill_store
from tests.unit.web.test_console import HOSTILE, page
from worker.core.model.keys import WATCHDOG_LEDGER, SessionId, watchdog_mark_sk
from worker.core.run.state import Run
from worker.core.time.timestamps import format_rfc3339
from worker.store.repos.marks import move_write
from worker.store.repos.runs import Runs


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=2)
        yield made


async def test_a_watchdog_that_has_not_run_says_so(world: ConsoleWorld) -> None:
    assert "Watchdog · has not run yet" in await page(world, "/workers")


async def test_the_checks_of_the_watchdog_are_listed_with_their_last_failure(world: ConsoleWorld) -> None:
    states = [
        CheckState(name="late", every=timedelta(minutes=1), ended_at=MORNING - timedelta(seconds=20)),
        CheckState(name="lag", every=timedelta(minutes=1), ended_at=MORNING, problem=HOSTILE[:80]),
        CheckState(name="old", every=timedelta(minutes=1), ended_at=MORNING - timedelta(minutes=9)),
    ]
    data = {"upTo": format_rfc3339(MORNING), **states_data(states)}
    await world.tables.commit(move_write(OURSELVES, watchdog_mark_sk(WATCHDOG_LEDGER), None, data, MORNING))
    await Heartbeat(world.tables).beat(MORNING, is_sound=True)

    text = await page(world, "/workers")

    assert "✓ works all runs expected before 2027-03-23 06:10:00 UTC are accounted for" in text
    assert "late ✓ ran 1m 00s 06:09 UTC 06:10 UTC none" in text
    assert "lag ✕ failed 1m 00s 06:10 UTC 06:11 UTC <img src=x onerror=alert(1)>" in text
    assert "old ! overdue" in text
    assert "<img" not in (await world.get("/workers")).text

    await Degraded(world.tables, world.clock).note({"relay-lag": Trouble("the bus does not answer")})
    text = await page(world, "/workers")
    assert "! degraded" in text
    assert "relay-lag does not work since 06:10 UTC : the bus does not answer" in text


async def test_a_worker_shows_how_many_runs_it_holds(world: ConsoleWorld) -> None:
    assert "being read" in await page(world, "/workers")
    run = await Runs(world.tables).load(key_of(YESTERDAY, "stock-levels"))
    assert isinstance(run, Run)
    await Runs(world.tables).save(replace(run, owner=SessionId("worker-1")))
    await page(world, "/")

    assert "worker-1 ✓ alive 0s ago all 0.1.0 0 1" in await page(world, "/workers")
