"""The narrow waist: everything durable is a row in one of four tables, read and written through `Tables`.

A backend compiles the values of this file into its own language; it knows nothing of pipelines or runs. The stores
above it know nothing of a backend. What every backend promises is proven by `tests/contract/`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from worker.core.errors import Rejected, WorkerError

# Numbers come back exactly: an `int` where the number is whole, a `Decimal` otherwise. A float is written as the
# shortest decimal that means it (0.1 is 0.1). Sets are of one kind (text, numbers or bytes) and never empty.
Value: TypeAlias = "Scalar | Sequence[Value] | Mapping[str, Value] | frozenset[str] | Numbers | frozenset[bytes] | None"
Scalar: TypeAlias = bool | int | float | Decimal | str | bytes
Numbers: TypeAlias = frozenset[int | Decimal]
Row: TypeAlias = Mapping[str, Value]

TTL = "ttl"  # attribute: epoch seconds after which the row is no longer there
COMMIT_ID = "cid"  # attribute: the commit that last wrote the row

# Limits of the smallest backend (DynamoDB), enforced by all, so that what works on a laptop works in production.
WRITES_MAX = 100
ROW_BYTES_MAX = 400_000
KEY_BYTES_MAX = 1024


class TableName(StrEnum):
    CONTROL = "control"
    JOBLOG = "joblog"
    RERUN = "rerun"
    EVENTS = "events"


@dataclass(frozen=True, slots=True, order=True)
class Key:
    pk: str
    sk: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A sparse second order over one table: a row without the partition attribute is not in it.

    Index reads may lag behind writes. `projected` None means whole rows come back; otherwise the key, the index's
    own two attributes and these.
    """

    name: str
    table: TableName
    partition: str
    sort: str
    sort_is_number: bool = False
    projected: frozenset[str] | None = None


# Configs ("PIPELINES") and finished runs ("STATUS#<status>#<day>#<hash mod 16>").
LISTS = Index(name="LISTS", table=TableName.CONTROL, partition="listPk", sort="listSk")
# Rows with work left to do ("ACTIVE#<hash mod 64>").
ACTIVE = Index(
    name="ACTIVE",
    table=TableName.CONTROL,
    partition="active",
    sort="SK",
    projected=frozenset({"owner", "state", "since", "windowEndsAt", "timeoutAt", "warningAt", "warnedAt", "breachAt"}),
)
EVENT_TYPES = Index(name="GSI1", table=TableName.EVENTS, partition="eventType", sort="timestamp", sort_is_number=True)
INDEXES = (LISTS, ACTIVE, EVENT_TYPES)


# --- conditions: a closed set, so that every backend can compile them -------------------------------------------------
# A condition looks at the row as stored, expired or not: table expiry is lazy, and a lock must not be lost to it.


@dataclass(frozen=True, slots=True)
class Absent:
    """The attribute is not on the row; without an attribute: there is no row."""

    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class Exists:
    """The attribute is on the row (null counts as there); without an attribute: there is a row."""

    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class Equals:
    attribute: str
    value: Value


@dataclass(frozen=True, slots=True)
class Less:
    """The attribute is there, of the same kind as `value` (number or text), and less."""

    attribute: str
    value: int | Decimal | str


@dataclass(frozen=True, slots=True)
class Expired:
    """The row has a `ttl` that is not after `now`."""

    now: datetime


@dataclass(frozen=True, slots=True)
class AnyOf:
    conditions: "tuple[Condition, ...]"


@dataclass(frozen=True, slots=True)
class AllOf:
    conditions: "tuple[Condition, ...]"


Condition: TypeAlias = Absent | Exists | Equals | Less | Expired | AnyOf | AllOf


def any_of(*conditions: Condition) -> AnyOf:
    return AnyOf(conditions)


def all_of(*conditions: Condition) -> AllOf:
    return AllOf(conditions)


# --- writes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Put:
    """Replace the whole row; `row` carries its own PK and SK."""

    table: TableName
    row: Row
    condition: Condition | None = None

    @property
    def key(self) -> Key:
        return Key(str(self.row["PK"]), str(self.row["SK"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Change some attributes and leave the others; a row that is not there is made, unless the condition forbids it."""

    table: TableName
    key: Key
    set: Row = field(default_factory=dict[str, Value])
    set_if_absent: Row = field(default_factory=dict[str, Value])
    remove: frozenset[str] = frozenset()
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    table: TableName
    key: Key
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """Write nothing, but let the commit pass only if the condition holds."""

    table: TableName
    key: Key
    condition: Condition


Write: TypeAlias = Put | Update | Delete | Check


# --- reads ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Prefix:
    text: str


@dataclass(frozen=True, slots=True)
class Between:
    """Both ends are included."""

    low: str | int
    high: str | int


@dataclass(frozen=True, slots=True)
class Page:
    """Some rows in sort order; `cursor` None means there are no more."""

    rows: Sequence[Row]
    cursor: str | None


class StaleWrite(WorkerError):
    """Another writer was first: reload and decide again. Nothing of the commit was applied."""

    def __init__(self, write: Write, row: Row | None) -> None:
        found = "there is no such row" if row is None else f"the row has version {row.get('version', '-')}"
        super().__init__(
            f"{type(write).__name__} of {write.table} {write.key.pk} {write.key.sk} was refused: its condition "
            f"does not hold ({found}); reload and decide again"
        )
        self.write, self.row = write, row


class TooLarge(Rejected):
    """A row, key, number or commit beyond what every backend can hold."""


class Tables(Protocol):
    """All of them may raise `RetryLater`; after it a read is simply repeated."""

    async def start(self) -> None:
        """Open connections. Raises `ConfigError` if the store cannot be used as it is, saying what to do."""
        ...

    async def stop(self) -> None: ...

    async def ping(self) -> None:
        """Prove that the store answers."""
        ...

    async def get(self, table: TableName, key: Key) -> Row | None:
        """Read one row consistently. Expired rows are not there, except `TRIGGER#` rows: see `is_visible`."""
        ...

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        """Read any number of rows consistently; those that are not there are left out."""
        ...

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        """Read rows of one partition in sort order, at most `limit`; go on with the page's cursor.

        Consistent on the table itself, eventually consistent on an index. Rows written meanwhile may or may not be
        seen; no row that was there throughout is lost or repeated. A page may be short, even empty, and have a cursor.
        """
        ...

    async def commit(self, *writes: Write) -> None:
        """Apply all writes or none, durably, across tables. At most `WRITES_MAX`, each on a row of its own.

        The first `Put` or `Update` also stores a random commit id (`cid`), by which a commit whose reply was lost is
        recognised as applied. Raises `StaleWrite` if a condition does not hold; `TooLarge`. After `RetryLater` the
        commit may still have been applied: reload before acting.
        """
        ...


async def query_all(
    tables: Tables,
    table: TableName,
    pk: str,
    *,
    sk: Prefix | Between | None = None,
    index: Index | None = None,
    reverse: bool = False,
) -> AsyncIterator[Row]:
    """Read a partition to its end, page by page."""
    cursor = None
    while True:
        page = await tables.query(table, pk, sk=sk, index=index, reverse=reverse, cursor=cursor)
        for row in page.rows:
            yield row
        if page.cursor is None:
            return
        cursor = page.cursor


def is_visible(row: Row, now: datetime) -> bool:
    """Say whether a reader may see the row: table expiry is lazy, so every read filters.

    A `TRIGGER#` row is a lock and a run: that it is past its time is something to decide about, not to overlook.
    """
    ttl = row.get(TTL)
    if isinstance(ttl, bool) or not isinstance(ttl, int | Decimal) or str(row["SK"]).startswith("TRIGGER#"):
        return True
    return ttl > now.timestamp()


# --- the change feed of backends that keep their own (DynamoDB's is DynamoDB Streams) ---------------------------------


class ChangeKind(StrEnum):
    INSERT = "INSERT"
    MODIFY = "MODIFY"
    REMOVE = "REMOVE"


# Streams bring thousands a second, so the collector, which has nothing to find in plain data, need not look at them.
class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One row changed. `position` rises with every change; `image` is the row after it, None if it was removed."""

    position: int
    table: TableName
    key: Key
    kind: ChangeKind
    image: Row | None
    at: datetime


class Trimmed(WorkerError):
    """Some changes after the asked position are gone: resync, then ask for those after `oldest`."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"some changes after {asked} are gone, those after {oldest} are kept; resync, then read on")
        self.asked, self.oldest = asked, oldest


class ChangeFeed(Protocol):
    async def changes(self, table: TableName, after: int, limit: int = 1000) -> Sequence[Change]:
        """Changes of one table in order, at least once each. Raises `Trimmed`."""
        ...

    async def last_position(self) -> int:
        """Where a reader that only wants news starts."""
        ...
