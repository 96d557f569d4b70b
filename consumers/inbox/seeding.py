"""Record the existing objects of a bucket, so that a new inbox does not report them as new.

Seeding writes only the ledger, and only entries that are not in it. So it can stop at any object, continue after the
last recorded one, or be repeated, before the inbox runs or while it does.
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
        """Return the next objects in key order; empty at the end. Raises `RetryLater`, `ConfigError`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedProgress:
    """SeedProgress is the state after a page. Pass `after`, the last processed key, to continue there."""

    listed: int = 0
    unmatched: int = 0  # objects that match no rule
    noted: int = 0  # entries written: an object has one for each rule that it matches
    known: int = 0  # entries that existed already
    after: str = ""


class Seeder:
    def __init__(self, tables: Tables, rules: Rules, clock: Clock) -> None:
        self._ledger, self._clock = InboxLedger(tables), clock
        self._sources = [(rule.name, rule.source) for rule in rules if isinstance(rule.source, OfObjects)]

    def is_about(self, place: BucketPrefix) -> bool:
        """Return whether any rule could match an object under a prefix."""
        return any(source.may_be_in(place) for _, source in self._sources)

    async def run(self, bucket: Bucket, place: BucketPrefix, after: str = "") -> AsyncIterator[SeedProgress]:
        """Record every object under a prefix and yield the progress after each page.

        Raises `RetryLater`, `ConfigError`.
        """
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
