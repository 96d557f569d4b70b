"""Records that always fail, and what they cost those that come after them."""

import pytest

from consumers.feed import TableFeed
from consumers.stream import Pace
from tests.streamworld import FULL_WAITS, World
from tests.virtualtime import run
from worker.core.errors import RetryLater
from worker.store.rowcodec import decode_row
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
        world = World(pace=Pace(ahead_max=AHEAD))
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
