"""Whole workers as `interlock run` wires them, on virtual time: crashed, frozen and stopped; nothing is lost."""

from collections import Counter

from consumers.delivery.retry import GivenUp
from consumers.streams.embedded.feed import feed_name
from consumers.streams.parking import Parking
from consumers.streams.source import Position, Record
from scheduler.scheduler_lease import STREAM as SCHEDULER
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.cron import a_timed_config, periods_of
from tests.support.worlds.embedded_workers import Crew, told_of
from tests.support.worlds.engine import DAY, ORDERS
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.config.store_setting import GROUP
from worker.core.model.events import Event
from worker.core.run.state import State
from worker.jobs.runner import Config, Handle, JobStatus
from worker.store.repos.delivery.dead_letter_replays import Replays
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.events import Events, event_write
from worker.store.repos.leases import Leases
from worker.store.repos.sensors import Sensors
from worker.store.repos.sessions import Sessions
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Change, ChangeKind, Key, Put, TableName, Write


@on_virtual_time
async def test_a_run_goes_from_its_sensor_to_its_end_and_people_are_told() -> None:
    crew = Crew()
    await crew.deployed()
    crew.worker("a")
    await crew.clock.sleep(5)

    await crew.ready()
    await crew.clock.sleep(1)
    assert await crew.state() is State.POLLING
    crew.finish_jobs()
    await crew.clock.sleep(120)

    assert await crew.state() is State.COMPLETED
    assert told_of(crew.told, "JOB_COMPLETED") == 1
    assert len(crew.runner.starts) == 1


@on_virtual_time
async def test_sensors_that_came_while_nobody_worked_are_not_missed() -> None:
    crew = Crew()
    await crew.deployed()
    _, first = crew.worker("a")
    await crew.clock.sleep(5)
    first.stop()
    await crew.clock.sleep(5)
    await crew.ready()
    await crew.clock.sleep(60)

    crew.worker("b")
    await crew.clock.sleep(5)

    assert await crew.state() is State.POLLING


@on_virtual_time
async def test_time_starts_runs_also_when_the_worker_with_the_duty_crashes_just_before() -> None:
    crew = Crew()
    pipeline = load_text(a_timed_config("*/2 * * * *")).pipeline
    assert pipeline is not None
    await deploy(crew.store, pipeline, crew.clock)
    await Sensors(crew.store).put(ORDERS, "count", {"rows": 1})
    hosts = {name: crew.worker(name)[0] for name in ("a", "b")}
    await crew.clock.sleep(238)
    [duty] = await Leases(crew.store, GROUP).list(SCHEDULER)
    assert duty.owner is not None

    hosts[duty.owner.partition("-")[0]].crash()
    await crew.clock.sleep(15)

    assert await periods_of(crew.store) == [f"{DAY}T1202", f"{DAY}T1204"]
    assert len(crew.runner.starts) == 2


@on_virtual_time
async def test_another_worker_takes_over_everything_of_one_that_crashed() -> None:
    crew = Crew()
    await crew.deployed()
    host, _ = crew.worker("a")
    await crew.clock.sleep(5)
    crew.worker("b")
    await crew.clock.sleep(5)
    await crew.ready()
    await crew.clock.sleep(1)
    assert len(crew.runner.starts) == 1

    host.crash()
    crew.finish_jobs()
    await crew.clock.sleep(180)

    assert await crew.state() is State.COMPLETED
    assert len(crew.runner.starts) == 1
    assert told_of(crew.told, "JOB_COMPLETED") == 1


@on_virtual_time
async def test_whoever_froze_is_fenced_when_it_wakes_and_comes_back_in_a_new_session() -> None:
    crew = Crew()
    await crew.deployed()
    host, _ = crew.worker("a")
    await crew.clock.sleep(5)
    crew.worker("b")
    await crew.clock.sleep(5)

    host.freeze()
    await crew.ready()
    await crew.clock.sleep(20)
    host.thaw()
    await crew.clock.sleep(30)
    crew.finish_jobs()
    await crew.clock.sleep(180)

    assert await crew.state() is State.COMPLETED
    assert len(crew.runner.starts) == 1
    assert told_of(crew.told, "JOB_COMPLETED") == 1
    assert len([session for session in await Sessions(crew.store, GROUP).list() if session.is_alive]) == 2


@on_virtual_time
async def test_every_event_that_was_decided_is_told_at_least_once_over_many_crashes() -> None:
    crew = Crew()
    await crew.deployed()
    host, _ = crew.worker("w0")
    for number in range(1, 6):
        await crew.clock.sleep(7)
        await crew.sensor("count", rows=120 + number)
        await crew.sensor("ready", status="done", number=number)
        await crew.clock.sleep(0.3 * number)  # somewhere in the middle of things
        host.crash()
        crew.finish_jobs()
        host, _ = crew.worker(f"w{number}")
        await crew.clock.sleep(60)
    crew.finish_jobs()
    await crew.clock.sleep(600)

    untold = {"JOB_TRIGGERED", "VALIDATION_PASSED", "POST_RUN_BASELINE_CAPTURED", "POST_RUN_PASSED"}
    events = [stored.event for stored in await Events(crew.store).latest(ORDERS, 1000)]
    assert told_of(crew.told, "JOB_COMPLETED") >= 1
    assert {event.id for event in crew.told} == {event.id for event in events if event.type not in untold}
    tokens = Counter(start.token for start in crew.runner.starts)
    assert max(tokens.values()) == 1


@on_virtual_time
async def test_who_stops_in_order_leaves_nothing_behind() -> None:
    crew = Crew()
    await crew.deployed()
    _, membership = crew.worker("a")
    await crew.clock.sleep(5)
    await crew.ready()
    await crew.clock.sleep(1)

    membership.stop()
    asked_at = crew.clock.monotonic()
    while await Sessions(crew.store, GROUP).list():
        await crew.clock.sleep(0.1)

    assert crew.clock.monotonic() - asked_at < 25
    assert [lease for lease in await Leases(crew.store, GROUP).list() if lease.owner] == []
    assert await crew.state() is State.POLLING


@on_virtual_time
async def test_a_worker_with_nothing_to_do_writes_its_heartbeat_and_little_else() -> None:
    crew = Crew()
    await crew.deployed()
    crew.worker("a")
    await crew.clock.sleep(60)
    before = await crew.store.last_position()

    await crew.clock.sleep(600)

    beats = 600 / 2
    assert await crew.store.last_position() - before < beats * 1.1


class Tripping(FakeRunner):
    """A target whose first answer about a job nobody expected."""

    trips = 1

    async def status(self, handle: Handle, config: Config, /) -> JobStatus:
        if self.trips:
            self.trips -= 1
            raise KeyError("state")
        return await super().status(handle, config)


@on_virtual_time
async def test_an_answer_of_a_target_that_nobody_expected_ends_neither_the_worker_nor_the_run() -> None:
    crew = Crew(runner=Tripping())
    await crew.deployed()
    crew.worker("a")
    await crew.clock.sleep(5)

    await crew.ready()
    await crew.clock.sleep(1)
    crew.finish_jobs()
    await crew.clock.sleep(240)

    assert await crew.state() is State.COMPLETED
    assert len(crew.runner.starts) == 1
    assert len([session for session in await Sessions(crew.store, GROUP).list() if session.is_alive]) == 1


class TrippingStore(SqliteTables):
    """A store in which we stumble the first time that a run is to be completed."""

    trips = 1

    async def commit(self, *writes: Write) -> None:
        if self.trips and any(isinstance(write, Put) and write.row.get("state") == State.COMPLETED for write in writes):
            self.trips -= 1
            raise KeyError("state")
        await super().commit(*writes)


@on_virtual_time
async def test_a_run_that_makes_us_stumble_is_looked_at_again_and_ends_no_worker() -> None:
    crew = Crew()
    crew.store = TrippingStore.in_memory(crew.clock)
    await crew.deployed()
    crew.worker("a")
    await crew.clock.sleep(5)

    await crew.ready()
    await crew.clock.sleep(1)
    crew.finish_jobs()
    await crew.clock.sleep(240)

    assert isinstance(crew.store, TrippingStore)
    assert crew.store.trips == 0
    assert await crew.state() is State.COMPLETED
    assert len([session for session in await Sessions(crew.store, GROUP).list() if session.is_alive]) == 1


@on_virtual_time
async def test_an_event_whose_record_became_a_dead_letter_is_told_when_it_is_replayed() -> None:
    crew = Crew()
    crew.worker("a")
    await crew.clock.sleep(30)
    event = Event(id="e1", type="JOB_FAILED", at=crew.clock.now(), pipeline=ORDERS, message="disk full")
    row = event_write(event).row
    key = Key(str(row["PK"]), str(row["SK"]))
    change = Change(position=7, table=TableName.EVENTS, key=key, kind=ChangeKind.INSERT, image=row, at=crew.clock.now())
    source, letters, parked = feed_name(TableName.EVENTS), DeadLetters(crew.store), ParkedKeys(crew.store, GROUP)
    parking = Parking(stream=source, letters=letters, keys=parked, clock=crew.clock)
    await parking.put(Record(Position("7"), change), GivenUp("5 workers ended while they handled it", ()), "lane")

    [letter] = await letters.list(source)
    await Replays(crew.store, GROUP).ask(letter, crew.clock.now())
    await crew.clock.sleep(60)

    assert await letters.list(source) == []
    assert [each.id for each in crew.told if each.type == "JOB_FAILED"] == ["e1"]
