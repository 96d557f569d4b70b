"""Failover in the middle of each check: whatever the duty's holder was about to write, no alert is lost, none doubled.

Each life is lived once undisturbed, to learn how often its watchdog writes. Then it is lived again for each of those
writes: there the holder is lost just before or just after it, or the answer is, and a successor goes on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pytest

from scheduler.watchdog.checks.table import Watched
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import run
from tests.support.fakes.remote_store import DROP_AFTER, DROP_BEFORE, Fault, FaultyTables
from tests.support.worlds.engine import CONFIG, ORDERS, World, a_world, run_key, store_in_memory
from tests.support.worlds.watchdog import one_pass, pipeline_text, types_told, watch
from worker.core.errors import RetryLater
from worker.core.model.keys import pipeline_pk, trigger_sk
from worker.core.model.pipeline import PipelineId
from worker.core.run.facts import JobRunning
from worker.core.run.state import Outcome, Pause, Run, State
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.store.table import Put, TableName, Tables, Write

LIFE = timedelta(hours=2, minutes=40)
TAKEN_OVER_AFTER = timedelta(seconds=30)


class Lost(BaseException):
    """The worker is gone, in the middle of what it did: nothing of it catches this."""


class PerilousTables(FaultyTables):
    """A store at whose n-th write of the duty's holder something happens: to the write, its answer, or the holder."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self._store = tables
        self.is_watched = False  # a write counts only while the watchdog is making a pass
        self.seen: list[bool] = []  # of each write, whether it is a note that every pass ends with
        self.fatal: int | None = None
        self.fault: Fault = DROP_BEFORE
        self.dies = True

    async def commit(self, *writes: Write) -> None:
        is_counted = self.is_watched and is_by_the_watchdog()
        if is_counted:
            self.seen.append(is_note(writes))
        is_fatal = is_counted and len(self.seen) == self.fatal
        if not (is_fatal and self.fault.request_is_lost):
            await self._store.commit(*writes)
        if is_fatal:
            raise Lost if self.dies else RetryLater("no answer")


def is_by_the_watchdog() -> bool:
    """Say whether a pass writes, or deals with one of its findings; the engine's own tasks have other names."""
    task = asyncio.current_task()
    return task is not None and task.get_name().startswith(("Task-", "read:"))


def is_note(writes: Sequence[Write]) -> bool:
    return all("MARK#WATCHDOG#ledger" in write.key.sk or "HEARTBEAT" in write.key.sk for write in writes)


@dataclass(frozen=True)
class Life:
    """What is prepared, what is watched, and what must be told in the end: once each."""

    prepare: Callable[[World], Awaitable[None]]
    alerts: dict[str, int]
    watched: Watched = field(default_factory=Watched)
    about: str = "orders"


# --- the lives --------------------------------------------------------------------------------------------------------


async def no_run(world: World) -> None:
    await world.deploy(pipeline_text("orders", '{cron: "0 13 * * *", trigger: {key: ready, check: exists}}'))


async def no_run_on_a_date(world: World) -> None:
    await world.deploy(pipeline_text("orders", '{include: {dates: ["2026-03-03"]}, time: "13:00"}'))


async def no_data(world: World) -> None:
    await world.deploy(pipeline_text("orders", '{trigger: {key: ready, check: exists, deadline: "13:00"}}'))


async def no_data_before_the_deadline(world: World) -> None:
    text = pipeline_text("orders", "{trigger: {key: ready, check: exists}}", more='sla: {deadline: "14:00"}')
    await world.deploy(text)


async def a_lost_record(world: World) -> None:
    await world.deploy(CONFIG)
    world.read_to[TableName.CONTROL] = await world.tables.last_position()
    await world.ready()
    world.read_to[TableName.CONTROL] = await world.tables.last_position()


async def data_during_a_pause(world: World) -> None:
    await Pauses(world.tables).put(ORDERS, Pause("migration", None))
    text = "{trigger: {key: ready, check: equals, field: status, value: done}}"
    await world.deploy(pipeline_text("orders", text, more="sla: {maxDuration: 1h, expectedDuration: 1h}"))
    await world.ready()


async def a_foreign_run(world: World) -> None:
    await world.deploy(CONFIG)
    ends = int((NOON + timedelta(hours=1)).timestamp())
    row = {"PK": pipeline_pk(ORDERS), "SK": trigger_sk(run_key()), "status": "RUNNING", "ttl": ends}
    await world.tables.commit(Put(TableName.CONTROL, row))


async def no_word_after_the_run(world: World) -> None:
    await world.deploy(CONFIG + "postRun: {sensorTimeout: 1h, rules: [{key: rows-out, check: exists}]}")
    await Runs(world.tables).save(await a_run(world, State.COMPLETED, None))


async def an_orphan(world: World) -> None:
    await world.deploy(CONFIG)
    await Runs(world.tables).save(await a_run(world, State.FAILED_FINAL, Outcome.ORPHANED))


async def a_dead_letter(world: World) -> None:
    letter = DeadLetter(id="1", source="feed.control", at=world.clock.now(), reason="poison")
    await DeadLetters(world.tables).put(letter, b"{}", now=letter.at)


async def a_run(world: World, state: State, outcome: Outcome | None) -> Run:
    async with world.worker("w0", reads_feed=False) as worker:
        version = await worker.parts.configs.current(PipelineId("orders"))
    assert version is not None
    now = world.clock.now()
    return Run(
        key=run_key(),
        run_id="r1",
        state=state,
        config_hash=version.config_hash,
        created_at=now,
        since=now,
        timeout_at=now,
        outcome=outcome,
        job={"id": "j-17"},
    )


async def still_running(_: Run, __: object) -> JobRunning:
    return JobRunning(1)


LIVES = {
    "missed-schedules": Life(no_run, {"SCHEDULE_MISSED": 1}),
    "missed-inclusion-schedules": Life(no_run_on_a_date, {"IRREGULAR_SCHEDULE_MISSED": 1}),
    "trigger-deadlines": Life(no_data, {"SENSOR_DEADLINE_EXPIRED": 1}),
    "sla-scheduling": Life(no_data_before_the_deadline, {"SLA_BREACH": 1}),
    "sensor-trigger-reconciliation": Life(a_lost_record, {"TRIGGER_RECOVERED": 1}),
    "relative-sla-breaches": Life(data_during_a_pause, {"RELATIVE_SLA_BREACH": 1}),
    "stale-triggers": Life(a_foreign_run, {"SFN_TIMEOUT": 1}),
    "post-run-sensors": Life(no_word_after_the_run, {"POST_RUN_SENSOR_MISSING": 1}),
    "orphaned-jobs": Life(an_orphan, {"JOB_ORPHANED": 1}, Watched(poll=still_running)),
    "dead-letters": Life(a_dead_letter, {"WATCHDOG_DEGRADED": 1}, about=""),
}
PERILS = {
    "the holder dies before the write": (DROP_BEFORE, True),
    "the holder dies after the write": (DROP_AFTER, True),
    "the answer is lost": (DROP_AFTER, False),
    "the write is lost": (DROP_BEFORE, False),
}


async def live(life: Life, fatal: int | None, fault: Fault, *, dies: bool) -> tuple[list[bool], list[str]]:
    """Live a life; say what the watchdog wrote, and what was told in the end."""
    world = await a_world(PerilousTables, make=store_in_memory)
    tables = world.seen_by_workers
    assert isinstance(tables, PerilousTables)
    tables.fatal, tables.fault, tables.dies = fatal, fault, dies
    async with world.worker("w1") as worker:
        first = watch(world, worker, life.watched)
        await first.go()
        await life.prepare(world)
        await world.settle()
        is_lost = await passes(world, tables, partial(one_pass, first.watchdog))
    if is_lost:
        await world.clock.sleep(TAKEN_OVER_AFTER.total_seconds())
        async with world.worker("w2") as worker:
            await world.adopt_orphans(worker)
            await passes(world, tables, partial(one_pass, watch(world, worker, life.watched).watchdog))
    return tables.seen, await types_told(world, life.about)


async def passes(world: World, tables: PerilousTables, make_pass: Callable[[], Awaitable[None]]) -> bool:
    """Pass after pass until the end of the life; says whether its holder was lost on the way."""
    while world.clock.now() < NOON + LIFE:
        tables.is_watched = True
        try:
            await make_pass()
        except (Lost, BaseExceptionGroup):  # what it did at the same time is lost with it
            return True
        except RetryLater:
            pass  # as the rota does: the next turn comes
        finally:
            tables.is_watched = False
        await world.clock.sleep(900)
    return False


@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("peril", PERILS)
def test_whatever_is_lost_with_a_write_each_alert_is_told_once(name: str, peril: str) -> None:
    life, (fault, dies) = LIVES[name], PERILS[peril]
    writes, undisturbed = run(live(life, None, fault, dies=dies))
    assert {each: undisturbed.count(each) for each in life.alerts} == life.alerts

    for fatal in fatal_writes(writes):
        _, types = run(live(life, fatal, fault, dies=dies))
        assert {each: types.count(each) for each in life.alerts} == life.alerts, f"write {fatal} of {len(writes)}"


def fatal_writes(are_notes: Sequence[bool]) -> list[int]:
    """Every write of a check, and the first note after each: between the two lies all that may get lost."""
    told = [number for number, is_a_note in enumerate(are_notes, 1) if not is_a_note]
    notes = [next((later for later in range(number, len(are_notes) + 1) if are_notes[later - 1]), 1) for number in told]
    return sorted({*told, *notes})
