"""Read DynamoDB Streams: each change of a table once, in order per row, kept for 24 hours.

Its shards end after some hours and are followed by others; they are split, never merged. A reader that wants only new
changes starts at `LATEST`, which has no sequence number and so cannot be stored. Its position is therefore a time. The
iterator is used while the process lives. A reader that starts after a crash reads the shard from its beginning and
skips records older than that time. So no change is lost between the first start and the first record.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from consumers.streams.aws.calls import Answer, NotFound, StreamCalls, TrimmedData
from consumers.streams.aws.change_records import since_1970, streamed_change
from consumers.streams.aws.iterators import IteratorChain, ask_after
from consumers.streams.lazy_row import UnreadableRecord
from consumers.streams.positions import BEGINNING, OLDEST, RecordPosition, parse_place, position_text
from consumers.streams.source import Batch, Gap, Position, Record, Shard
from consumers.streams.unreadable import KeepStray, UnreadableRecordLetter
from worker.core.errors import ConfigError, RetryLater
from worker.core.model.keys import millis
from worker.runtime.clock import Clock
from worker.runtime.json_bytes import to_json
from worker.runtime.rate_limit import TokenBucket
from worker.store.table import TableName

DIGITS: Final = 40
READ_MAX: Final = 1_000
SLICE: Final = 100  # records decoded before other tasks get a turn
SKIPPED_PAGES_MAX: Final = 20  # read in one call while all their records are too old
LISTINGS_MAX: Final = 3
PAGES_MAX: Final = 1_000
GONE_MAX: Final = 10_000
# How far before our own time new changes begin: the service has another clock, and it rounds down.
SKEW: Final = timedelta(minutes=1)
KEPT: Final = timedelta(hours=24)
MARGIN: Final = timedelta(hours=1)  # before that limit; from here on records may be gone
AWAY_S: Final = 1_200.0  # time without a response after which an empty page no longer proves that nothing came since
VIEWS: Final = {"NEW_IMAGE", "NEW_AND_OLD_IMAGES"}


def listing_budget(clock: Clock) -> TokenBucket:
    """Return the rate limit for the listings of all streams of a process.

    The account's limit is ten a second, for all callers together.
    """
    return TokenBucket(clock, per_second=2.0, burst=2)


async def find_stream(calls: StreamCalls, table_name: str) -> str:
    """Return the ARN of a table's newest stream. Raises `ConfigError` if the table has none."""
    answer = await calls.call("ListStreams", TableName=table_name)
    streams = sorted(answer["Streams"], key=lambda stream: stream["StreamLabel"])
    if not streams:
        raise ConfigError(f"table {table_name} has no stream; enable one with the view type NEW_AND_OLD_IMAGES")
    return streams[-1]["StreamArn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStream:
    """Says which stream to read, for which table, and where unreadable records go."""

    name: str
    arn: str
    table: TableName
    keep_stray: KeepStray


class DynamoStream:
    """DynamoStream is the stream of one table."""

    def __init__(self, stream: TableStream, calls: StreamCalls, clock: Clock, budget: TokenBucket) -> None:
        self._stream, self._calls, self._clock, self._budget = stream, calls, clock, budget
        self._gone: set[str] = set()  # parents that are known to be trimmed

    @property
    def name(self) -> str:
        return self._stream.name

    async def shards(self) -> Sequence[Shard]:
        """List all existing shards, so that no child is taken for a shard without a parent.

        A listing is read page by page while it changes, and may omit a shard. So a parent that is named but not listed
        is requested by itself. Raises `RetryLater` if it exists and no listing shows it.
        """
        for _ in range(LISTINGS_MAX):
            found = [_shard(wire) for wire in await self._listed()]
            named = {parent for shard in found for parent in shard.parents}
            if not await self._left_out(named - {shard.id for shard in found}):
                return found
        raise RetryLater(f"{self.name}: {LISTINGS_MAX} listings left out shards that are there; it is listed again")

    async def children(self, shard: str) -> Sequence[Shard]:
        asked = {"Type": "CHILD_SHARDS", "ShardId": shard}
        found = [_shard(wire) for wire in await self._listed(ShardFilter=asked)]
        return [child for child in found if shard in child.parents]  # older emulators ignore the filter

    async def is_disabled(self) -> bool:
        """Return whether the stream has ended, so that a shard without children will never have any."""
        return (await self._describe())["StreamStatus"] in {"DISABLED", "DISABLING"}

    def reader(self, shard: str, whole_to: datetime | None = None) -> "DynamoShard":
        return DynamoShard(self._stream, shard, self._calls, self._clock, born_after=whole_to or BEGINNING)

    async def _listed(self, **asked: object) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        for _ in range(PAGES_MAX):
            page = await self._describe(**asked)
            found.extend(page["Shards"])
            if (last := page.get("LastEvaluatedShardId")) is None:
                return found
            asked["ExclusiveStartShardId"] = last
        raise RetryLater(f"{self.name}: its listing did not end after {PAGES_MAX} pages; it is listed again")

    async def _describe(self, **asked: object) -> Answer:
        await self._budget.take()
        described = (await self._calls.call("DescribeStream", StreamArn=self._stream.arn, **asked))["StreamDescription"]
        if described.get("StreamViewType", "NEW_IMAGE") not in VIEWS:
            raise ConfigError(
                f"the stream {self._stream.arn} carries {described['StreamViewType']}, not the rows as they became; "
                "enable it again with the view type NEW_AND_OLD_IMAGES"
            )
        return described

    async def _left_out(self, unlisted: set[str]) -> bool:
        for shard in unlisted - self._gone:
            if await self._is_there(shard):
                return True
            if len(self._gone) < GONE_MAX:
                self._gone.add(shard)
        return False

    async def _is_there(self, shard: str) -> bool:
        try:
            await self._calls.call(
                "GetShardIterator", StreamArn=self._stream.arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON"
            )
        except (NotFound, TrimmedData):
            return False
        return True


class DynamoShard:
    """DynamoShard is one shard of a table's stream, read by one reader at a time."""

    def __init__(
        self, stream: TableStream, shard: str, calls: StreamCalls, clock: Clock, *, born_after: datetime
    ) -> None:
        self._stream, self._shard, self._calls, self._clock = stream, shard, calls, clock
        self._born_after, self._opened_at = born_after, clock.now()
        self._chain = IteratorChain(calls, clock, self._iterator_after, read_max=READ_MAX)
        self._caught_up_at = clock.now()
        self._empty_since: float | None = None  # every page since then was empty
        self._heard_at = float("-inf")

    @property
    def name(self) -> str:
        return f"{self._stream.name}/{self._shard}"

    @property
    def lag(self) -> timedelta:
        """Return how far behind the reader is, to the second.

        The service does not say, so this follows from the last page.
        """
        return max(self._clock.now() - self._caught_up_at, timedelta(0))

    async def oldest(self) -> Position:
        return OLDEST.text(DIGITS)

    async def newest(self) -> Position:
        place = RecordPosition(sequence="", at=self._clock.now() - SKEW)
        position = place.text(DIGITS)
        self._chain.hold(await self._iterator("LATEST"), position, place)
        return position

    async def read(self, after: Position) -> Batch:
        place = parse_place(after, DIGITS)
        if self._was_away() or not self._chain.is_at(after):
            self._refuse_gap(place)
        try:
            batch, has_more = await self._page(after, place)
            for _ in range(SKIPPED_PAGES_MAX):
                if not has_more:
                    break
                batch, has_more = await self._page(after, place)
            return batch
        except (TrimmedData, NotFound) as error:
            if place.is_bridged and isinstance(error, NotFound):
                return Batch([], after, is_end=True)  # the gap is reported already, and nothing of the shard is left
            raise self._gap(place) from error

    def _refuse_gap(self, place: RecordPosition) -> None:
        """Raise `Gap` if records before the first one read may be gone. The service cannot know this."""
        whole_to = self._whole_to(place)
        if place.is_start and whole_to != BEGINNING and self._clock.now() - whole_to > KEPT - MARGIN:
            raise self._gap(place)

    def _waited(self, place: RecordPosition, *, is_last: bool) -> RecordPosition:
        """Return the position with a newer time if no record follows, so that its age is not taken for a loss.

        The successors of the shard are checked against it. At the end of the shard the time is renewed for any
        position; before the end only for a position without a record, and rarely. One empty page does not prove that
        nothing came: the service returns some while it searches for the next records.
        """
        now, whole_to = self._clock.now(), self._whole_to(place)
        is_old = place.is_start and now - (self._opened_at if whole_to == BEGINNING else whole_to) > KEPT / 2
        if not (is_last or is_old) or self._empty_s() < MARGIN.total_seconds():
            return place
        return replace(place, at=now - MARGIN)

    def _whole_to(self, place: RecordPosition) -> datetime:
        return max(place.at, self._born_after)

    def _was_away(self) -> bool:
        return self._clock.monotonic() - self._heard_at > AWAY_S

    def _empty_s(self) -> float:
        return 0.0 if self._empty_since is None else self._clock.monotonic() - self._empty_since

    async def _page(self, after: Position, place: RecordPosition) -> tuple[Batch, bool]:
        """Read one page; also return whether all its records were too old and another page follows."""
        answer = await self._chain.fetch(after, place)
        if answer is None:
            return Batch([], after, is_end=True), False
        wires: list[Mapping[str, Any]] = answer["Records"]
        records = await self._decoded(wires, place)
        fetched = _place(wires[-1]) if wires else None
        self._hear(fetched)
        has_skipped = fetched is not None and not records and fetched.at < _news_since(place)
        is_last = answer.get("NextShardIterator") is None
        # While all records are too old the position stays: only its time says where new changes begin.
        reached = self._waited(place, is_last=is_last) if fetched is None else place if has_skipped else fetched
        read_to = after if reached == place else reached.text(DIGITS)
        goes_on = self._chain.advance(answer, after=read_to, fetched=fetched or reached)
        return Batch(records, read_to, is_end=not goes_on), has_skipped and goes_on

    def _hear(self, fetched: RecordPosition | None) -> None:
        """Update the lag and the empty interval from a response."""
        now = self._clock.monotonic()
        if fetched is not None:
            self._empty_since = None
        elif self._empty_since is None or self._was_away():
            self._empty_since = now
        self._heard_at = now
        self._caught_up_at = self._clock.now() if fetched is None else fetched.at

    async def _decoded(self, wires: Sequence[Mapping[str, Any]], place: RecordPosition) -> list[Record]:
        records: list[Record] = []
        since = _news_since(place)
        for start in range(0, len(wires), SLICE):
            for wire in wires[start : start + SLICE]:
                try:
                    change = streamed_change(wire, self._stream.table)
                except UnreadableRecord as error:
                    await self._keep(wire, error)
                    continue
                if change.at >= since:
                    position = position_text(_sequence(wire), millis(change.at), DIGITS)
                    records.append(Record(position, change, wire["dynamodb"].get("SizeBytes", 0)))
            await asyncio.sleep(0)  # a full response takes long enough to delay other tasks
        return records

    async def _keep(self, wire: Mapping[str, Any], error: UnreadableRecord) -> None:
        place = _place(wire)
        stray = UnreadableRecordLetter(
            source=self.name, position=place.text(DIGITS), at=place.at, body=to_json(wire), reason=str(error)
        )
        await self._stream.keep_stray(stray)

    def _gap(self, place: RecordPosition) -> Gap:
        now, since = self._clock.now(), self._whole_to(place)
        return Gap(
            self.name,
            asked=place.text(DIGITS),
            resume_at=place.bridged(now).text(DIGITS),
            since=None if since == BEGINNING else since,
            noticed_at=now,
        )

    async def _iterator_after(self, place: RecordPosition) -> str:
        if place.is_start:
            return await self._iterator("TRIM_HORIZON")
        return await ask_after(
            place,
            after=lambda: self._iterator("AFTER_SEQUENCE_NUMBER", SequenceNumber=place.sequence),
            oldest=lambda: self._iterator("TRIM_HORIZON"),
        )

    async def _iterator(self, kind: str, **more: str) -> str:
        answer = await self._calls.call(
            "GetShardIterator", StreamArn=self._stream.arn, ShardId=self._shard, ShardIteratorType=kind, **more
        )
        return answer["ShardIterator"]


def _news_since(place: RecordPosition) -> datetime:
    """Return the time before which records are skipped. After a gap no record is skipped."""
    return place.at if place.is_start and not place.is_bridged else BEGINNING


def _shard(wire: Mapping[str, Any]) -> Shard:
    parent = wire.get("ParentShardId")
    return Shard(wire["ShardId"], frozenset([parent] if parent else []))


def _place(wire: Mapping[str, Any]) -> RecordPosition:
    return RecordPosition(sequence=_sequence(wire), at=since_1970(wire["dynamodb"]["ApproximateCreationDateTime"]))


def _sequence(wire: Mapping[str, Any]) -> str:
    return wire["dynamodb"]["SequenceNumber"]
