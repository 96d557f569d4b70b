"""Seeding: noting what is in a bucket already, so that an inbox's first day tells of nothing old.

Only the ledger is written, and nothing that is in it. So it can be stopped at any object, go on after the last one that
was noted, or be done again, before the inbox runs or while it does.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from consumers.inbox.rules import BucketPrefix, OfObjects, Rules
from worker.runtime.clock import Clock
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.delivery.inbox_ledger import InboxLedger, Known, LedgerEntry
from worker.store.table import Tables


@dataclass(frozen=True, slots=True)
class ListedObject:
    key: str
    etag: str


class Bucket(Protocol):
    async def page(self, prefix: str, after: str) -> Sequence[ListedObject]:
        """The next objects in order of their keys; none if there are no more. Raises `RetryLater`, `ConfigError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedProgress:
    """How far it came. `after`: the last key that was dealt with; to go on, begin there."""

    listed: int = 0
    unmatched: int = 0  # objects that no rule is about
    noted: int = 0  # entries: an object has one for each rule that is about it
    known: int = 0  # entries that were there already
    after: str = ""


class Seeder:
    def __init__(self, tables: Tables, rules: Rules, clock: Clock) -> None:
        self._ledger, self._clock = InboxLedger(tables), clock
        self._sources = [(rule.name, rule.source) for rule in rules if isinstance(rule.source, OfObjects)]

    def is_about(self, place: BucketPrefix) -> bool:
        """Say whether any rule is about any object there."""
        return any(source.may_be_in(place) for _, source in self._sources)

    async def run(self, bucket: Bucket, place: BucketPrefix, after: str = "") -> AsyncIterator[SeedProgress]:
        """Note everything in a place, and say after each page how far it is. Raises `RetryLater`, `ConfigError`."""
        progress = SeedProgress(after=after)
        while page := await bucket.page(place.prefix, progress.after):
            wanted = self._entries(place.bucket, page)
            missing = await self._ledger.missing(list(wanted))
            added = await gather_bounded([self._adding(entry, wanted[entry]) for entry in missing])
            progress = SeedProgress(
                listed=progress.listed + len(page),
                unmatched=progress.unmatched + len(page) - len({entry.key for entry in wanted}),
                noted=progress.noted + sum(added),
                known=progress.known + len(wanted) - sum(added),
                after=page[-1].key,
            )
            yield progress

    def _entries(self, bucket: str, page: Sequence[ListedObject]) -> dict[LedgerEntry, Known]:
        return {
            LedgerEntry(bucket, each.key, name): Known(etag=each.etag)
            for each in page
            for name, source in self._sources
            if source.find(bucket, each.key) is not None
        }

    def _adding(self, entry: LedgerEntry, known: Known) -> Callable[[], Awaitable[bool]]:
        return lambda: self._ledger.add(entry, known, self._clock.now())
