"""Record ledgers for jobs: which records changed, and that they are processed.

Processing is at least once. A job asks which records changed, processes them, and saves them last or every now and
then. After a crash before the save, the same records are changed still. An older attempt cannot save.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, TypeVar

from worker.core.errors import Rejected, RetryLater
from worker.core.ledger.hold import LedgerHeld, LedgerHolder, LedgerRecord, RecordChanges, compare, hold
from worker.core.model.keys import run_key_of_name
from worker.core.run.state import Run
from worker.operations.operator_actions import OperatorAction, Requester, action_event
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.runtime.ids import random_id
from worker.store.repos.delivery.record_ledger import RECORDS_PER_COMMIT, LedgerHead, RecordLedger, RecordPage
from worker.store.repos.events import event_write
from worker.store.repos.runs import Runs
from worker.store.table import StaleWrite, Tables

RECORDS_MAX: Final = 1_000_000  # of one ledger
ID_BYTES_MAX: Final = 512
HASH_CHARS_MAX: Final = 256
RUN_CHARS_MAX: Final = 256
RACES: Final = Backoff(attempts_max=10, first_s=0.02, longest_s=0.5, budget_s=10.0)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")

T = TypeVar("T")


class LedgerFull(Rejected):
    """Reports that a ledger has as many records as one may have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the ledger {name} has {RECORDS_MAX:,} records, which is the most; split it, or clear it")


@dataclass(frozen=True, slots=True)
class LedgerDiff:
    """LedgerDiff says for each record, in order, whether it is new or changed."""

    is_changed: list[bool]
    counts: RecordChanges


def check_name(name: str) -> str:
    """Return the name of a ledger. Raises `Rejected` if it is none."""
    if not _NAME.fullmatch(name):
        raise Rejected(f"{name[:80]!r} is no name of a ledger; use 1 to 64 of a-z, 0-9, dot, dash and underscore")
    return name


def check_record(record: LedgerRecord, where: str) -> LedgerRecord:
    """Return a record that can be stored. Raises `Rejected`, which says where it is."""
    if not record.id or not record.id.isprintable() or len(record.id.encode()) > ID_BYTES_MAX:
        raise Rejected(f"{where}: `id` must be text of 1 to {ID_BYTES_MAX} bytes, without control characters")
    if not record.hash or len(record.hash) > HASH_CHARS_MAX:
        raise Rejected(f"{where}: `hash` must be text of 1 to {HASH_CHARS_MAX} characters")
    return record


def check_holder(run: str, attempt: int) -> LedgerHolder:
    """Return who asks. Raises `Rejected` if the run has no name."""
    if not run or len(run) > RUN_CHARS_MAX or attempt < 1:
        raise Rejected(f"a run has a name of 1 to {RUN_CHARS_MAX} characters and an attempt of 1 or more")
    return LedgerHolder(run, attempt)


class RecordLedgers:
    """RecordLedgers compares and saves records. Every call may raise `RetryLater` and may be repeated."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock = tables, clock
        self._ledger = RecordLedger(tables)

    async def take(self, name: str, by: LedgerHolder) -> None:
        """Take the ledger for a run. Raises `LedgerHeld` if a newer attempt of the run has it."""
        await self._check_attempt(name, by)

        async def step() -> None:
            seen = await self._ledger.head(check_name(name))
            holder = hold(name, seen.holder, by, takes=True)
            if holder != seen.holder:
                now = self._clock.now()
                await self._ledger.save(seen, replace(seen, holder=holder, held_since=now), {}, now)

        await self._until_unmoved(name, step)

    async def diff(self, name: str, records: Sequence[LedgerRecord]) -> LedgerDiff:
        """Return which records are new or changed. Call `take` once before the first part of them."""
        known = await self._ledger.known(check_name(name), [each.id for each in records])
        return LedgerDiff(*compare(records, known))

    async def commit(self, name: str, by: LedgerHolder, records: Iterable[LedgerRecord]) -> RecordChanges:
        """Save processed records. Raises `LedgerHeld` if another run or attempt has the ledger, `LedgerFull`."""
        total = RecordChanges()
        await self._check_attempt(name, by)
        for batch in _batches(records):
            total = total.plus(await self._save(name, batch, by))
        return total

    async def seed(self, name: str, records: Iterable[LedgerRecord]) -> RecordChanges:
        """Save records that are not in the ledger; leave the others as they are. Raises `LedgerFull`."""
        total = RecordChanges()
        for batch in _batches(records):
            total = total.plus(await self._save(name, batch, None))
        return total

    async def head(self, name: str) -> LedgerHead:
        return await self._ledger.head(check_name(name))

    async def page(self, name: str, after: str, limit: int) -> RecordPage:
        return await self._ledger.page(check_name(name), after, limit)

    async def get(self, name: str, record: str) -> LedgerRecord | None:
        found = await self._ledger.known(check_name(name), [record])
        return LedgerRecord(record, found[record]) if record in found else None

    async def clear(self, name: str, reason: str, by: Requester) -> int:
        """Delete all records; return how many. The run that holds the ledger can save nothing any more.

        Stopped in between, it can be repeated.
        """
        event = OperatorAction(name="ledger clear", subject=check_name(name), reason=reason)

        async def release() -> None:
            seen = await self._ledger.head(name)
            now = self._clock.now()
            recorded = event_write(action_event(by, event, event_id=random_id(), at=now))
            cleared = LedgerHolder(f"cleared by {by.name}"[:RUN_CHARS_MAX])
            await self._ledger.save(seen, replace(seen, holder=cleared, held_since=now), {}, now, recorded)

        await self._until_unmoved(name, release)
        deleted = 0
        while (page := await self._ledger.page(name, "", RECORDS_PER_COMMIT)).records:
            ids = [each.id for each in page.records]

            async def step(ids: Sequence[str] = ids) -> None:
                seen = await self._ledger.head(name)
                await self._ledger.remove(seen, replace(seen, records=max(0, seen.records - len(ids))), ids)

            await self._until_unmoved(name, step)
            deleted += len(ids)
        return deleted

    async def _save(self, name: str, batch: Sequence[LedgerRecord], by: LedgerHolder | None) -> RecordChanges:
        wanted = {each.id: each.hash for each in batch}
        merged = [LedgerRecord(*each) for each in wanted.items()]

        async def step() -> RecordChanges:
            seen, known = await self._ledger.load(check_name(name), list(wanted))
            holder = seen.holder if by is None else hold(name, seen.holder, by, takes=False)
            flags, counts = compare(merged, known)
            changed = {each.id: each.hash for each, flag in zip(merged, flags, strict=True) if flag}
            if by is None:  # a seed changes nothing that is known
                changed = {record: each for record, each in changed.items() if record not in known}
                counts = RecordChanges(new=counts.new, unchanged=counts.unchanged + counts.changed)
            if not changed and holder == seen.holder:
                return counts
            if seen.records + counts.new > RECORDS_MAX:
                raise LedgerFull(name)
            now = self._clock.now()
            since = seen.held_since if holder == seen.holder else now
            head = replace(seen, holder=holder, held_since=since, records=seen.records + counts.new, saved_at=now)
            await self._ledger.save(seen, head, changed, now)
            return counts

        return await self._until_unmoved(name, step)

    async def _check_attempt(self, name: str, by: LedgerHolder) -> None:
        """Reject an attempt of one of Interlock's runs that is over, even if no newer one took the ledger."""
        key = run_key_of_name(by.run)
        run = None if key is None else await Runs(self._tables).load(key)
        if isinstance(run, Run) and run.attempt > by.attempt:
            raise LedgerHeld(name, by, f"attempt {run.attempt} of the run has begun")

    async def _until_unmoved(self, name: str, step: Callable[[], Awaitable[T]]) -> T:
        retries = RetryLoop(RACES, self._clock)
        while True:
            try:
                return await step()
            except StaleWrite as lost:
                await retries.wait(RetryLater(f"the ledger {name} keeps moving: {lost}"))


def _batches(records: Iterable[LedgerRecord]) -> Iterator[list[LedgerRecord]]:
    rest = iter(records)
    while batch := list(islice(rest, RECORDS_PER_COMMIT)):
        yield batch


def holder_in(environment: Callable[[str], str]) -> LedgerHolder | None:
    """Return the run of the command job that this process belongs to; None outside of one."""
    parts = [environment(name) for name in ("INTERLOCK_PIPELINE", "INTERLOCK_SCHEDULE", "INTERLOCK_PERIOD")]
    attempt = environment("INTERLOCK_ATTEMPT")
    if not all(parts) or not attempt.isdecimal():
        return None
    return LedgerHolder("/".join(parts), int(attempt))
