"""The states of the model of leases: what the rows say, what each session knows, and what is on its way."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from tests.modelcheck.modeltable import ModelTable, Rows, run
from worker.core.model.keys import SessionId
from worker.store.repos.leases import Lease, Leases

STREAM: Final = "s"
PARENT, OTHER, CHILD, TWIN = "p", "q", "p-child", "p-twin"
# How many records each shard has; all but the first two are children of the first.
SHORT: Final = {PARENT: 1, OTHER: 0, CHILD: 1}
SPLIT: Final = {PARENT: 1, OTHER: 0, CHILD: 1, TWIN: 0}
Effects: TypeAlias = tuple[tuple[str, int], ...]  # by shard: the last record that anyone has dealt with


class Status(StrEnum):
    UP = "up"
    STOPPED = "stopped"  # crashed, or frozen beyond its fence: it acts no more, and its requests may still arrive
    DEAD = "dead"  # ended by another: its leases may be taken


class Part(Struct, frozen=True, cache_hash=True, gc=False):
    """What a state is made of. No dataclass: most of the time went into replacing a field and hashing what it is in."""


class Hold(Part, frozen=True):
    """A lease as its holder knows it."""

    lease: Lease
    done: int  # the last record whose effect is durable
    saved: int  # the checkpoint


class Member(Part, frozen=True):
    id: SessionId
    status: Status = Status.UP
    holds: tuple[Hold, ...] = ()
    is_ended: bool = False  # by others, although it is up, and does not know it
    is_fresh: bool = True  # it has done nothing yet, so it is like any other that has not

    def hold_of(self, shard: str) -> Hold | None:
        return next((hold for hold in self.holds if hold.lease.shard == shard), None)

    def without(self, shard: str) -> "Member":
        return replace(self, holds=tuple(hold for hold in self.holds if hold.lease.shard != shard))

    def having(self, hold: Hold) -> "Member":
        kept = self.without(hold.lease.shard).holds
        return replace(self, holds=tuple(sorted((*kept, hold), key=lambda each: each.lease.shard)))


class Luck(Part, frozen=True):
    """How much may still go wrong."""

    stops: int
    mishaps: int
    asks: int
    releases: int


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows, and what they say. There is one for the same rows (`table_of`), so it is compared by what it is."""

    rows: Rows
    leases: Mapping[str, Lease]


class World(Part, frozen=True):
    table: Table
    members: tuple[Member, ...]
    effects: Effects
    luck: Luck
    flying: tuple[str, ...] = ()  # requests that may still arrive; `Model.requests` has what they ask for


class Request(Part, frozen=True, kw_only=True):
    sender: SessionId
    operation: str
    lease: Lease
    done: int = 0  # how far the sender got

    def __str__(self) -> str:
        return f"{self.sender}: {self.operation} of {self.lease.shard}"


def children_in(shards: Iterable[str]) -> list[str]:
    return [shard for shard in shards if shard not in {PARENT, OTHER}]


def saved_in(lease: Lease) -> int:
    return int(lease.checkpoint or 0)


def table_of(rows: Rows) -> Table:
    """The one table with these rows: the same rows are met in many states."""
    found = _TABLES.get(rows)
    if found is None:
        leases = {lease.shard: lease for lease in run(Leases(ModelTable(rows), "g").list(STREAM))}
        found = _TABLES[rows] = Table(rows, leases)
    return found


_TABLES: Final[dict[Rows, Table]] = {}
