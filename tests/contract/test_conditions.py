"""Each condition alone and nested, on rows that fit, rows that do not, and rows that are not there."""

from datetime import timedelta
from decimal import Decimal

import pytest

from tests.contract.portrows import CONTROL, MOTO, a_row, known_defect, stored
from tests.support.clock.manual import NOON
from worker.store.table import (
    Absent,
    Check,
    Condition,
    Equals,
    Exists,
    Expired,
    Key,
    Less,
    Put,
    StaleWrite,
    Tables,
    Value,
    all_of,
    any_of,
)

NOON_S = int(NOON.timestamp())

# The row all of them look at.
ATTRIBUTES: dict[str, Value] = {
    "number": 7,
    "fraction": Decimal("0.1"),
    "text": "m",
    "digits": "7",
    "empty": "",
    "yes": True,
    "one": 1,
    "nothing": None,
    "list": [1, "a", None],
    "map": {"b": [1], "a": {"x": Decimal("1.5")}},
    "texts": frozenset({"a", "b"}),
    "bytes": b"\x00\xff",
    "ttl": NOON_S,
}

HOLD: list[Condition] = [
    Exists(),
    Exists("number"),
    Exists("nothing"),
    Exists("empty"),
    Absent("unknown"),
    Equals("number", 7),
    Equals("number", Decimal("7.0")),
    Equals("fraction", Decimal("0.10")),
    Equals("fraction", 0.1),
    Equals("text", "m"),
    Equals("empty", ""),
    Equals("yes", value=True),
    Equals("nothing", None),
    Equals("list", [1, "a", None]),
    Equals("map", {"a": {"x": Decimal("1.50")}, "b": [1]}),
    Equals("texts", frozenset({"b", "a"})),
    Equals("bytes", b"\x00\xff"),
    Less("number", 8),
    Less("number", Decimal("7.01")),
    Less("fraction", 1),
    Less("text", "n"),
    Less("text", "ma"),
    Less("text", "é"),
    Expired(NOON),
    Expired(NOON + timedelta(seconds=1)),
    any_of(Absent(), Equals("number", 7)),
    any_of(Equals("number", 7), Absent()),
    all_of(Exists(), Equals("number", 7), Absent("unknown")),
    all_of(any_of(Absent(), Expired(NOON)), any_of(all_of(Equals("text", "m"), Less("number", 8)), Absent("text"))),
]

FAIL: list[Condition] = [
    Absent(),
    Absent("number"),
    Absent("nothing"),
    Exists("unknown"),
    Equals("unknown", 7),
    Equals("number", 8),
    Equals("number", "7"),
    Equals("digits", 7),
    Equals("yes", value=False),
    Equals("nothing", ""),
    Equals("empty", None),
    Equals("list", ["a", 1, None]),
    Equals("list", [1, "a"]),
    Equals("map", {"a": {"x": Decimal("1.5")}}),
    Equals("texts", ["a", "b"]),
    Less("number", 7),
    Less("number", -8),
    Less("text", "m"),
    Less("text", "Z"),
    Less("unknown", 1),
    Less("unknown", "z"),
    Expired(NOON - timedelta(seconds=1)),
    any_of(Absent(), Equals("number", 8)),
    all_of(Exists(), Equals("number", 8)),
    all_of(any_of(Absent(), Absent("text")), Exists()),
]

# What is of another kind is neither less nor equal.
OF_ANOTHER_KIND: list[Condition] = [
    Equals("yes", 1),
    Equals("one", value=True),
    Less("number", "8"),
    Less("digits", 8),
    Less("yes", 2),
    Less("nothing", 1),
    Less("list", 9),
    Less("texts", "z"),
    all_of(Exists("digits"), Less("digits", 8)),
]

HOLD_WITHOUT_ROW: list[Condition] = [
    Absent(),
    Absent("number"),
    any_of(Exists(), Absent()),
    all_of(Absent(), Absent("x")),
]
FAIL_WITHOUT_ROW: list[Condition] = [
    Exists(),
    Exists("number"),
    Equals("number", 7),
    Less("number", 8),
    Expired(NOON),
    any_of(Exists(), Equals("number", 7)),
    all_of(Absent(), Exists("number")),
]


async def passes(tables: Tables, key: Key, condition: Condition) -> bool:
    try:
        await tables.commit(Check(CONTROL, key, condition))
    except StaleWrite:
        return False
    return True


async def test_conditions_that_fit_the_row_hold(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, {"PK": pk, "SK": "ROW", **ATTRIBUTES}))

    refused = [condition for condition in HOLD if not await passes(tables, Key(pk, "ROW"), condition)]

    assert refused == []


async def test_conditions_that_do_not_fit_the_row_fail(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, {"PK": pk, "SK": "ROW", **ATTRIBUTES}))

    passed = [condition for condition in FAIL if await passes(tables, Key(pk, "ROW"), condition)]

    assert passed == []


async def test_nothing_equals_or_is_less_than_what_is_of_another_kind(tables: Tables, backend: str, pk: str) -> None:
    await tables.commit(Put(CONTROL, {"PK": pk, "SK": "ROW", **ATTRIBUTES}))

    with known_defect(of_moto=backend == MOTO):  # it compares as Python does, and fails or says yes
        passed = [condition for condition in OF_ANOTHER_KIND if await passes(tables, Key(pk, "ROW"), condition)]
        assert passed == []


async def test_an_attribute_that_is_not_there_is_not_null(tables: Tables, backend: str, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk)))

    with known_defect(of_moto=backend == MOTO):  # it takes what is not there for null
        assert not await passes(tables, Key(pk, "ROW"), Equals("unknown", None))
        assert not await passes(tables, Key(pk, "OTHER"), Equals("unknown", None))


async def test_conditions_on_a_row_that_is_not_there(tables: Tables, pk: str) -> None:
    refused = [condition for condition in HOLD_WITHOUT_ROW if not await passes(tables, Key(pk, "ROW"), condition)]
    passed = [condition for condition in FAIL_WITHOUT_ROW if await passes(tables, Key(pk, "ROW"), condition)]

    assert (refused, passed) == ([], [])


@pytest.mark.parametrize("ttl", ["1", None, True], ids=["text", "null", "boolean"])
async def test_a_row_whose_expiry_is_no_number_is_not_expired(
    tables: Tables, backend: str, pk: str, ttl: Value
) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, ttl=ttl)))

    with known_defect(of_moto=backend == MOTO and ttl is not None):  # it compares as Python does
        assert not await passes(tables, Key(pk, "ROW"), Expired(NOON))


async def test_a_row_without_expiry_never_expires(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk)))

    assert not await passes(tables, Key(pk, "ROW"), Expired(NOON))


async def test_an_expired_lock_can_be_taken_and_a_held_one_cannot(tables: Tables, pk: str) -> None:
    free = any_of(Absent(), Expired(NOON))
    await tables.commit(Put(CONTROL, a_row(pk, "held", owner="a", ttl=NOON_S + 1)))
    await tables.commit(Put(CONTROL, a_row(pk, "expired", owner="a", ttl=NOON_S - 1)))

    await tables.commit(Put(CONTROL, a_row(pk, "expired", owner="b", ttl=NOON_S + 9), free))
    await tables.commit(Put(CONTROL, a_row(pk, "new", owner="b", ttl=NOON_S + 9), free))
    with pytest.raises(StaleWrite):
        await tables.commit(Put(CONTROL, a_row(pk, "held", owner="b", ttl=NOON_S + 9), free))

    owners = {sk: await stored(tables, pk, sk) for sk in ("held", "expired", "new")}
    assert {sk: row["owner"] for sk, row in owners.items() if row} == {"held": "a", "expired": "b", "new": "b"}
