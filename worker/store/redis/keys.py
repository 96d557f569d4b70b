"""The keys of an installation on a Redis server; all of them carry one hash tag.

    {interlock}:meta                              hash: version, number of slices, newest change of each slice
    {interlock}:r:control:8:PIPELINE:CONFIG       string: one row; 8 is the length of its partition key
    {interlock}:p:control:PIPELINE                sorted set: the sort keys of one partition
    {interlock}:i:LISTS:PIPELINES                 sorted set: the entries of one partition of an index
    {interlock}:ttl                               sorted set: which rows expire, by time
    {interlock}:f:control.3                       stream: the changes of one slice of a table
    {interlock}:changed                           channel: names slices that have new changes

The hash tag keeps all keys in one slot of a cluster, because a script, and with it a commit, may use one slot only.
"""

from dataclasses import dataclass
from hashlib import sha1
from typing import Final

from worker.store.table import Index, Key, TableName

SLICES: Final = 8  # of each table: so many workers at most share the changes of one table


def slice_of(pk: str, slices: int) -> int:
    """Return the slice of a partition. `sweep.lua` computes the same."""
    return int(sha1(pk.encode(), usedforsecurity=False).hexdigest()[:4], 16) % slices


def feed_of(table: TableName, number: int) -> str:
    return f"{table}.{number}"


@dataclass(frozen=True, slots=True)
class StoreKeys:
    """Names the keys of one installation."""

    prefix: str

    @property
    def tag(self) -> str:
        return f"{{{self.prefix}}}"

    @property
    def meta(self) -> str:
        return f"{self.tag}:meta"

    @property
    def expiries(self) -> str:
        return f"{self.tag}:ttl"

    @property
    def changed(self) -> str:
        return f"{self.tag}:changed"

    def row(self, table: TableName, key: Key) -> str:
        length = len(key.pk) if key.pk.isascii() else len(key.pk.encode())
        return f"{self.tag}:r:{table}:{length}:{key.pk}:{key.sk}"

    def partition(self, table: TableName, pk: str, index: Index | None) -> str:
        return f"{self.tag}:p:{table}:{pk}" if index is None else f"{self.tag}:i:{index.name}:{pk}"

    def stream(self, feed: str) -> str:
        return f"{self.tag}:f:{feed}"
