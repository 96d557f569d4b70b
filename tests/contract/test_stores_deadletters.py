"""Dead letters on every backend: kept whole or not at all, and dropped without a trace."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.contract.storevalues import NOW, a_name
from worker.core.model import keys
from worker.store import retention
from worker.store.failure_counter import FailureCountingTables
from worker.store.repos.delivery.dead_letters import HISTORY_MAX, PART_BYTES, DeadLetter, DeadLetters
from worker.store.rows import expires_at
from worker.store.table import Key, Row, TableName, Tables, TooLarge


async def rows_of(tables: Tables, table: TableName, pk: str) -> list[Row]:
    return list((await tables.query(table, pk)).rows)


def a_letter(source: str, letter_id: str = "l1") -> DeadLetter:
    return DeadLetter(id=letter_id, source=source, at=NOW, reason="not JSON", history=("try 1", "try 2"))


@pytest.mark.parametrize("size", [0, 10, PART_BYTES, 2 * PART_BYTES + 1])
async def test_a_dead_letter_is_kept_whole_whatever_its_size(tables: Tables, size: int) -> None:
    letter, body = a_letter(a_name()), bytes(number % 251 for number in range(size))

    await DeadLetters(tables).put(letter, body, now=NOW)

    assert await DeadLetters(tables).list(letter.source) == [letter]
    assert await DeadLetters(tables).body(letter) == body


async def test_a_dead_letter_beyond_a_commit_is_refused_and_not_half_kept(tables: Tables) -> None:
    letter = a_letter(a_name())

    with pytest.raises(TooLarge):
        await DeadLetters(tables).put(letter, bytes(5_000_000), now=NOW)

    assert await DeadLetters(tables).list(letter.source) == []


async def test_a_dead_letter_kept_again_is_there_once(tables: Tables) -> None:
    letter = a_letter(a_name())

    await DeadLetters(tables).put(letter, b"body", now=NOW)
    await DeadLetters(tables).put(letter, b"body", now=NOW)

    assert await DeadLetters(tables).list(letter.source) == [letter]


async def test_a_dead_letter_of_an_old_record_is_kept_as_long_as_any_other(tables: Tables) -> None:
    """Kinesis may hold a record for a year; a letter that expires before it is written was never kept."""
    letter = replace(a_letter(a_name()), at=NOW - timedelta(days=364))

    await DeadLetters(tables).put(letter, b"body", now=NOW)

    rows = await rows_of(tables, TableName.EVENTS, keys.dead_letter_pk(letter.source))
    parts = await rows_of(tables, TableName.EVENTS, keys.dead_letter_body_pk(letter.source, letter.id))
    assert [expires_at(row) for row in (*rows, *parts)] == [NOW + retention.DEAD_LETTERS] * 2


async def test_failures_of_what_may_become_a_letter_are_counted_once_for_each_receipt(tables: Tables) -> None:
    letters, source = DeadLetters(tables), a_name()
    receipts = [("m1", 1), ("m2", 1), ("m1", 2), ("m1", 2), ("m1", 4)]  # one told twice: its first answer was lost

    counted = [await letters.count_failure(source, letter_id, receipt, NOW) for letter_id, receipt in receipts]

    assert counted == [1, 1, 2, 2, 3]
    assert await letters.list(source) == []


async def test_the_body_of_a_letter_that_is_dropped_meanwhile_is_gone(tables: Tables) -> None:
    letter = a_letter(a_name())
    await DeadLetters(tables).put(letter, b"body", now=NOW)

    class DroppedMeanwhile(FailureCountingTables):
        async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
            assert await DeadLetters(tables).drop(letter)
            return await super().get_many(table, keys)

    assert await DeadLetters(DroppedMeanwhile(tables)).body(letter) is None


async def test_a_dropped_letter_leaves_nothing_behind(tables: Tables) -> None:
    letter, other = a_letter(a_name()), "l2"
    await DeadLetters(tables).put(letter, bytes(PART_BYTES + 1), now=NOW)
    await DeadLetters(tables).put(a_letter(letter.source, other), b"x", now=NOW)

    assert await DeadLetters(tables).drop(letter)

    assert not await DeadLetters(tables).drop(letter)
    assert await DeadLetters(tables).body(letter) is None
    assert [left.id for left in await DeadLetters(tables).list(letter.source)] == [other]
    bodies = keys.dead_letter_body_pk(letter.source, letter.id)
    assert await rows_of(tables, TableName.EVENTS, bodies) == []


async def test_only_the_last_tries_are_kept(tables: Tables) -> None:
    letter = replace(a_letter(a_name()), history=tuple(f"try {number}" for number in range(HISTORY_MAX + 5)))

    await DeadLetters(tables).put(letter, b"", now=NOW)

    [kept] = await DeadLetters(tables).list(letter.source)
    assert kept.history == letter.history[-HISTORY_MAX:]
