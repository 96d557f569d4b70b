"""Read DynamoDB's change records from Kinesis: more readers and retention, but unordered and repeated.

A record of the stream may be an aggregate of many; each of them has a position of its own, so that a reader can stop in
the middle. The service silently skips records that it no longer has. Therefore a position has a time: near the stream's
retention limit, a reader requests the oldest record left and checks whether it has read that one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from consumers.streams.aws.calls import Answer, NotFound, StreamCalls, TrimmedData
from consumers.streams.aws.iterators import IteratorChain, ask_after
from consumers.streams.aws.kinesis_records import DIGITS, Item, KinesisRecord, items
from consumers.streams.aws.kpl import BadAggregate
from consumers.streams.lazy_row import UnreadableRecord
from consumers.streams.positions import BEGINNING, OLDEST, RecordPosition, parse_place
from consumers.streams.source import Batch, Gap, Position, Record, Shard
from consumers.streams.unreadable import KeepStray, UnreadableRecordLetter
from worker.core.errors import RetryLater
from worker.core.model.keys import instant
from worker.runtime.clock import Clock
from worker.runtime.rate_limit import TokenBucket
from worker.store.table import TableName

READ_MAX: Final = 1_000
READS_PER_SECOND: Final = 4.0  # per shard, which allows five to all its readers together
EMPTY_PAGES_MAX: Final = 4  # read in one call while the service says that there is more
SLICE: Final = 100  # records decoded before other tasks get a turn
PAGES_MAX: Final = 1_000
SKEW: Final = timedelta(minutes=1)  # between the service's clock and ours
MARGIN: Final = timedelta(hours=1)  # before the stream's own limit; from here on records may be gone
KEPT_READ_AGAIN_S: Final = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStream:
    """Says which stream to read, which tables it carries, and where unreadable records go.

    `tables` is keyed by the names of the tables in DynamoDB.
    """

    name: str
    kinesis_name: str
    tables: Mapping[str, TableName]
    keep_stray: KeepStray
    reads_per_second: float = READS_PER_SECOND


class _About:
    """Caches what the service reported about the stream, for all its readers."""

    def __init__(self, stream: DeliveryStream, calls: StreamCalls, clock: Clock) -> None:
        self._stream, self._calls, self._clock = stream, calls, clock
        self._kept, self._kept_read_at = timedelta(0), -KEPT_READ_AGAIN_S
        self.children: dict[str, Sequence[Shard]] = {}  # by the shard that has ended, until requested

    async def kept(self) -> timedelta:
        """Return the retention of the stream."""
        now = self._clock.monotonic()
        if now - self._kept_read_at >= KEPT_READ_AGAIN_S:
            answer = await self._calls.call("DescribeStreamSummary", StreamName=self._stream.kinesis_name)
            hours = answer["StreamDescriptionSummary"]["RetentionPeriodHours"]
            self._kept, self._kept_read_at = timedelta(hours=hours), now
        return self._kept


class KinesisStream:
    def __init__(self, stream: DeliveryStream, calls: StreamCalls, clock: Clock) -> None:
        self._stream, self._calls, self._clock = stream, calls, clock
        self._about = _About(stream, calls, clock)

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def kinesis_name(self) -> str:
        return self._stream.kinesis_name

    async def shards(self) -> Sequence[Shard]:
        found: list[Shard] = []
        asked: dict[str, object] = {"StreamName": self._stream.kinesis_name}
        for _ in range(PAGES_MAX):
            page = await self._calls.call("ListShards", **asked)
            found.extend(_shard(wire) for wire in page["Shards"])
            if (token := page.get("NextToken")) is None:
                return found
            asked = {"NextToken": token}  # which includes the name of the stream
        raise RetryLater(f"{self.name}: its listing did not end after {PAGES_MAX} pages; it is listed again")

    async def children(self, shard: str) -> Sequence[Shard]:
        told = self._about.children.pop(shard, ())
        return told or [child for child in await self.shards() if shard in child.parents]

    async def is_disabled(self) -> bool:
        return False  # a Kinesis stream is deleted together with its shards, and never disabled

    def reader(self, shard: str, whole_to: datetime | None = None) -> "KinesisShard":
        return KinesisShard(
            self._stream, shard, self._calls, self._clock, self._about, born_after=whole_to or BEGINNING
        )


class KinesisShard:
    """KinesisShard is one shard, read by one reader at a time."""

    def __init__(
        self,
        stream: DeliveryStream,
        shard: str,
        calls: StreamCalls,
        clock: Clock,
        about: _About,
        *,
        born_after: datetime,
    ) -> None:
        self._stream, self._shard, self._calls, self._clock, self._about = stream, shard, calls, clock, about
        self._born_after = born_after
        self._chain = IteratorChain(calls, clock, self._iterator_after, read_max=READ_MAX)
        self._turns = TokenBucket(clock, stream.reads_per_second, burst=1)
        self._behind, self._heard_at = timedelta(0), clock.monotonic()
        self._whole_to = BEGINNING  # everything that arrived before was read from here, or caught up after a gap

    @property
    def name(self) -> str:
        return f"{self._stream.name}/{self._shard}"

    @property
    def lag(self) -> timedelta:
        """Return how far behind the reader is: the service's last value plus its age."""
        return self._behind + timedelta(seconds=self._clock.monotonic() - self._heard_at)

    async def oldest(self) -> Position:
        return OLDEST.text(DIGITS)

    async def newest(self) -> Position:
        """Return a time, because the service can start at one. Earlier records are not wanted."""
        return RecordPosition(sequence="", at=self._clock.now() - SKEW).text(DIGITS)

    async def read(self, after: Position) -> Batch:
        place = parse_place(after, DIGITS)
        if not self._chain.is_at(after):
            self._whole_to = max(place.at, self._born_after)
        try:
            batch = await self._page(after)
            for _ in range(EMPTY_PAGES_MAX):
                if batch.records or batch.is_end or not self._behind:
                    break
                batch = await self._page(batch.read_to)
            return batch
        except (TrimmedData, NotFound) as error:
            if place.is_bridged and isinstance(error, NotFound):
                return Batch([], after, is_end=True)  # the gap is reported already, and nothing of the shard is left
            raise self._gap(place) from error

    async def _refuse_gap(self, place: RecordPosition) -> None:
        """Raise `Gap` if records may be gone, before the reader moves past them.

        Call it after every fetch: records that are not trimmed by then could be fetched.
        """
        if self._whole_to == BEGINNING or self._clock.now() - self._whole_to <= await self._about.kept() - MARGIN:
            return
        if place.is_start or not await self._is_still_there(place):
            raise self._gap(place)

    async def _is_still_there(self, place: RecordPosition) -> bool:
        """Return whether the record of a position still exists, and so every later one.

        Return False also if the service does not say.
        """
        iterator: str | None = await self._iterator("TRIM_HORIZON")
        for _ in range(1 + EMPTY_PAGES_MAX):
            if iterator is None:
                break
            await self._turns.take()
            answer = await self._calls.call("GetRecords", ShardIterator=iterator, Limit=1)
            oldest: list[KinesisRecord] = answer["Records"]
            if oldest:
                return int(oldest[0].sequence) <= int(place.sequence)
            iterator = answer.get("NextShardIterator")
        return False

    def _gap(self, place: RecordPosition) -> Gap:
        now, since = self._clock.now(), max(place.at, self._born_after)
        return Gap(
            self.name,
            asked=place.text(DIGITS),
            resume_at=place.bridged(now).text(DIGITS),
            since=None if since == BEGINNING else since,
            noticed_at=now,
        )

    async def _page(self, after: Position) -> Batch:
        place = parse_place(after, DIGITS)
        await self._turns.take()
        asked_at = self._clock.now()
        answer = await self._chain.fetch(after, place)
        if answer is None:
            return Batch([], after, is_end=True)
        await self._refuse_gap(place)
        wires: list[KinesisRecord] = answer["Records"]
        records = await self._decoded(wires, place)
        self._behind, self._heard_at = _behind(answer), self._clock.monotonic()
        is_last = answer.get("NextShardIterator") is None
        # The successors of a shard may begin long before its end is read, so a last page says nothing about the
        # present.
        reached = _place(wires[-1]) if wires else place if is_last else await self._waited(place)
        # Never backwards: records left after a gap are old, and the lost ones were caught up.
        self._whole_to = max(self._whole_to, reached.at if self._behind else asked_at - SKEW)
        read_to = reached.text(DIGITS)
        goes_on = self._chain.advance(answer, after=read_to, fetched=reached)
        if not goes_on and (children := _children(answer)):
            self._about.children[self._shard] = children
        return Batch(records, read_to, is_end=not goes_on)

    async def _waited(self, place: RecordPosition) -> RecordPosition:
        """Return the position with a newer time if no record follows, so that its age is not taken for a loss.

        The time is renewed rarely: after half the retention.
        """
        now = self._clock.now() - SKEW
        if self._behind or now - place.at < await self._about.kept() / 2:
            return place
        return replace(place, at=now)

    async def _decoded(self, wires: Sequence[KinesisRecord], place: RecordPosition) -> list[Record]:
        records: list[Record] = []
        for count, item in enumerate(items(wires, place), start=1):
            try:
                change = item.change(self._stream.tables)
            except (UnreadableRecord, BadAggregate) as error:
                await self._keep(item, error)
            else:
                if change is not None:
                    records.append(Record(item.position(), change, len(item.data)))
            if count % SLICE == 0:
                await asyncio.sleep(0)  # a full response takes long enough to delay other tasks
        return records

    async def _keep(self, item: Item, error: UnreadableRecord | BadAggregate) -> None:
        stray = UnreadableRecordLetter(
            source=self.name,
            position=item.position(),
            at=instant(item.at_millis),
            body=item.data,
            reason=str(error),
        )
        await self._stream.keep_stray(stray)

    async def _iterator_after(self, place: RecordPosition) -> str:
        if place.is_start and (place.is_bridged or place.at == BEGINNING):
            return await self._iterator("TRIM_HORIZON")
        if place.is_start:
            return await self._iterator("AT_TIMESTAMP", Timestamp=place.at.timestamp())
        # Inside an aggregate, the whole record is read again, and its finished parts are skipped.
        kind = "AFTER_SEQUENCE_NUMBER" if place.part is None else "AT_SEQUENCE_NUMBER"
        return await ask_after(
            place,
            after=lambda: self._iterator(kind, StartingSequenceNumber=place.sequence),
            oldest=lambda: self._iterator("TRIM_HORIZON"),
        )

    async def _iterator(self, kind: str, **more: object) -> str:
        asked = {"StreamName": self._stream.kinesis_name, "ShardId": self._shard, "ShardIteratorType": kind, **more}
        return (await self._calls.call("GetShardIterator", **asked))["ShardIterator"]


def _shard(wire: Mapping[str, Any]) -> Shard:
    parents = (wire.get("ParentShardId"), wire.get("AdjacentParentShardId"))
    return Shard(wire["ShardId"], frozenset(parent for parent in parents if parent))


def _children(answer: Answer) -> list[Shard]:
    wires: list[Mapping[str, Any]] = answer.get("ChildShards") or []
    return [Shard(wire["ShardId"], frozenset(wire["ParentShards"])) for wire in wires]


def _place(wire: KinesisRecord) -> RecordPosition:
    return RecordPosition(sequence=wire.sequence, at=instant(wire.arrived_millis))


def _behind(answer: Answer) -> timedelta:
    return timedelta(milliseconds=answer.get("MillisBehindLatest") or 0)
