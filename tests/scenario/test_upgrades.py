"""A store that an earlier release wrote, with runs, leases and watches under way, is taken over by this one.

`tests/data/stores` has one file for each release: what its workers left when all of them died at once.
"""

from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.command_line import interlock, records
from tests.support.clock.manual import NOON, ManualClock
from tests.support.clock.virtual_time import VirtualClock, run
from tests.support.worlds.embedded_workers import Crew, told_of
from tests.support.worlds.engine import ORDERS
from tests.support.worlds.written_store import (
    DIED_S,
    DONE_DAY,
    DOUBTED,
    PAUSED,
    RETRIED,
    RUNNING_DAY,
    TIMED,
    WAITING_DAY,
    WATCHED,
    WrittenStore,
    live_and_die,
)
from worker.config.store_setting import GROUP
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.store.repos.leases import Leases
from worker.store.repos.pauses import Pauses
from worker.store.repos.runs import Runs
from worker.store.repos.sessions import Sessions, SessionState
from worker.store.sqlite.file import connect
from worker.store.sqlite.tables import Connections, SqliteTables
from worker.store.sqlite.threads import InlineJobThread
from worker.store.sqlite.transactions import Reader, Writer

WRITTEN = sorted((Path(__file__).parents[1] / "data/stores").glob("*.sql.gz"))
STREAM = "stream"


class LateCrew(Crew):
    """Workers of this version on a file that another one wrote."""

    def __init__(self, left: WrittenStore, path: Path) -> None:
        super().__init__(clock=VirtualClock(), runner=left.runner())
        left.put_into(path)
        connection = connect(path)  # migrates the file, as a worker does
        connection.execute("PRAGMA synchronous = OFF")  # no power fails here, and a disk would take most of the time
        lanes = Connections(InlineJobThread(connection, Writer()), InlineJobThread(connection, Reader()))
        self.store = SqliteTables(path, self.clock, lanes=lanes)
        self.before = dict(self.runner.jobs)

    async def found(self, pipeline: str, day: str, schedule: str = STREAM) -> Run:
        period = Period.parse(day)
        assert period is not None
        found = await Runs(self.store).load(RunKey(PipelineId(pipeline), ScheduleId(schedule), period))
        assert isinstance(found, Run), f"{pipeline} {day} is {found}"
        return found

    async def pass_time(self, minutes: int) -> None:
        """Let jobs end a minute after they began."""
        for _ in range(minutes):
            await self.clock.sleep(60)
            self.runner.finish()


def test_there_is_a_store_of_an_earlier_release() -> None:
    assert WRITTEN


def test_what_this_version_leaves_can_be_written_down_for_the_next(tmp_path: Path) -> None:
    left = run(live_and_die())
    left.write(tmp_path / "store.sql.gz")

    again = WrittenStore.read(tmp_path / "store.sql.gz")

    assert again == left
    assert set(again.jobs.values()) == {"running", "succeeded", "failed"}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name.removesuffix(".sql.gz"))
@pytest.mark.parametrize("workers", [1, 2])
def test_runs_of_an_earlier_release_end_and_nothing_starts_twice(path: Path, workers: int, tmp_path: Path) -> None:
    async def scenario() -> None:
        crew = LateCrew(WrittenStore.read(path), tmp_path / "store.db")
        await crew.clock.sleep(DIED_S + 5)
        assert (await crew.found("orders", RUNNING_DAY)).state is State.POLLING
        assert (await crew.found("orders", WAITING_DAY)).state is State.EVALUATING
        assert (await crew.found(DOUBTED, WAITING_DAY)).state is State.TRIGGERING
        for number in range(workers):
            crew.worker(f"new{number}")
        await crew.clock.sleep(60)

        # What was there goes on: a run that waited gets its data, and a pause ends.
        await crew.sensor("count", WAITING_DAY, rows=120)
        await Pauses(crew.store).remove(PipelineId(PAUSED))
        await crew.pass_time(14)

        names = [(RETRIED, WAITING_DAY), (DOUBTED, WAITING_DAY), (PAUSED, WAITING_DAY), (WATCHED, WAITING_DAY)]
        days = [("orders", DONE_DAY), ("orders", RUNNING_DAY), ("orders", WAITING_DAY)]
        runs = {name: await crew.found(*name) for name in (*names, *days)}
        assert {name: each.state for name, each in runs.items()} == dict.fromkeys(runs, State.COMPLETED)
        # A job that the earlier release started was not started again; a start in doubt was found by its token.
        assert set(crew.runner.tokens).isdisjoint(crew.before)
        assert max(Counter(crew.runner.tokens).values()) == 1
        # One new attempt each: of the retry, the paused run, the one that waited, and the rerun that was asked for.
        assert runs["orders", DONE_DAY].attempt == 2
        assert (runs[RETRIED, WAITING_DAY].attempt, runs[DOUBTED, WAITING_DAY].attempt) == (2, 1)
        await _expect_a_group_of(crew, workers)
        # Times that passed while nobody worked, and new ones, each have one run.
        assert [(await crew.found(TIMED, f"2026-03-03T12{at}", "cron")).state for at in ("05", "10", "20")] == [
            State.COMPLETED
        ] * 3
        assert told_of(crew.told, "RELATIVE_SLA_BREACH") == 0

    run(scenario())


async def _expect_a_group_of(crew: LateCrew, workers: int) -> None:
    """The sessions of the earlier release are dead, and every lease is held by a new one."""
    sessions = {each.id: each.state for each in await Sessions(crew.store, GROUP).list()}
    alive = {name for name, state in sessions.items() if state is SessionState.LIVE}
    assert len(alive) == workers
    assert all(str(name).startswith("new") for name in alive)
    held = [lease for lease in await Leases(crew.store, GROUP).list() if lease.owner is not None]
    assert {lease.owner for lease in held} <= alive


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name.removesuffix(".sql.gz"))
def test_a_deadline_that_an_earlier_release_armed_is_kept(path: Path, tmp_path: Path) -> None:
    async def scenario() -> None:
        crew = LateCrew(WrittenStore.read(path), tmp_path / "store.db")
        await crew.clock.sleep(DIED_S + 5)
        crew.worker("new")

        await crew.clock.sleep(720)  # until after the deadline, and no job ends

        breached = {event.pipeline for event in crew.told if event.type == "RELATIVE_SLA_BREACH"}
        assert breached == {PipelineId(WATCHED)}
        assert told_of(crew.told, "RELATIVE_SLA_BREACH") == 1

    run(scenario())


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name.removesuffix(".sql.gz"))
def test_commands_read_old_rows_next_to_new_ones(path: Path, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    url = f"sqlite:///{store}"

    async def work_on() -> None:
        crew = LateCrew(WrittenStore.read(path), store)
        await crew.clock.sleep(DIED_S + 5)
        crew.worker("new")
        await crew.pass_time(9)

    run(work_on())
    clock = ManualClock(NOON + timedelta(minutes=20))

    listed = records(interlock("runs", "list", "--json", "--limit", "50", "--store", url, clock=clock).stdout)
    shown = {(each["pipeline"], each["period"]) for each in listed if each["type"] == "run"}
    assert {("orders", DONE_DAY), (RETRIED, WAITING_DAY), (TIMED, "2026-03-03T1215")} <= shown
    for words in (
        ["status"],
        ["events"],
        ["pipelines", "list"],
        ["runs", "show", ORDERS, DONE_DAY],
    ):
        result = interlock(*words, "--store", url, clock=clock)
        assert result.exit_code == 0, f"{words}: {result.output}"
    checked = interlock("store", "check", "--store", url, clock=clock)
    assert checked.exit_code == 0, checked.output
