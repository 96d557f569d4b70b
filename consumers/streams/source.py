"""Define the port to a source of changes: the feed of a table, or a shard of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NewType, Protocol, runtime_checkable

import msgspec

from worker.core.errors import RetryLater, WorkerError
from worker.store.table import Change

# Text order is the source's own order, because a lease stores it as its checkpoint and compares it.
Position = NewType("Position", str)


class Record(msgspec.Struct, frozen=True, gc=False):  # streams bring thousands a second: a dataclass costs more
    position: Position
    change: Change
    size: int = 0  # bytes on the wire, if the source knows them; bounds what is read ahead


@dataclass(frozen=True, slots=True)
class Batch:
    """Batch is the result of one read. The next one continues at `read_to`, at or after the last record."""

    records: Sequence[Record]
    read_to: Position
    is_end: bool = False  # the shard is closed, and nothing follows


class Gap(WorkerError):
    """Reports lost records after a position: catch up without them, then continue from `resume_at`."""

    def __init__(
        self, source: str, *, asked: Position, resume_at: Position, since: datetime | None, noticed_at: datetime
    ) -> None:
        super().__init__(
            f"records of {source} after {asked} are gone before they were read; everything since "
            f"{since or 'the beginning'} is read again, and reading continues from {resume_at}"
        )
        self.source, self.asked, self.resume_at = source, asked, resume_at
        self.since, self.noticed_at = since, noticed_at


@dataclass(frozen=True, slots=True)
class Shard:
    """Shard is an ordered part of a stream. It may be read once its parents were read to their end."""

    id: str
    parents: frozenset[str] = frozenset()  # two after a merge


class Source(Protocol):
    """Source is one shard, or a feed that is not split. Every call may raise `RetryLater`."""

    @property
    def name(self) -> str: ...

    async def oldest(self) -> Position:
        """Return the position before all records."""
        ...

    async def newest(self) -> Position:
        """Return the position after all records so far."""
        ...

    async def read(self, after: Position) -> Batch:
        """Return the next records in order, at least once each, in bounded numbers. Raises `Gap`."""
        ...


@runtime_checkable
class Stream(Protocol):
    """Stream is a stream of shards, which end and are followed by others."""

    @property
    def name(self) -> str: ...

    async def shards(self) -> Sequence[Shard]:
        """List the shards that can still be read. They may name parents that are gone. Raises `RetryLater`."""
        ...

    async def children(self, shard: str) -> Sequence[Shard]:
        """List the children of an ended shard; empty while the stream does not show them. Raises `RetryLater`."""
        ...

    async def is_disabled(self) -> bool:
        """Return whether the stream has ended, so that no shard gets children. Raises `RetryLater`."""
        ...

    def reader(self, shard: str, whole_to: datetime | None = None) -> Source:
        """Return a reader of a shard that can miss no record from before `whole_to`.

        The shard did not exist then, for example. Without this time, a reader that starts late cannot know that the
        first records are gone: no service says so.
        """
        ...


class RefusedCall(RetryLater):
    """Reports an unknown refusal, or one of a call that worked before: an operator must act.

    The call is retried, because the cause may be fixed, and the rest of the worker does not depend on it.
    """
