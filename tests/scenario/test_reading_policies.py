"""What the settings say about records that fail, about those that are gone, and about shards at rest."""

from dataclasses import dataclass, field, replace

import pytest

from tests.support.clock.virtual_time import run
from tests.support.worlds.embedded_workers import Crew, told_of
from tests.support.worlds.engine import DAY, run_key
from tests.support.worlds.shards import ShardWorld
from tests.support.worlds.streamed_workers import StreamedCrew, Way
from worker.app.aws import pace_of
from worker.app.dependencies import WorkerDeps
from worker.config.roles import Role
from worker.config.settings import ON_FAILURE, ON_LOSS, POLLS, ReadingSettings, read_settings
from worker.core.run.state import State
from worker.store.repos import runs
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.table import Delete, Put, TableName

CONTROL = "feed.control"
HOUR_S = 3_600.0


def said(**variables: str) -> ReadingSettings:
    return read_settings(variables).reading


@dataclass
class ChosenCrew(Crew):
    reading: ReadingSettings = field(default_factory=ReadingSettings)

    def deps(self) -> WorkerDeps:
        deps = super().deps()
        return replace(deps, tuning=replace(deps.tuning, reading=self.reading))

    async def poison(self) -> None:
        """Write what does not belong there where the run does: no sensor of the day can be handled."""
        key = runs.run_key(run_key(DAY))
        await self.store.commit(Put(TableName.CONTROL, {"PK": key.pk, "SK": key.sk, "state": "NONSENSE"}))

    async def mend(self) -> None:
        await self.store.commit(Delete(TableName.CONTROL, runs.run_key(run_key(DAY))))

    async def letters(self) -> int:
        return len(await DeadLetters(self.store).list(CONTROL))


@pytest.mark.parametrize(
    ("chosen", "are_kept", "at_once", "with_news"),
    [
        ("park-key", True, None, None),
        ("skip", True, None, State.POLLING),
        ("block", False, State.POLLING, State.POLLING),
        ("joblog=skip,control=block", False, State.POLLING, State.POLLING),
        ("block,control=park-key", True, None, None),
    ],
)
def test_a_record_that_cannot_be_handled_is_parked_with_its_key_skipped_or_waited_for(
    chosen: str, are_kept: bool, at_once: State | None, with_news: State | None
) -> None:
    async def scenario() -> None:
        crew = ChosenCrew(reading=said(**{ON_FAILURE: chosen}))
        await crew.deployed()
        crew.worker("a", Role.ENGINE)  # and no watchdog, which finds by itself what was parked
        await crew.clock.sleep(5)
        await crew.poison()
        await crew.ready()
        await crew.clock.sleep(60)
        assert (await crew.letters() > 0) is are_kept

        await crew.mend()
        await crew.clock.sleep(60)
        assert await crew.state() is at_once
        await crew.ready()
        await crew.clock.sleep(60)
        assert await crew.state() is with_news

    run(scenario())


@dataclass
class ChosenStreams(StreamedCrew):
    reading: ReadingSettings = field(default_factory=ReadingSettings)

    def deps(self) -> WorkerDeps:
        deps = super().deps()
        return replace(deps, tuning=replace(deps.tuning, reading=self.reading))


@pytest.mark.parametrize("way", list(Way))
def test_where_records_are_gone_a_reader_that_is_to_halt_does_nothing_until_it_may_resync(way: Way) -> None:
    async def scenario() -> None:
        crew = ChosenStreams(way=way, reading=said(**{ON_LOSS: "control=halt"}))
        await crew.deployed()
        _, first = crew.worker("a")
        await crew.clock.sleep(60)
        first.stop()
        await crew.clock.sleep(10)
        await crew.ready()
        await crew.clock.sleep(30 * HOUR_S)

        _, halted = crew.worker("b")
        await crew.clock.sleep(600)
        assert await crew.state() is None
        assert told_of(crew.told, "DATA_LOSS_SUSPECTED") >= 1

        halted.stop()
        crew.reading = said(**{ON_LOSS: "resync"})
        crew.worker("c")
        await crew.clock.sleep(60)
        assert await crew.state() is State.POLLING

    run(scenario())


@pytest.mark.parametrize(("chosen", "per_minute"), [("", 30), ("default", 30), ("eco", 12)])
def test_a_shard_at_rest_is_asked_thirty_times_a_minute_or_twelve_times(chosen: str, per_minute: int) -> None:
    async def scenario() -> None:
        world = ShardWorld(pace=pace_of(said(**{POLLS: chosen})))
        world.start("a")
        await world.clock.sleep(120)
        before = world.fake.calls["GetRecords"]

        await world.clock.sleep(600)

        assert world.fake.calls["GetRecords"] - before == pytest.approx(10 * per_minute, abs=1)

    run(scenario())
