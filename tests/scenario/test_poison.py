"""Records that always fail, and what they cost those that come after them."""

import pytest

from consumers.streams.consumer import ReadPace
from consumers.streams.embedded.feed import FeedPosition, TableFeed
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.remote_store import Operation
from tests.support.worlds.stream import FULL_WAITS, World
from worker.core.errors import RetryLater
from worker.store.repos.leases import CrashHistory
from worker.store.row_codec import decode_row
from worker.store.table import Change, TableName

AHEAD = 50  # records read and not done, at most
OTHERS = 10 * AHEAD
CYCLE_S = sum(FULL_WAITS.wait_s(tries) for tries in range(1, FULL_WAITS.attempts_max))
READING_S = 1.0  # for all the others, once nothing holds them up


async def fail_bad(change: Change) -> None:
    if change.key.sk.startswith("SENSOR#bad"):
        raise RetryLater("it always fails")


@pytest.mark.parametrize("bad", [1, AHEAD // 2])
def test_others_wait_for_one_cycle_of_retries_at_most_also_when_no_more_may_be_read_meanwhile(bad: int) -> None:
    async def scenario() -> None:
        world = World(pace=ReadPace(ahead_max=AHEAD))
        world.source = TableFeed(world.store, TableName.CONTROL, world.clock, read_max=AHEAD)
        world.seen.before = fail_bad
        for number in range(bad):
            await world.sensor(f"bad-{number}", number)
        for number in range(OTHERS):
            await world.sensor(f"s{number}", number)

        async with world.consuming() as consumer:
            await world.clock.sleep(CYCLE_S / 2)
            assert len(world.seen.values) < OTHERS, "they do wait: there is no more room"
            await world.clock.sleep(CYCLE_S / 2 + READING_S)
            assert [value for _, value in world.seen.values] == list(range(OTHERS))
            assert (consumer.counts.done, consumer.counts.parked) == (OTHERS, bad)

        letters = await world.letters_kept()
        bodies = [decode_row(await world.letters.body(letter) or b"") for letter in letters]
        assert sorted(str(body["SK"]) for body in bodies) == sorted(f"SENSOR#bad-{number}" for number in range(bad))
        assert all(letter.history == ("it always fails",) * 5 for letter in letters)

    run(scenario())


# --- care -------------------------------------------------------------------------------------------------------------


async def given_back(world: World, session: str, *, up_to: int | None) -> None:
    """A worker that noted the deaths of others where it began, got so far, and left in order."""
    held = await world.take(session)
    await world.leases.note_try(held.lease, CrashHistory(at=held.position, deaths=5))
    position = None if up_to is None else FeedPosition(up_to, world.clock.now()).text()
    await world.leases.release(held.lease, position)


@pytest.mark.parametrize(("up_to", "is_careful"), [(None, True), (10, False)])
def test_care_is_over_once_somebody_got_past_the_place_where_workers_died(
    up_to: int | None, *, is_careful: bool
) -> None:
    async def scenario() -> None:
        world = World()
        for number in range(40):
            await world.sensor(f"s{number}", number)
        await given_back(world, "a", up_to=up_to)
        before = world.tables.calls[Operation.COMMIT]

        async with world.consuming("b"):
            await world.clock.sleep(30)

        assert [value for _, value in world.seen.values] == list(range(up_to or 0, 40))
        assert (world.tables.calls[Operation.COMMIT] - before > 60) is is_careful, "two writes for each record"

    run(scenario())


@on_virtual_time
async def test_care_is_taken_with_as_many_records_as_may_have_been_in_hand_and_no_more() -> None:
    world = World(pace=ReadPace(ahead_max=10))
    for number in range(200):
        await world.sensor(f"s{number}", number)
    await given_back(world, "a", up_to=None)
    before = world.tables.calls[Operation.COMMIT]

    async with world.consuming("b"):
        await world.clock.sleep(30)

    assert [value for _, value in world.seen.values] == list(range(200))
    assert 20 <= world.tables.calls[Operation.COMMIT] - before <= 40
