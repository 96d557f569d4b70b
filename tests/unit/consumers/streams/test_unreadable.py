"""What is no change of a row is kept whole, once, where people look for what went wrong."""

from consumers.streams.source import Position
from consumers.streams.unreadable import BODY_MAX, UnreadableRecordLetter, UnreadableRecordLetters
from tests.support.clock.manual import NOON, ManualClock
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.row_codec import decode_row
from worker.store.sqlite.tables import SqliteTables

STREAM = "kinesis.control"


def a_stray(body: bytes = b"hello") -> UnreadableRecordLetter:
    return UnreadableRecordLetter(
        source=f"{STREAM}/shard-1", position=Position("7@1"), at=NOON, body=body, reason="no change"
    )


async def test_a_stray_becomes_a_dead_letter_with_its_body_and_a_repeat_changes_nothing() -> None:
    letters = DeadLetters(SqliteTables.in_memory(ManualClock()))
    strays = UnreadableRecordLetters(letters, STREAM, ManualClock())

    await strays.keep(a_stray())
    await strays.keep(a_stray())

    [letter] = await letters.list(STREAM)
    body = await letters.body(letter)
    assert (letter.id, letter.at, letter.reason) == ("7@1", NOON, "no change")
    assert body is not None
    assert decode_row(body) == {"shard": f"{STREAM}/shard-1", "position": "7@1", "data": b"hello"}


async def test_of_a_stray_too_long_for_a_letter_the_beginning_is_kept() -> None:
    letters = DeadLetters(SqliteTables.in_memory(ManualClock()))

    await UnreadableRecordLetters(letters, STREAM, ManualClock()).keep(a_stray(bytes(10_000_000)))

    [letter] = await letters.list(STREAM)
    body = await letters.body(letter)
    assert body is not None
    assert decode_row(body)["data"] == bytes(BODY_MAX)
