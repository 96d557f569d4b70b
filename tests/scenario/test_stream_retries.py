"""Records that fail: tried again, kept whole at last with their key parked, and no other key kept waiting."""

from consumers.streams.consumer import ReadPace
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_BEFORE, NO_FAULT, Fault, Operation, no_faults
from tests.support.worlds.stream import STREAM, World
from worker.core.errors import Rejected, RetryLater
from worker.store.retention import PARKED_KEYS
from worker.store.row_codec import decode_row
from worker.store.table import Change, Key, TableName


def all_lost(_: Operation) -> Fault:
    return DROP_BEFORE


def failing(sensor: str, error: Exception, times: int = 1_000_000) -> "FailingHandler":
    return FailingHandler(sensor, error, times)


class FailingHandler:
    def __init__(self, sensor: str, error: Exception, times: int) -> None:
        self.sensor, self.error, self.left = sensor, error, times
        self.tries = 0

    async def __call__(self, change: Change) -> None:
        if change.key.sk == f"SENSOR#{self.sensor}" and self.left:
            self.left -= 1
            self.tries += 1
            raise self.error


@on_virtual_time
async def test_trouble_that_passes_costs_nothing_but_time() -> None:
    world = World()
    world.seen.before = failing("a", RetryLater("throttled"), times=4)

    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(30)

    assert world.seen.values == [("a", 1)]
    assert await world.letters_kept() == []


@on_virtual_time
async def test_a_record_that_fails_five_times_is_kept_whole_with_what_was_tried() -> None:
    world = World()
    world.seen.before = handler = failing("a", RetryLater("target is down"))

    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(60)

    [letter] = await world.letters_kept()
    body = decode_row(await world.letters.body(letter) or b"")
    assert handler.tries == 5
    assert letter.history == ("target is down",) * 5
    assert letter.reason == "failed 5 times, last: target is down"
    assert (body["PK"], body["SK"], body["kind"]) == ("PIPELINE#orders", "SENSOR#a", "INSERT")
    assert body["image"] == await world.store.get(TableName.CONTROL, Key("PIPELINE#orders", "SENSOR#a"))


@on_virtual_time
async def test_poison_is_tried_once_and_parks_only_its_own_key() -> None:
    world = World()
    world.seen.before = handler = failing("a", Rejected("not a known event"), times=1)

    async with world.consuming() as consumer:
        await world.sensor("a", 1)
        await world.sensor("b", 1)
        await world.clock.sleep(1)
        await world.sensor("a", 2)
        await world.sensor("b", 2)
        await world.clock.sleep(1)
        assert consumer.counts.received == consumer.counts.done + consumer.counts.parked

    first, second = await world.letters_kept()
    assert handler.tries == 1
    assert first.reason == "not a known event"
    assert second.reason.startswith(f"its key is parked since record {first.id}")
    assert world.seen.values == [("b", 1), ("b", 2)]


@on_virtual_time
async def test_a_key_stays_parked_over_a_change_of_holder_and_not_for_ever() -> None:
    world = World()
    world.seen.before = failing("a", Rejected("no"), times=1)
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(2)

    async with world.consuming("b"):
        await world.sensor("a", 2)
        await world.clock.sleep(2)
        assert world.seen.values == []

        await world.clock.sleep(PARKED_KEYS.total_seconds())
        await world.sensor("a", 3)
        await world.clock.sleep(2)
    assert world.seen.values == [("a", 3)]


@on_virtual_time
async def test_a_key_that_a_person_released_is_handled_again_at_once() -> None:
    world = World()
    world.seen.before = failing("a", Rejected("no"), times=1)
    async with world.consuming():
        await world.sensor("a", 1)
        await world.clock.sleep(2)
        [parked] = await world.parked.list(STREAM)
        await world.parked.release(STREAM, parked.key_hash)

        await world.sensor("a", 2)
        await world.clock.sleep(2)
    assert world.seen.values == [("a", 2)]


@on_virtual_time
async def test_a_crash_between_dead_letter_and_parking_keeps_one_letter() -> None:
    world = World()
    world.seen.before = failing("a", Rejected("no"))
    await world.sensor("a", 1)
    commits = 0

    def lose_the_parking(operation: Operation) -> Fault:
        nonlocal commits
        commits += operation is Operation.COMMIT
        return DROP_BEFORE if operation is Operation.COMMIT and commits > 3 else NO_FAULT  # made, taken, letter

    world.tables.choose = lose_the_parking
    await world.consume_and_crash(after_s=5)
    assert await world.parked.list(STREAM) == []
    world.tables.choose = no_faults
    async with world.consuming("b"):
        await world.clock.sleep(5)

    assert len(await world.letters_kept()) == 1
    assert len(await world.parked.list(STREAM)) == 1


@on_virtual_time
async def test_an_outage_of_the_store_turns_no_record_into_a_dead_letter() -> None:
    world = World()

    async def needs_the_store(_: Change) -> None:
        await world.tables.ping()

    world.seen.before = needs_the_store
    async with world.consuming():
        await world.clock.sleep(1)
        world.tables.choose = all_lost
        await world.sensor("a", 1)
        await world.clock.sleep(600)
        assert world.seen.values == []
        world.tables.choose = no_faults
        await world.clock.sleep(30)

    assert world.seen.values == [("a", 1)]
    assert await world.letters_kept() == []


@on_virtual_time
async def test_a_record_that_waits_for_its_next_try_keeps_no_other_key_waiting() -> None:
    world = World(pace=ReadPace(lanes=1))
    world.seen.before = failing("a", RetryLater("later"))

    async with world.consuming():
        await world.sensor("a", 1)
        await world.sensor("b", 1)
        await world.clock.sleep(0.3)
        assert world.seen.values == [("b", 1)]
        await world.clock.sleep(60)
