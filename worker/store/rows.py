"""Typed access to row attributes, paging over partitions, and stored values as JSON."""

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeVar

from worker.core.errors import Rejected
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.store.table import TTL, Between, Index, Prefix, Row, TableName, Tables, Value

AFTER_ALL_NAMES: Final = "~"  # sorts after every letter and digit of a period's name


def names_up_to(prefix: str, last: str = "") -> Prefix | Between:
    """Return the range of names with a prefix; with `last`, only of those up to it.

    What begins with `last` is included, as the hours of a day are.
    """
    return Between(prefix, f"{prefix}{last}{AFTER_ALL_NAMES}") if last else Prefix(prefix)


async def first_rows(
    tables: Tables,
    table: TableName,
    pk: str,
    *,
    limit: int,
    sk: Prefix | Between | None = None,
    index: Index | None = None,
    reverse: bool = False,
) -> list[Row]:
    """Read at most `limit` rows in sort order; with `reverse`, the last rows first."""
    rows: list[Row] = []
    cursor: str | None = None
    while len(rows) < limit:
        page = await tables.query(
            table, pk, sk=sk, index=index, reverse=reverse, limit=limit - len(rows), cursor=cursor
        )
        rows.extend(page.rows)
        cursor = page.cursor
        if cursor is None:
            break
    return rows


def to_json(value: Value) -> Json:
    """Return a stored value in JSON's types: a set as a sorted list, bytes as base64 text.

    The Lambda edition reads both as null. Here a change of a set or of bytes is a change of the sensor.
    """
    match value:
        case None | bool() | str() | int() | float() | Decimal():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return to_json_map(value)
        case frozenset():
            return [to_json(member) for member in sorted(value)]
        case _:
            return [to_json(member) for member in value]


def to_json_map(value: Mapping[str, Value]) -> dict[str, Json]:
    return {name: to_json(member) for name, member in value.items()}


Choice = TypeVar("Choice", bound=StrEnum)


class BadRow(Rejected):
    """BadRow: Interlock's row by its key, but not by its content; another program wrote to it."""

    def __init__(self, row: Row, attribute: str, problem: str) -> None:
        super().__init__(
            f"row {row.get('PK')} {row.get('SK')}: attribute {attribute!r} {problem}; "
            "the row was changed from outside: repair the attribute or delete the row"
        )
        self.row, self.attribute = row, attribute


def text(row: Row, attribute: str) -> str:
    value = row.get(attribute)
    if not isinstance(value, str):
        raise BadRow(row, attribute, f"must be text, not {type(value).__name__}")
    return value


def optional_text(row: Row, attribute: str) -> str | None:
    return None if row.get(attribute) is None else text(row, attribute)


def loose_text(row: Row, attribute: str) -> str:
    """Return the text, or "" if there is none.

    Use it for rows that any program may write, where one bad row must not hide the others.
    """
    value = row.get(attribute)
    return value if isinstance(value, str) else ""


def choice(row: Row, attribute: str, kind: type[Choice]) -> Choice:
    try:
        return kind(text(row, attribute))
    except ValueError as error:
        raise BadRow(row, attribute, f"must be one of {', '.join(kind)}, not {row[attribute]!r}") from error


def optional_choice(row: Row, attribute: str, kind: type[Choice]) -> Choice | None:
    return None if row.get(attribute) is None else choice(row, attribute, kind)


def whole(row: Row, attribute: str) -> int:
    value = row.get(attribute)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRow(row, attribute, f"must be a whole number, not {value!r}")
    return value


def optional_whole(row: Row, attribute: str) -> int | None:
    return None if row.get(attribute) is None else whole(row, attribute)


def instant(row: Row, attribute: str) -> datetime:
    value = parse_rfc3339(text(row, attribute))
    if value is None:
        raise BadRow(row, attribute, f"must be a time like 2026-03-03T07:00:00Z, not {row[attribute]!r}")
    return value


def optional_instant(row: Row, attribute: str) -> datetime | None:
    return None if row.get(attribute) is None else instant(row, attribute)


def texts(row: Row, attribute: str) -> tuple[str, ...]:
    """Return a list of texts, empty if it is missing. Raises `BadRow`."""
    value = row.get(attribute, ())
    if isinstance(value, list | tuple):
        members = tuple(member for member in value if isinstance(member, str))
        if len(members) == len(value):
            return members
    raise BadRow(row, attribute, "must be a list of texts")


def text_map(row: Row, attribute: str) -> dict[str, str]:
    """Return a map from text to text, empty if it is missing. Raises `BadRow`."""
    value = row.get(attribute, {})
    if isinstance(value, Mapping):
        members = {name: member for name, member in value.items() if isinstance(member, str)}
        if len(members) == len(value):
            return members
    raise BadRow(row, attribute, "must be a map of texts")


def instant_map(row: Row, attribute: str) -> dict[str, datetime]:
    """Return a map from text to instants, empty if it is missing. Raises `BadRow`."""
    said = text_map(row, attribute)
    parsed = {name: at for name, text in said.items() if (at := parse_rfc3339(text)) is not None}
    if len(parsed) != len(said):
        raise BadRow(row, attribute, "must be a map of instants")
    return parsed


def json_map(row: Row, attribute: str) -> dict[str, Json]:
    """Return a map of any JSON values, empty if it is missing. Raises `BadRow`."""
    value = row.get(attribute, {})
    if not isinstance(value, Mapping):
        raise BadRow(row, attribute, f"must be a map, not {type(value).__name__}")
    return to_json_map(value)


def instant_text(at: datetime) -> str:
    """Return a time as text, exact to the microsecond, that people can read in a table browser."""
    return format_rfc3339(at)


def optional_instant_text(at: datetime | None) -> str | None:
    return None if at is None else instant_text(at)


def expiry(now: datetime, kept: timedelta) -> int:
    """Return the `ttl` of a row kept for `kept`.

    It is rounded up, because a row may live longer than that but never shorter.
    """
    return math.ceil((now + kept).timestamp())


def expires_at(row: Row) -> datetime | None:
    value = row.get(TTL)
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    try:
        return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        return None  # beyond the calendar: it never expires


def without_none(row: Mapping[str, Value]) -> dict[str, Value]:
    """Return the row without attributes that are None, because conditions test for absent attributes."""
    return {name: value for name, value in row.items() if value is not None}
