"""What is written comes back as it was, to the last digit and the last byte."""

from decimal import Decimal
from typing import cast

import pytest

from tests.contract.portrows import CONTROL, a_row, stored
from worker.core.errors import Rejected
from worker.store.table import (
    KEY_BYTES_MAX,
    ROW_BYTES_MAX,
    WRITES_MAX,
    Key,
    Put,
    TableName,
    Tables,
    TooLarge,
    Update,
    Value,
)

EXACT: dict[str, tuple[Value, Value]] = {
    "zero": (0, 0),
    "negative": (-42, -42),
    "a tenth as a float": (0.1, Decimal("0.1")),
    "a third as a float": (1 / 3, Decimal("0.3333333333333333")),
    "a whole float": (3.0, 3),
    "a tenth": (Decimal("0.1"), Decimal("0.1")),
    "trailing zeros": (Decimal("1.500"), Decimal("1.5")),
    "a whole decimal": (Decimal("1E+3"), 1000),
    "negative zero": (Decimal("-0.0"), 0),
    "negative zero as a float": (-0.0, 0),
    "beyond 64 bits": (2**64 + 1, 2**64 + 1),
    "38 digits": (10**38 - 1, 10**38 - 1),
    "ten to the 37th": (10**37, 10**37),
    "38 digits of fraction": (Decimal("0." + "1" * 38), Decimal("0." + "1" * 38)),
    "the largest": (Decimal("9.9999999999999999999999999999999999999E+125"), int("9" * 38) * 10**88),
    "the smallest": (Decimal("1E-130"), Decimal("1E-130")),
    "the smallest below zero": (Decimal("-1E-130"), Decimal("-1E-130")),
    "a large float": (1e100, 10**100),
    "a microsecond": (1767225600.000001, Decimal("1767225600.000001")),
}

AS_THEY_ARE: dict[str, Value] = {
    "true": True,
    "false": False,
    "null": None,
    "empty text": "",
    "text": 'quotes " and \\ and \n and \0 and é and 🦊',
    "looks like a number": "1e3",
    "empty list": [],
    "empty map": {},
    "mixed list": [1, "1", True, None, Decimal("1.5"), [], {}],
    "bytes": bytes(range(256)),
    "empty bytes": b"",
    "texts": frozenset({"a", "", "é"}),
    "numbers": frozenset({1, Decimal("0.1"), 10**37}),
    "byte strings": frozenset({b"", b"\xff"}),
    "deep": {"a": [{"b": [{"c": [1, {"d": frozenset({"e"})}]}]}]},
    "names like tags": {"$n": "1", "$b": 1, "N": {"S": "x"}, "$m": {"$ss": ["a"]}},
    "a map of one name like a tag": {"$n": "1"},
    "names of all kinds": {" ": 2, "a.b": 3, "#x": 4, ":y": 5, "size": 6, "é": 7},
}


@pytest.mark.parametrize("name", EXACT)
async def test_a_number_comes_back_exactly(tables: Tables, pk: str, name: str) -> None:
    written, expected = EXACT[name]
    await tables.commit(Put(CONTROL, a_row(pk, value=written)))

    row = await stored(tables, pk)

    assert row is not None
    assert row["value"] == expected
    assert type(row["value"]) is type(expected)
    assert str(row["value"]) == str(expected)


@pytest.mark.parametrize("name", AS_THEY_ARE)
async def test_a_value_comes_back_as_it_was(tables: Tables, pk: str, name: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, value=AS_THEY_ARE[name])))

    row = await stored(tables, pk)

    assert row is not None
    assert row["value"] == AS_THEY_ARE[name]
    assert repr(row["value"]) == repr(AS_THEY_ARE[name]) or isinstance(row["value"], dict | frozenset)


async def test_true_comes_back_as_true_and_one_as_one(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, yes=True, one=1, both=[True, 1, False, 0])))

    row = await stored(tables, pk)

    assert row is not None
    assert (row["yes"] is True, row["one"] is True) == (True, False)
    assert repr(row["both"]) == "[True, 1, False, 0]"


async def test_attribute_names_of_all_kinds_are_kept(tables: Tables, pk: str) -> None:
    names: dict[str, Value] = {"$n": 1, "status": 2, "a.b": 3, "#x": 4, ":y": 5, "data": 6, "é": 7, "a b": 8, "0": 9}

    await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set=names))

    assert await stored(tables, pk) == {"PK": pk, "SK": "ROW", **names}


async def test_an_update_writes_values_as_a_put_does(tables: Tables, pk: str) -> None:
    await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"value": 0.1, "deep": {"$n": [0.5]}}))

    assert await stored(tables, pk) == a_row(pk, value=Decimal("0.1"), deep={"$n": [Decimal("0.5")]})


@pytest.mark.parametrize(
    "value",
    [10**38 + 1, Decimal("0." + "1" * 39), Decimal("1E+126"), Decimal("1E-131"), float("inf"), float("nan")],
    ids=["39 digits", "39 digits of fraction", "too large", "too small", "infinite", "not a number"],
)
async def test_a_number_that_cannot_be_kept_exactly_is_refused(tables: Tables, pk: str, value: Value) -> None:
    with pytest.raises(TooLarge):
        await tables.commit(Put(CONTROL, a_row(pk, value={"inside": [value]})))

    assert await stored(tables, pk) is None


async def test_a_value_no_backend_can_hold_is_refused(tables: Tables, pk: str) -> None:
    empty, mixed, half_a_character = frozenset[str](), frozenset({1, "a"}), "\ud800"

    for value in (empty, mixed, half_a_character):
        with pytest.raises(Rejected):
            await tables.commit(Put(CONTROL, a_row(pk, value=cast("Value", value))))

    assert await stored(tables, pk) is None


async def test_a_row_at_the_limit_fits_and_one_beyond_is_refused(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, value="x" * (ROW_BYTES_MAX - 2_000))))

    with pytest.raises(TooLarge):
        await tables.commit(Put(CONTROL, a_row(pk, value="x" * (ROW_BYTES_MAX + 1))))

    row = await stored(tables, pk)
    assert row is not None
    assert len(str(row["value"])) == ROW_BYTES_MAX - 2_000


async def test_an_update_cannot_grow_a_row_beyond_the_limit(tables: Tables, pk: str) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, first="x" * 300_000)))

    with pytest.raises(TooLarge):
        await tables.commit(Update(table=CONTROL, key=Key(pk, "ROW"), set={"second": "x" * 300_000}))

    row = await stored(tables, pk)
    assert row is not None
    assert "second" not in row


@pytest.mark.parametrize(
    "value",
    ["x" * (ROW_BYTES_MAX + 1), float("nan"), frozenset({1, "a"}), object()],
    ids=["too large", "not a number", "a mixed set", "no value"],
)
async def test_an_update_is_refused_for_a_value_that_it_would_not_even_store(
    tables: Tables, pk: str, value: object
) -> None:
    await tables.commit(Put(CONTROL, a_row(pk, first="there")))

    with pytest.raises(Rejected):
        await tables.commit(
            Update(table=CONTROL, key=Key(pk, "ROW"), set={"n": 1}, set_if_absent={"first": cast("Value", value)})
        )

    assert await stored(tables, pk) == a_row(pk, first="there")


@pytest.mark.parametrize("view", [{"a": 1}.keys(), {"a": 1}.values(), {"a": 1}.items()])
async def test_a_view_of_a_dict_is_no_set(tables: Tables, pk: str, view: object) -> None:
    with pytest.raises(Rejected):
        await tables.commit(Put(CONTROL, a_row(pk, value=cast("Value", view))))


async def test_the_largest_commit_fits_and_one_write_more_is_refused(tables: Tables, pk: str) -> None:
    await tables.commit(*(Put(TableName.JOBLOG, a_row(pk, f"{n:03}")) for n in range(WRITES_MAX)))

    with pytest.raises(TooLarge):
        await tables.commit(*(Put(TableName.RERUN, a_row(pk, f"{n:03}")) for n in range(WRITES_MAX + 1)))

    assert len((await tables.query(TableName.JOBLOG, pk)).rows) == WRITES_MAX
    assert (await tables.query(TableName.RERUN, pk)).rows == []


async def test_a_key_at_the_limit_fits_and_one_beyond_is_refused(tables: Tables, pk: str) -> None:
    longest = "é" * (KEY_BYTES_MAX // 2)
    await tables.commit(Put(CONTROL, a_row(pk, longest)))

    with pytest.raises(TooLarge):
        await tables.commit(Put(CONTROL, a_row(pk, longest + "x")))

    assert await stored(tables, pk, longest) == a_row(pk, longest)


async def test_an_empty_key_is_refused(tables: Tables, pk: str) -> None:
    with pytest.raises(Rejected):
        await tables.commit(Put(CONTROL, a_row(pk, "")))
