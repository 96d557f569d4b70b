"""Change records of DynamoDB become changes, and of an image only what is looked at is converted."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from consumers.streams.aws.change_records import delivered_change, streamed_change
from consumers.streams.lazy_row import LazyRow, UnreadableRecord
from tests.support.clock.manual import NOON
from tests.support.fakes.streams import Precision, change_record
from worker.runtime.json_bytes import from_json, to_json
from worker.store.dynamodb.values import decode_row, encode_row
from worker.store.row_codec import encode
from worker.store.table import ChangeKind, Key, Row, TableName

ROW = Key("PIPELINE#orders", "SENSOR#orders")
TABLES = {"test-control": TableName.CONTROL}
IMAGE: Row = {
    "text": "é",
    "whole": 7,
    "broken": Decimal("1.5"),
    "yes": True,
    "nothing": None,
    "bytes": b"\x00\xff",
    "list": [1, "two", {"three": 3}],
    "map": {"deep": {"deeper": frozenset({1, 2})}},
    "texts": frozenset({"a", "b"}),
}


def written(row: Row) -> bytes:
    return to_json(encode_row(row))


def test_a_lazy_row_is_the_row() -> None:
    wire = from_json(written(IMAGE))

    row = LazyRow(wire)

    assert dict(row) == decode_row(wire) == IMAGE
    assert row == IMAGE
    assert ("text" in row, "absent" in row, len(row), row.get("absent")) == (True, False, len(IMAGE), None)
    with pytest.raises(KeyError):
        row["absent"]


def test_a_lazy_row_can_be_kept_as_a_dead_letter() -> None:
    row = LazyRow(encode_row({"a": 1, "b": [True]}))

    assert encode({"image": row}) == encode({"image": {"a": 1, "b": [True]}})


def test_an_attribute_nobody_looks_at_is_never_converted() -> None:
    row = LazyRow({"good": {"S": "x"}, "bad": {"NONSENSE": "y"}})

    assert row["good"] == "x"
    with pytest.raises(UnreadableRecord, match="'bad' is no value of a row"):
        row["bad"]


def test_a_row_still_in_bytes_is_the_row() -> None:
    data = change_record(ROW, {}, NOON).replace(b'"NewImage": {', b'"NewImage": %b, "Other": {' % written(IMAGE))

    change = delivered_change(data, TABLES, position=5)

    assert change is not None
    assert change.image is not None
    assert dict(change.image) == IMAGE


@pytest.mark.parametrize(
    "value", ['{"NONSENSE": 1}', '{"N": "x"}', '{"N": 1e999}', '{"M": []}', '{"L": 7}', "[]", "7", "{}"]
)
def test_of_a_row_that_cannot_be_converted_all_is_kept(value: str) -> None:
    data = change_record(ROW, {"good": 1}, NOON).replace(b'"good"', b'"bad": %b, "good"' % value.encode())

    change = delivered_change(data, TABLES, position=5)

    assert change is not None
    assert isinstance(change.image, LazyRow)
    with pytest.raises(UnreadableRecord, match="'bad' is no value of a row"):
        change.image["bad"]
    assert change.image.parted() == ({"PK": ROW.pk, "SK": ROW.sk, "good": 1}, {"bad": value.encode()})


def test_a_number_that_no_row_has_room_for_is_kept_as_it_is_written() -> None:
    row = LazyRow({"good": {"S": "x"}, "huge": {"N": "1" * 60}})

    values, rest = row.parted()

    assert (values, rest) == ({"good": "x"}, {"huge": b'{"N":"' + b"1" * 60 + b'"}'})
    assert dict(LazyRow.joined(values, rest)) == dict(row)


def test_a_row_that_came_decoded_is_parted_likewise() -> None:
    row = LazyRow({"good": {"S": "x"}, "bad": {"NONSENSE": "y"}})

    assert row.parted() == ({"good": "x"}, {"bad": b'{"NONSENSE":"y"}'})


@pytest.mark.parametrize(("precision", "micros"), [("MICROSECOND", 123_456), ("MILLISECOND", 123_000), (None, 123_000)])
def test_a_delivered_change_has_the_time_that_its_precision_says(precision: Precision | None, micros: int) -> None:
    at = NOON + timedelta(microseconds=123_456)
    data = change_record(ROW, {"value": 1}, at, precision=precision, kind=ChangeKind.INSERT)

    change = delivered_change(data, TABLES, position=5)

    assert change is not None
    assert change.at == NOON + timedelta(microseconds=micros)
    assert (change.position, change.table, change.key, change.kind) == (5, TableName.CONTROL, ROW, ChangeKind.INSERT)
    assert change.image == {"PK": ROW.pk, "SK": ROW.sk, "value": 1}


def test_a_change_that_an_emulator_delivers_counts_seconds_and_names_the_tables_stream() -> None:
    arn = "arn:aws:dynamodb:eu-west-1:000000000000:table/test-control/stream/2026-11-16T04:14:42.728"
    record = from_json(change_record(ROW, {"value": 1}, NOON, precision=None))
    del record["tableName"]
    record |= {"eventSourceARN": arn}
    record["dynamodb"]["ApproximateCreationDateTime"] //= 1000

    change = delivered_change(to_json(record), TABLES, position=5)

    assert change is not None
    assert (change.table, change.at) == (TableName.CONTROL, NOON)


def test_a_delivered_removal_has_no_image() -> None:
    change = delivered_change(change_record(ROW, None, NOON), TABLES, position=5)

    assert change is not None
    assert (change.kind, change.image) == (ChangeKind.REMOVE, None)


def test_a_change_of_a_table_that_is_not_followed_is_none() -> None:
    assert delivered_change(change_record(ROW, {}, NOON, table="another"), TABLES, position=5) is None


def test_a_table_that_is_not_followed_may_have_other_keys_and_no_images() -> None:
    record = change_record(ROW, {}, NOON, table="another").replace(b'"PK"', b'"id"').replace(b'"NewImage"', b'"Image"')

    assert delivered_change(record, TABLES, position=5) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"7",
        b"{}",
        b'{"tableName": "test-control"}',
        b'{"tableName": "test-control", "dynamodb": null}',
        b'{"tableName": "test-control", "dynamodb": {"ApproximateCreationDateTime": 1e300}}',
        b'{"a": ' + b"[" * 100_000,
        change_record(ROW, {}, NOON)[:-1],
        change_record(ROW, {}, NOON).replace(b"test-control", b""),
        change_record(ROW, {}, NOON).replace(b": 17", b": 1e30017"),
        change_record(ROW, {}, NOON).replace(b'"NewImage": {', b'"NewImage": null, "Other": {'),
        change_record(ROW, {}, NOON).replace(b'"NewImage": {', b'"NewImage": [], "Other": {'),
        change_record(ROW, {"text": "x"}, NOON).replace(b'"x"', b'"\xff"'),
        change_record(ROW, {"text": "x"}, NOON).replace(b'"x"', b'"\\ud800"'),
        change_record(ROW, {"text": "x"}, NOON).replace(b'"x"', b'"\x01"'),
        change_record(ROW, {"text": "x"}, NOON).replace(b'"x"}', b'"x"'),
        change_record(ROW, {}, NOON).replace(b'"MODIFY"', b'"EXPLODE"'),
        change_record(ROW, {}, NOON).replace(b'"NewImage"', b'"OldImage"'),
        change_record(ROW, {}, NOON).replace(b'"SK"', b'"sort"'),
        change_record(ROW, {}, NOON).replace(b"MICROSECOND", b"FORTNIGHT"),
    ],
)
def test_what_is_no_change_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(UnreadableRecord, match="no change of a row"):
        delivered_change(data, TABLES, position=5)


def test_a_streamed_change_without_its_image_does_not_pass_for_a_removal() -> None:
    said = {"ApproximateCreationDateTime": 0, "SequenceNumber": "1", "Keys": {"PK": {"S": "p"}, "SK": {"S": "s"}}}

    with pytest.raises(UnreadableRecord, match="NewImage"):
        streamed_change({"eventName": "MODIFY", "dynamodb": said}, TableName.CONTROL)


def test_a_time_of_a_fraction_of_a_second_is_kept() -> None:
    said = {
        "ApproximateCreationDateTime": 1.5,
        "SequenceNumber": "1",
        "Keys": {"PK": {"S": "p"}, "SK": {"S": "s"}},
    }

    change = streamed_change({"eventName": "REMOVE", "dynamodb": said}, TableName.CONTROL)

    assert change.at == datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
