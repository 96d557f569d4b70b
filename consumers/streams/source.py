"""The port to whatever tells of changes: the feed of a table, or a shard of a stream."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NewType, Protocol, runtime_checkable

import msgspec

from worker.core.errors import RetryLater, WorkerError
from worker.store.table import Change

# Written so that text order is the source's own order: it is kept as a lease's checkpoint and compared there.
Position = NewType("Position", str)


class Record(msgspec.Struct, frozen=True, gc=False):  # streams bring thousands a second: a dataclass costs more
    position: Position
    change: Change
    size: int = 0  # bytes on the wire, as far as the source can say: what is read ahead is bounded by it


@dataclass(frozen=True, slots=True)
class Batch:
    """What one read gave. `read_to` is where the next one goes on, at or after the last record."""

    records: Sequence[Record]
    read_to: Position
    is_end: bool = False  # the shard is closed, and nothing comes after this


class Gap(WorkerError):
    """Records after the asked position are gone: catch up by other means, then go on from `resume_at`."""

    def __init__(
        self, source: str, *, asked: Position, resume_at: Position, since: datetime | None, noticed_at: datetime
    ) -> None:
        super().__init__(
            f"records of {source} after {asked} are gone before they were read; everything since "
            f"{since or 'the beginning'} is looked at again, and reading goes on from {resume_at}"
        )
        self.source, self.asked, self.resume_at = source, asked, resume_at
        self.since, self.noticed_at = since, noticed_at


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a stream that is in order. It may be read once those it comes from were read to their end."""

    id: str
    parents: frozenset[str] = frozenset()  # two after a merge


class Source(Protocol):
    """One shard, or a feed that is not split. All of them may raise `RetryLater`."""

    @property
    def name(self) -> str: ...

    async def oldest(self) -> Position:
        """Where a reader starts that wants all there is."""
        ...

    async def newest(self) -> Position:
        """Where a reader starts that only wants news."""
        ...

    async def read(self, after: Position) -> Batch:
        """Give what comes next, in order, at least once each, and a bounded number at a time. Raises `Gap`."""
        ...


@runtime_checkable
class Stream(Protocol):
    """A stream of shards, which end and are followed by others."""

    @property
    def name(self) -> str: ...

    async def shards(self) -> Sequence[Shard]:
        """List the shards that can still be read; parents that are gone may be named. Raises `RetryLater`."""
        ...

    async def children(self, shard: str) -> Sequence[Shard]:
        """List what follows a shard that has ended: empty while the stream does not say so yet. Raises `RetryLater`."""
        ...

    async def is_disabled(self) -> bool:
        """Say whether the stream has ended: a shard of it without children will never have any. Raises `RetryLater`."""
        ...

    def reader(self, shard: str, whole_to: datetime | None = None) -> Source:
        """Read a shard of which nothing can be missing that came before a time: it was not there yet, say.

        Without it, a reader that begins late cannot know that the beginning is gone: no service says so.
        """
        ...


class RefusedCall(RetryLater):
    """The service does not take a call that it took before, or says so in a way nobody knows: a person must look.

    It is asked again, because whatever is wrong may be put right, and the rest of the worker does not depend on it.
    """
