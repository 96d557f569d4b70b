"""Fan-out: one ring of news for all viewers. An item names what changed; a tab fetches what it shows.

Nothing here waits for a viewer: one that does not read fast enough is told to start over, and is closed.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Final

from worker.runtime.json_bytes import to_json
from worker.web.live.mirror import MirrorChanges
from worker.web.problems import ProblemType, WebProblem

RING: Final = 4_096
QUEUE: Final = 64
# What is announced while a page is being made is announced to it again: a page takes less time than this.
PAGE_S: Final = 3.0
REPEATED_MAX: Final = 16
STREAMS_MAX: Final = 500
STREAMS_PER_USER_MAX: Final = 20
NAMES_MAX: Final = 200
ITEM_BYTES_MAX: Final = 4_000


@dataclass(frozen=True, slots=True)
class NewsItem:
    """NewsItem names changed runs and pipelines. `many`: there are more, so everything may have changed."""

    id: str
    runs: Sequence[str]
    pipelines: Sequence[str]
    counts: Mapping[str, int]
    many: bool = False

    def as_json(self) -> dict[str, object]:
        return {
            "id": self.id,
            "runs": list(self.runs),
            "pipelines": list(self.pipelines),
            "counts": dict(self.counts),
            "many": self.many,
        }


class NewsStream:
    """One subscriber: a queue of items. None in it means: start over, and nothing more follows."""

    def __init__(self, user: str, queue: int) -> None:
        self.user = user
        self.items: asyncio.Queue[NewsItem | None] = asyncio.Queue(queue + 1)
        self._queue_max = queue
        self.is_over = False

    def offer(self, item: NewsItem) -> None:
        """Add an item; if the viewer is too slow, tell it to start over instead."""
        if self.is_over:
            return
        if self.items.qsize() >= self._queue_max:
            self.end()
        else:
            self.items.put_nowait(item)

    def end(self) -> None:
        self.is_over = True
        while not self.items.empty():
            self.items.get_nowait()
        self.items.put_nowait(None)


class Fanout:
    """Numbers news and hands them to every subscriber. `start` tells the numbers of two processes apart."""

    def __init__(
        self,
        start: str,
        *,
        ring: int = RING,
        queue: int = QUEUE,
        streams_max: int = STREAMS_MAX,
        per_user_max: int = STREAMS_PER_USER_MAX,
        now_s: Callable[[], float] = monotonic,
    ) -> None:
        self._start, self._queue = start, queue
        self._ring: deque[NewsItem] = deque(maxlen=ring)
        self._now_s = now_s
        self._times: deque[float] = deque(maxlen=REPEATED_MAX)  # when the last items were published
        self._number = 0
        self._oldest = 1  # the first number that a subscriber may continue after, plus one
        self._streams: set[NewsStream] = set()
        self._users: Counter[str] = Counter()
        self._limits = streams_max, per_user_max
        self._last_sent: tuple[NewsItem, bytes] | None = None

    @property
    def last_id(self) -> str:
        return f"{self._start}.{self._number}"

    @property
    def page_id(self) -> str:
        """Return the id that a page made now continues after; it may repeat some items, and misses none."""
        begun = self._now_s() - PAGE_S
        repeated = next((count for count, at in enumerate(reversed(self._times)) if at < begun), len(self._times))
        return f"{self._start}.{max(self._oldest - 1, self._number - repeated, 0)}"

    @property
    def streams(self) -> int:
        return len(self._streams)

    def publish(self, changes: MirrorChanges, counts: Mapping[str, int]) -> None:
        """Number one batch of changes and hand it to everyone."""
        self._number += 1
        runs, pipelines, is_cut = _bounded(changes.runs, changes.pipelines)
        item = NewsItem(self.last_id, runs, pipelines, counts, is_cut)
        self._ring.append(item)
        self._times.append(self._now_s())
        for stream in tuple(self._streams):
            stream.offer(item)

    def as_sent(self, item: NewsItem) -> bytes:
        """Return an item as streams send it; it is made once for all that send it now."""
        if self._last_sent is None or self._last_sent[0] is not item:
            body = b"event: news\nid: %b\ndata: %b\n\n" % (item.id.encode(), to_json(item.as_json()))
            self._last_sent = item, body
        return self._last_sent[1]

    def start_over(self) -> None:
        """Make everyone fetch everything again: the mirror was built again."""
        self._number += 1
        self._ring.clear()
        self._oldest = self._number + 1
        for stream in tuple(self._streams):
            stream.end()

    def since(self, after: str) -> tuple[list[NewsItem], bool]:
        """Return the items after an id; False: some are gone, so the caller must start over."""
        start, _, number = after.rpartition(".")
        if start != self._start or not (number.isascii() and number.isdecimal() and len(number) < 16):
            return [], False
        last = int(number)
        first = self._number - len(self._ring) + 1
        if last > self._number or last + 1 < max(first, self._oldest):
            return [], False
        missing = self._number - last
        return list(self._ring)[len(self._ring) - missing :] if missing else [], True

    def subscribe(self, user: str, after: str = "") -> NewsStream:
        """Return a stream that begins after an id. Raises `WebProblem` if there are too many."""
        streams_max, per_user_max = self._limits
        if len(self._streams) >= streams_max or self._users[user] >= per_user_max:
            raise WebProblem(ProblemType.TOO_MANY, "there are too many open streams; read /api/v1/news instead")
        stream = NewsStream(user, self._queue)
        if after:
            items, is_whole = self.since(after)
            if not is_whole or len(items) > self._queue:
                stream.end()
            for item in items:
                stream.offer(item)
        self._streams.add(stream)
        self._users[user] += 1
        return stream

    def unsubscribe(self, stream: NewsStream) -> None:
        if stream in self._streams:
            self._streams.discard(stream)
            self._users[stream.user] -= 1
            if not self._users[stream.user]:
                del self._users[stream.user]

    def close(self) -> None:
        """End every stream, because the server stops."""
        for stream in tuple(self._streams):
            stream.end()


def _bounded(runs: Iterable[str], pipelines: Iterable[str]) -> tuple[list[str], list[str], bool]:
    """Return as many names as one item holds, and whether some were left out."""
    left, is_cut = ITEM_BYTES_MAX - 200, False
    kept: tuple[list[str], list[str]] = [], []
    for names, into in zip((runs, pipelines), kept, strict=True):
        for name in islice(names, NAMES_MAX + 1):  # which ones is no matter: a cut item says that all may have changed
            size = len(to_json(name)) + 1
            if len(into) >= NAMES_MAX or size > left:
                is_cut = True
                break
            left -= size
            into.append(name)
        into.sort()
    return *kept, is_cut
