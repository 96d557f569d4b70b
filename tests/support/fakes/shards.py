"""What the fakes of DynamoDB Streams and Kinesis share: shards that end, iterators that expire, time that trims.

Everything happens on the injected clock and at once: no sockets, no threads. What goes wrong is ordered by the test.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any, ClassVar, Final, TypeAlias

from botocore.session import get_session
from botocore.validate import ParamValidator

from consumers.streams.aws.calls import ExpiredIterator, NotFound, Throttled, TrimmedData
from worker.core.errors import Rejected, WorkerError
from worker.runtime.clock import Clock

HASH_MAX: Final = 2**128 - 1
EVERYTHING: Final = (0, HASH_MAX)
ITERATOR_LIVES: Final = timedelta(minutes=15)

Wire: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One record as the wire says it."""

    sequence: int
    at: datetime
    wire: Wire
    size: int


@dataclass(slots=True, kw_only=True)
class FakeShard:
    id: str
    parents: tuple[str, ...] = ()
    starts_at: int
    ends_at: int | None = None  # the last sequence number; None while it is open
    closed_at: datetime | None = None
    entries: list[Entry] = field(default_factory=list[Entry])
    # Its end shows in the listing; an emulated listing may lag behind and show an open parent with a child.
    is_seen_closed: bool = True
    hash_range: tuple[int, int]
    trimmed_to: int = 0  # the last sequence number that is gone

    @property
    def is_open(self) -> bool:
        return self.ends_at is None


@dataclass(frozen=True, slots=True)
class _Iterator:
    """A place in a shard. Its text says all of it, so the fake keeps nothing for those that are never used."""

    shard: str
    after: int  # sequence number
    given_at: datetime

    def text(self) -> str:
        return f"{self.shard} {self.after} {self.given_at.isoformat()}"

    @staticmethod
    def parse(text: object) -> "_Iterator":
        shard, after, given_at = str(text).split(" ")
        return _Iterator(shard, int(after), datetime.fromisoformat(given_at))


TRIM_STEP: Final = timedelta(seconds=1)


@dataclass(slots=True, kw_only=True)
class FakeShards:
    """A stream of shards at the level of its calls. `calls` counts what was asked, by operation."""

    clock: Clock
    service: ClassVar[str]
    keeps: timedelta = timedelta(hours=24)
    records_max: int = 1_000
    bytes_max: int = 1_000_000
    page_max: int = 100  # shards on one page of a listing
    calls: Counter[str] = field(default_factory=Counter[str])
    shards: dict[str, FakeShard] = field(default_factory=dict[str, FakeShard])
    # Shards that the next listings leave out, and for how many listings: a page read while another one changed.
    hidden: Counter[str] = field(default_factory=Counter[str])
    empty_pages: int = 0  # so many reads give nothing although there is something
    sequence: int = 0
    _errors: dict[str, deque[WorkerError]] = field(default_factory=dict[str, deque[WorkerError]])
    _refusals: dict[str, Callable[[], WorkerError] | None] = field(
        default_factory=dict[str, Callable[[], WorkerError] | None]
    )
    _recent: dict[str, deque[datetime]] = field(default_factory=dict[str, deque[datetime]])
    _shards_made: int = 0
    _trimmed_before: datetime | None = None

    # --- what tests do ------------------------------------------------------------------------------------------------

    def fail_next(self, operation: str, *errors: WorkerError) -> None:
        """Answer the next calls of this operation with these errors, one each."""
        self._errors.setdefault(operation, deque()).extend(errors)

    def refuse(self, operation: str, why: Callable[[], WorkerError] | None) -> None:
        """Answer every call of this operation with such an error, until there is none."""
        self._refusals[operation] = why

    def throttle_next(self, operation: str, times: int = 1) -> None:
        self.fail_next(operation, *(Throttled(f"{operation}: made by the test") for _ in range(times)))

    def open_shards(self) -> list[FakeShard]:
        return [shard for shard in self.shards.values() if shard.is_open]

    def shard_for(self, hash_key: int) -> FakeShard:
        """The open shard that a key belongs to: what was in a parent goes on in its children."""
        return next(one for one in self.open_shards() if one.hash_range[0] <= hash_key <= one.hash_range[1])

    def close(self, shard_id: str, *, is_seen: bool = True) -> FakeShard:
        shard = self.shards[shard_id]
        assert shard.is_open, f"{shard_id} is closed already"
        shard.ends_at, shard.closed_at, shard.is_seen_closed = self.next_sequence(), self.clock.now(), is_seen
        return shard

    def add_shard(self, *parents: str, hash_range: tuple[int, int] = EVERYTHING) -> FakeShard:
        self._shards_made += 1
        shard = FakeShard(
            id=self.shard_id(self._shards_made), parents=parents, starts_at=self.next_sequence(), hash_range=hash_range
        )
        self.shards[shard.id] = shard
        return shard

    def shard_id(self, number: int) -> str:
        return f"shardId-{number:012d}"

    def next_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    # --- what the calls share -----------------------------------------------------------------------------------------

    def begin(self, operation: str, parameters: Mapping[str, object]) -> None:
        """Count a call, forget what is too old, and fail if that was ordered, or the service knows no such request."""
        self.calls[operation] += 1
        problems = ParamValidator().validate(parameters, _request_shape(self.service, operation))
        assert not problems.has_errors(), f"{operation}: {problems.generate_report()}"
        self._trim()
        if errors := self._errors.get(operation):
            raise errors.popleft()
        if refusal := self._refusals.get(operation):
            raise refusal()

    def limit(self, what: str, per_second: int) -> None:
        """Refuse what is asked more often than the service allows, in any second."""
        now, recent = self.clock.now(), self._recent.setdefault(what, deque())
        while recent and recent[0] <= now - timedelta(seconds=1):
            recent.popleft()
        if len(recent) >= per_second:
            raise Throttled(f"{what}: more than {per_second} calls in a second")
        recent.append(now)

    def listed(self) -> list[FakeShard]:
        """The shards a listing shows now."""
        shown = [shard for shard in self.shards.values() if not self.hidden[shard.id]]
        self.hidden = Counter({shard: times - 1 for shard, times in self.hidden.items() if times > 1})
        return shown

    def children_of(self, shard_id: str) -> list[FakeShard]:
        return [shard for shard in self.listed() if shard_id in shard.parents]

    def shard(self, shard_id: object) -> FakeShard:
        if shard_id not in self.shards:
            raise NotFound(f"shard {shard_id} is not in the stream")
        return self.shards[str(shard_id)]

    def iterator(self, parameters: Mapping[str, object]) -> str:
        """Where to read from, for the kinds of iterators that both services have."""
        shard = self.shard(parameters["ShardId"])
        match parameters["ShardIteratorType"]:
            case "TRIM_HORIZON":
                return self.give(shard, shard.trimmed_to)
            case "LATEST":
                return self.give(shard, self.sequence)
            case "AFTER_SEQUENCE_NUMBER":
                return self.give(shard, self.named_sequence(parameters))
            case "AT_SEQUENCE_NUMBER":
                return self.give(shard, self.named_sequence(parameters) - 1)
            case other:
                raise Rejected(f"there is no iterator of type {other}")

    def named_sequence(self, parameters: Mapping[str, object]) -> int:
        """The number in a request; each service calls it by another name."""
        raise NotImplementedError

    def give(self, shard: FakeShard, after: int) -> str:
        return _Iterator(shard.id, after, self.clock.now()).text()

    def read(self, parameters: Mapping[str, object]) -> tuple[FakeShard, list[Entry], str | None]:
        """The shard, what comes next in it, and the next iterator: None at its end."""
        place = _Iterator.parse(parameters["ShardIterator"])
        if self.clock.now() - place.given_at > ITERATOR_LIVES:
            raise ExpiredIterator("the iterator was given more than 15 minutes ago")
        shard = self.shard(place.shard)
        if self.empty_pages:
            self.empty_pages -= 1
            return shard, [], self.give(shard, place.after)
        found = self._page(shard, place.after, int(str(parameters.get("Limit", self.records_max))))
        after = found[-1].sequence if found else place.after
        is_over = not shard.is_open and not self.next_after(shard, after)
        return shard, found, None if is_over else self.give(shard, after)

    def next_after(self, shard: FakeShard, after: int) -> Entry | None:
        start = bisect_right(shard.entries, after, key=_sequence)
        return shard.entries[start] if start < len(shard.entries) else None

    def refuse_trimmed(self, shard: FakeShard, after: int) -> None:
        if after < shard.trimmed_to:
            raise TrimmedData(f"{shard.id}: records after {after} are gone")

    def place_of(self, iterator: object) -> tuple[str, int]:
        place = _Iterator.parse(iterator)
        return place.shard, place.after

    def _page(self, shard: FakeShard, after: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        size = 0
        start = bisect_right(shard.entries, after, key=_sequence)
        for entry in islice(shard.entries, start, None):
            size += entry.size
            if found and (size > self.bytes_max or len(found) >= min(limit, self.records_max)):
                break
            found.append(entry)
        return found

    def _trim(self) -> None:
        oldest = self.clock.now() - self.keeps
        if self._trimmed_before is not None and abs(oldest - self._trimmed_before) < TRIM_STEP:
            return  # there may be hundreds of shards, and thousands of calls a second
        self._trimmed_before = oldest
        for shard in list(self.shards.values()):
            if gone := bisect_left(shard.entries, oldest, key=_at):
                shard.trimmed_to = shard.entries[gone - 1].sequence
                del shard.entries[:gone]
            if shard.closed_at is not None and shard.closed_at < oldest:
                del self.shards[shard.id]


def halves(hash_range: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    low, high = hash_range
    middle = (low + high) // 2
    return (low, middle), (middle + 1, high)


def page_of(shards: list[FakeShard], start: str | None, page_max: int) -> tuple[list[FakeShard], str | None]:
    """One page after the shard `start`, and the last shard on it if there are more."""
    rest = [shard for shard in shards if start is None or shard.id > start]
    page = rest[:page_max]
    return page, page[-1].id if len(rest) > page_max else None


@cache
def _request_shape(service: str, operation: str) -> Any:  # noqa: ANN401 - the library has no types for its descriptions
    session: Any = get_session()
    return session.get_service_model(service).operation_model(operation).input_shape


def _sequence(entry: Entry) -> int:
    return entry.sequence


def _at(entry: Entry) -> datetime:
    return entry.at
