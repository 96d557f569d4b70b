"""Tables: the port of every store. Everything durable is a row in one of four tables.

A backend compiles the values of this file into its own language; it knows nothing of pipelines or runs. The
repositories above it know nothing of a backend. `tests/contract/` proves what every backend promises.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from worker.core.errors import Rejected, WorkerError

# Numbers are read back exactly: an `int` if the number is whole, a `Decimal` otherwise. A float is written as the
# shortest decimal that reads back as it (0.1 is 0.1). A set holds one kind (text, numbers or bytes) and is never empty.
Value: TypeAlias = "Scalar | Sequence[Value] | Mapping[str, Value] | frozenset[str] | Numbers | frozenset[bytes] | None"
Scalar: TypeAlias = bool | int | float | Decimal | str | bytes
Numbers: TypeAlias = frozenset[int | Decimal]
Row: TypeAlias = Mapping[str, Value]

TTL = "ttl"  # attribute: epoch seconds after which the row no longer exists
COMMIT_ID = "cid"  # attribute: the commit that last wrote the row

# Limits of the smallest backend (DynamoDB). All backends enforce them, so what works on a laptop works in production.
WRITES_MAX = 100
ROW_BYTES_MAX = 400_000
KEY_BYTES_MAX = 1024


class TableName(StrEnum):
    CONTROL = "control"
    JOBLOG = "joblog"
    RERUN = "rerun"
    EVENTS = "events"


class Key(msgspec.Struct, frozen=True, order=True):
    pk: str
    sk: str


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """Index: a sparse second order over one table; rows without the partition attribute are not in it.

    Index reads may lag behind writes. `projected` None means that whole rows are returned; otherwise the key, the
    index's own two attributes and these.
    """

    name: str
    table: TableName
    partition: str
    sort: str
    sort_is_number: bool = False
    projected: frozenset[str] | None = None


# Configurations ("PIPELINES") and ended runs ("STATUS#<status>#<day>#<hash mod 16>").
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
# A condition tests the row as stored, expired or not: tables expire rows late, and a lock must not be lost by expiry.


class Absent(msgspec.Struct, frozen=True):
    """Absent: the row lacks the attribute; without an attribute, the row does not exist."""

    attribute: str | None = None


class Exists(msgspec.Struct, frozen=True):
    """Exists: the row has the attribute (null counts); without an attribute, the row exists."""

    attribute: str | None = None


class Equals(msgspec.Struct, frozen=True):
    attribute: str
    value: Value


class Less(msgspec.Struct, frozen=True):
    """Less: the attribute exists, has the type of `value` (number or text), and is less."""

    attribute: str
    value: int | Decimal | str


class Expired(msgspec.Struct, frozen=True):
    """Expired: the row has a `ttl` that is not after `now`."""

    now: datetime


class AnyOf(msgspec.Struct, frozen=True):
    conditions: "tuple[Condition, ...]"


class AllOf(msgspec.Struct, frozen=True):
    conditions: "tuple[Condition, ...]"


Condition: TypeAlias = Absent | Exists | Equals | Less | Expired | AnyOf | AllOf


def any_of(*conditions: Condition) -> AnyOf:
    return AnyOf(conditions)


def all_of(*conditions: Condition) -> AllOf:
    return AllOf(conditions)


# --- writes -----------------------------------------------------------------------------------------------------------


class Put(msgspec.Struct, frozen=True):
    """Put: replace the whole row; `row` includes its PK and SK."""

    table: TableName
    row: Row
    condition: Condition | None = None

    @property
    def key(self) -> Key:
        return Key(str(self.row["PK"]), str(self.row["SK"]))


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Update: change some attributes and keep the others.

    A row that does not exist is created, unless the condition forbids it.
    """

    table: TableName
    key: Key
    set: Row = msgspec.field(default_factory=dict[str, Value])
    set_if_absent: Row = msgspec.field(default_factory=dict[str, Value])
    remove: frozenset[str] = frozenset()
    condition: Condition | None = None


class Delete(msgspec.Struct, frozen=True):
    table: TableName
    key: Key
    condition: Condition | None = None


class Check(msgspec.Struct, frozen=True):
    """Check: write nothing, but let the commit pass only if the condition holds."""

    table: TableName
    key: Key
    condition: Condition


Write: TypeAlias = Put | Update | Delete | Check


# --- reads ------------------------------------------------------------------------------------------------------------


class Prefix(msgspec.Struct, frozen=True):
    text: str


class Between(msgspec.Struct, frozen=True):
    """Between: a range that includes both ends."""

    low: str | int
    high: str | int


class Page(msgspec.Struct, frozen=True):
    """Page: some rows in sort order; `cursor` None means that there are no more."""

    rows: Sequence[Row]
    cursor: str | None


class StaleWrite(WorkerError):
    """StaleWrite: another writer was first. Nothing of the commit was applied; reload and decide again."""

    def __init__(self, write: Write, row: Row | None) -> None:
        found = "there is no such row" if row is None else f"the row has version {row.get('version', '-')}"
        super().__init__(
            f"{type(write).__name__} of {write.table} {write.key.pk} {write.key.sk} was refused: its condition "
            f"does not hold ({found}); reload and decide again"
        )
        self.write, self.row = write, row


class TooLarge(Rejected):
    """TooLarge: a row, key, number or commit beyond what every backend can hold."""


class Tables(Protocol):
    """Tables: the store's operations. All may raise `RetryLater`; after it a read can be repeated."""

    async def start(self) -> None:
        """Open connections. Raises `ConfigError`, with the remedy, if the store cannot be used as it is."""
        ...

    async def stop(self) -> None: ...

    async def ping(self) -> None:
        """Check that the store answers. Raises `RetryLater` if it does not."""
        ...

    async def get(self, table: TableName, key: Key) -> Row | None:
        """Read one row consistently. Expired rows are hidden, except `TRIGGER#` rows: see `is_visible`."""
        ...

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        """Read any number of rows consistently; rows that do not exist are left out."""
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
        """Read rows of one partition in sort order, at most `limit`; continue with the page's cursor.

        Reads are consistent on the table itself and eventually consistent on an index. Rows written meanwhile may or
        may not appear; no row that existed throughout is lost or repeated. A page may be short, even empty, and have a
        cursor.
        """
        ...

    async def commit(self, *writes: Write) -> None:
        """Apply all writes or none, durably, across tables. At most `WRITES_MAX`, each on a different row.

        The first `Put` or `Update` also stores a random commit id (`cid`). By it a commit whose reply was lost is
        recognised as applied. Raises `StaleWrite` if a condition does not hold, and `TooLarge`. After `RetryLater` the
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
    """Yield all rows of a partition, page by page."""
    cursor = None
    while True:
        page = await tables.query(table, pk, sk=sk, index=index, reverse=reverse, cursor=cursor)
        for row in page.rows:
            yield row
        if page.cursor is None:
            return
        cursor = page.cursor


def is_visible(row: Row, now: datetime) -> bool:
    """Return whether a reader may see the row: tables expire rows late, so every read filters.

    A `TRIGGER#` row is both a lock and a run. If it has expired, the core must decide about it, so it stays visible.
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


# `gc=False`: streams deliver thousands a second, and plain data has no reference cycles for the collector to find.
class Change(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Change: one row changed. `image` is the row after it, None if the row was removed.

    `position` rises with every change.
    """

    position: int
    table: TableName
    key: Key
    kind: ChangeKind
    image: Row | None
    at: datetime


class Trimmed(WorkerError):
    """Trimmed: some changes after the requested position are gone. Resync, then read after `oldest`."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"some changes after {asked} are gone, those after {oldest} are kept; resync, then read on")
        self.asked, self.oldest = asked, oldest


class ChangeFeed(Protocol):
    async def changes(self, table: TableName, after: int, limit: int = 1000) -> Sequence[Change]:
        """Return changes of one table in order, each at least once. Raises `Trimmed`."""
        ...

    async def last_position(self) -> int:
        """Return the position at which a reader starts that only wants new changes."""
        ...
