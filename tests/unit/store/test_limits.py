"""What no backend can hold is refused before anything is sent."""

from decimal import Decimal

import pytest

from worker.core.errors import Rejected
from worker.store.limits import check_commit, number_from_text, number_to_text, row_bytes
from worker.store.table import Check, Delete, Exists, Key, Put, TableName, TooLarge, Update, Value


def put(number: int, **attributes: Value) -> Put:
    return Put(TableName.CONTROL, {"PK": "p", "SK": f"{number}", **attributes})


def test_a_commit_of_a_hundred_small_rows_fits() -> None:
    check_commit([put(number) for number in range(100)])


def test_a_commit_of_too_many_writes_is_too_large() -> None:
    with pytest.raises(TooLarge, match="101 writes"):
        check_commit([put(number) for number in range(101)])


def test_a_commit_of_too_many_bytes_is_too_large() -> None:
    with pytest.raises(TooLarge, match="split it"):
        check_commit([put(number, data="x" * 390_000) for number in range(11)])


def test_a_row_beyond_the_limit_is_too_large() -> None:
    with pytest.raises(TooLarge, match="Put of control p 1"):
        check_commit([put(1, data="x" * 400_000)])


def test_text_counts_in_bytes_not_in_characters() -> None:
    assert row_bytes({"a": "é"}) == 3


def test_an_update_beyond_the_limit_is_too_large() -> None:
    with pytest.raises(TooLarge, match="Update"):
        check_commit([Update(table=TableName.CONTROL, key=Key("p", "s"), set={"data": "x" * 400_001})])


def test_two_writes_of_one_row_are_refused() -> None:
    with pytest.raises(Rejected, match="twice"):
        check_commit([put(1), Delete(TableName.CONTROL, Key("p", "1"))])


def test_the_same_key_in_another_table_is_another_row() -> None:
    check_commit([put(1), Delete(TableName.EVENTS, Key("p", "1"))])


@pytest.mark.parametrize("sk", ["CONFIG", "SENSOR#orders"])
def test_a_row_that_producers_write_is_never_part_of_a_transaction(sk: str) -> None:
    sensor = Put(TableName.CONTROL, {"PK": "p", "SK": sk})

    check_commit([sensor])
    with pytest.raises(Rejected, match="producers"):
        check_commit([put(1), sensor])
    with pytest.raises(Rejected, match="producers"):
        check_commit([Check(TableName.CONTROL, Key("p", sk), Exists())])


def test_an_update_that_changes_nothing_is_refused() -> None:
    with pytest.raises(Rejected, match="changes nothing"):
        check_commit([Update(table=TableName.CONTROL, key=Key("p", "s"))])


def test_a_commit_without_writes_is_refused() -> None:
    with pytest.raises(Rejected, match="nothing"):
        check_commit([])


@pytest.mark.parametrize("key", [Key("p" * 1025, "s"), Key("p", "é" * 513)])
def test_a_long_key_is_too_large(key: Key) -> None:
    with pytest.raises(TooLarge, match="1024 bytes"):
        check_commit([Delete(TableName.CONTROL, key)])


@pytest.mark.parametrize("key", [Key("", "s"), Key("p", "")])
def test_an_empty_key_is_refused(key: Key) -> None:
    with pytest.raises(Rejected, match="empty"):
        check_commit([Delete(TableName.CONTROL, key)])


def test_a_value_nested_too_deep_is_too_large() -> None:
    value: Value = "leaf"
    for _ in range(33):
        value = [value]

    with pytest.raises(TooLarge, match="nested"):
        check_commit([put(1, data=value)])


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(Rejected, match="Unicode"):
        check_commit([put(1, data="\ud800")])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1.50, "1.5"),
        (Decimal("1.500"), "1.5"),
        (-0.0, "0"),
        (Decimal("-0.00"), "0"),
        (7, "7"),
        (-12, "-12"),
        (10**37, "1E+37"),
        (Decimal("1E-130"), "1E-130"),
        (10**38 - 1, "9" * 38),
    ],
)
def test_a_number_has_one_text_and_comes_back_exactly(value: float | Decimal, text: str) -> None:
    assert number_to_text(value) == text
    assert number_from_text(text) == Decimal(repr(value) if isinstance(value, float) else value)


@pytest.mark.parametrize(
    "value", [10**38 + 1, 10**126, Decimal("1E-131"), Decimal("1." + "1" * 38), float("nan"), float("inf")]
)
def test_a_number_that_would_be_rounded_is_too_large(value: float | Decimal) -> None:
    with pytest.raises(TooLarge, match="store it as text"):
        number_to_text(value)


def test_a_whole_number_comes_back_as_int_and_any_other_as_decimal() -> None:
    assert type(number_from_text("3.0")) is int
    assert type(number_from_text("3.5")) is Decimal
