"""The shared store without AWS: four tables and their change feed on one Redis or Valkey server.

Every commit is one script, so it is applied whole or not at all, and no other client sees half of it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from worker.core.errors import RetryLater
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.runtime.ids import random_long_id
from worker.store.index_entries import project
from worker.store.limits import check_commit, check_key
from worker.store.redis.connections import Servers
from worker.store.redis.errors import ReplyLost, StoreGone
from worker.store.redis.keys import StoreKeys, feed_of
from worker.store.redis.lane import Command, Lane, PipelinedLane, call
from worker.store.redis.plan import EPOCH, VERSION, CommitPlan, Planner, microseconds, too_large
from worker.store.redis.ranges import lex_range, read_cursor, write_cursor
from worker.store.redis.scripts import script
from worker.store.redis.values import decode_row
from worker.store.store_clock import EVERY_S, Observe
from worker.store.table import (
    Between,
    Change,
    ChangeKind,
    Index,
    Key,
    Page,
    Prefix,
    Row,
    StaleWrite,
    TableName,
    Trimmed,
    Write,
    is_visible,
)

PAGE_ROWS_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 1_000_000
KEYS_PER_READ: Final = 100
FEED_BYTES_MAX: Final = 4_000_000
# How long a row stays after its `ttl`: the code that ends expired locks has a day to see them.
SWEEP_GRACE: Final = timedelta(days=1)
SWEEP_STEP: Final = 200
# When the server deletes a row by itself, which gives no change record: only if no worker has swept it for a day.
KEPT: Final = SWEEP_GRACE + timedelta(days=1)
FEED_AGE_MAX: Final = timedelta(hours=24)
SLICE_CHANGES_MAX: Final = 100_000
TRIM_STEP: Final = 10_000
APPLIED, REFUSED, TOO_LARGE = 0, 1, 2  # otherwise the store is gone


class RedisTables:
    """Implements `Tables` on Redis. Use an instance from one event loop.

    After a lost reply, the commit is sent again: the script recognises by the commit id that it was applied. If the row
    was changed since, or deleted, the result is `RetryLater`, never a guess. A write without a condition whose reply
    was lost may be applied twice if another writer came in between: use a condition where that matters.
    """

    def __init__(
        self,
        servers: Servers,
        clock: Clock,
        *,
        backoff: Backoff | None = None,
        new_commit_id: Callable[[], str] = random_long_id,
        observe_time: Observe | None = None,
        lanes: tuple[Lane, Lane] | None = None,
        expires_natively: bool = True,
    ) -> None:
        """Create a store that is not open; `lanes` are for writes and for reads."""
        self._servers, self._clock, self._backoff = servers, clock, backoff or Backoff()
        self._new_commit_id, self._observe = new_commit_id, observe_time
        self._keys: StoreKeys = servers.keys
        self._writes, self._reads = lanes or (
            PipelinedLane(servers, "store-writes", servers.place.wait),
            PipelinedLane(servers, "store-reads"),
        )
        self._kept_s = int(KEPT.total_seconds()) if expires_natively else -1
        self._heard_at = float("-inf")
        self._planner = Planner(self._keys, 1, self._kept_s)
        self.slices = 1

    @property
    def where(self) -> str:
        return self._servers.place.shown

    @property
    def servers(self) -> Servers:
        return self._servers

    async def start(self) -> None:
        try:
            await self._writes.start()
            await self._reads.start()
            await self._read_meta()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        await self._writes.stop()
        await self._reads.stop()

    async def _read_meta(self) -> None:
        """Read what all processes share. Raises `ConfigError` if there is no store, or another version."""
        version, slices = await self._reads.run(("HMGET", self._keys.meta, "version", "slices"))
        if version is None or version.decode() != VERSION:
            raise store_gone(self._servers, version)
        self.slices = int(slices)
        self._planner = Planner(self._keys, self.slices, self._kept_s)

    async def ping(self) -> None:
        await self._patiently(("PING",))

    async def get(self, table: TableName, key: Key) -> Row | None:
        check_key(key)
        body = await self._patiently(("GET", self._keys.row(table, key)))
        row = None if body is None else decode_row(body)
        return row if row is not None and is_visible(row, self._clock.now()) else None

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        for key in keys:
            check_key(key)
        wanted = list(dict.fromkeys(keys))
        rows: dict[Key, Row] = {}
        for start in range(0, len(wanted), KEYS_PER_READ):
            some = wanted[start : start + KEYS_PER_READ]
            bodies = await self._patiently(("MGET", *(self._keys.row(table, key) for key in some)))
            now = self._clock.now()
            found = ((key, decode_row(body)) for key, body in zip(some, bodies, strict=True) if body is not None)
            rows |= {key: row for key, row in found if is_visible(row, now)}
        return rows

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        within = lex_range(sk, index)
        if cursor is not None:
            within = within.after(read_cursor(cursor, index), reverse=reverse)
        rows_max = min(limit or PAGE_ROWS_MAX, PAGE_ROWS_MAX)
        arguments = (
            self._keys.tag,
            table.value,
            pk,
            within.low,
            within.high,
            int(reverse),
            rows_max,
            PAGE_BYTES_MAX,
            int(index is not None),
        )
        command = call(script("query"), [self._keys.partition(table, pk, index)], arguments)
        more, *found = await self._patiently(command)
        now = self._clock.now()
        rows = [decode_row(body) for body in found[1::2] if body is not None]
        shown = [row if index is None else project(index, row) for row in rows if is_visible(row, now)]
        return Page(shown, write_cursor(found[-2], index) if more and found else None)

    async def commit(self, *writes: Write) -> None:
        check_commit(writes)
        plan = self._planner.plan(writes, self._new_commit_id(), self._clock.now())
        patience = RetryLoop(self._backoff, self._clock)
        in_doubt = False
        while True:
            try:
                answer = await self._send(plan, is_repeat=in_doubt)
            except RetryLater as trouble:
                in_doubt = in_doubt or isinstance(trouble, ReplyLost)
                await patience.wait(trouble)
            else:
                self._judge(plan, answer, in_doubt=in_doubt)
                return

    async def _send(self, plan: CommitPlan, *, is_repeat: bool) -> Sequence[Any]:
        asks_time = self._observe is not None and self._clock.monotonic() - self._heard_at >= EVERY_S
        sent = self._clock.now()
        arguments = plan.arguments(asks_time=asks_time, is_repeat=is_repeat)
        answer = await self._writes.run(call(script("commit"), plan.keys, arguments))
        if len(answer) == 3 and answer[0] == APPLIED and self._observe is not None:
            self._heard_at = self._clock.monotonic()
            said = datetime.fromtimestamp(int(answer[1]), UTC)
            self._observe(said, sent=sent, received=self._clock.now())
        return answer

    def _judge(self, plan: CommitPlan, answer: Sequence[Any], *, in_doubt: bool) -> None:
        outcome = answer[0]
        if outcome == APPLIED:
            return
        if outcome == REFUSED:
            write, body = plan.writes[int(answer[1])], answer[2] if len(answer) > 2 else None
            if in_doubt:
                raise RetryLater(
                    f"the outcome of {type(write).__name__} of {write.table} {write.key.pk} {write.key.sk} is not "
                    "known: its reply was lost and a row has changed since; reload and decide again"
                )
            raise StaleWrite(write, decode_row(body) if body else None)
        if outcome == TOO_LARGE:
            raise too_large(plan.writes[int(answer[1])], int(answer[2]))
        raise store_gone(self._servers, answer[1] or None)

    # --- the change feed ----------------------------------------------------------------------------------------------

    async def changes(
        self, table: TableName, number: int, after: int, *, at_ms: int = -1, limit: int = 1000
    ) -> tuple[Sequence[Change], int]:
        """Return changes of one slice in order, and the slice's newest position. Raises `Trimmed`.

        `at_ms` is when the change at `after` was made: then a server that has lost it is noticed.
        """
        feed = feed_of(table, number)
        command = call(
            script("changes"), [self._keys.meta, self._keys.stream(feed)], [feed, after, at_ms, limit, FEED_BYTES_MAX]
        )
        answer = await self._patiently(command)
        if answer[0] != 0:
            raise Trimmed(after, int(answer[1]))
        ids, fields = answer[2::2], answer[3::2]
        return [_change(table, at, each) for at, each in zip(ids, fields, strict=True)], int(answer[1])

    async def newest(self, table: TableName, number: int) -> tuple[int, datetime | None]:
        """Return a slice's newest position, and when its change was made; None if that change is trimmed."""
        feed = feed_of(table, number)
        position, at_us = await self._patiently(
            call(script("newest"), [self._keys.meta, self._keys.stream(feed)], [feed])
        )
        return int(position), _instant(at_us) if at_us else None

    async def trim(
        self, table: TableName, number: int, lowest_checkpoint: int = 0, changes_max: int = SLICE_CHANGES_MAX
    ) -> int:
        """Delete changes up to a slice's checkpoint, over 24 h old or too many; return how many.

        A reader that asks for a deleted change later gets `Trimmed`. Call it again while it returns `TRIM_STEP`.
        """
        old_us = microseconds(self._clock.now() - FEED_AGE_MAX)
        arguments = [lowest_checkpoint, old_us, changes_max, TRIM_STEP]
        stream = self._keys.stream(feed_of(table, number))
        return int(await self._patiently(call(script("trim"), [stream], arguments)))

    # --- housekeeping -------------------------------------------------------------------------------------------------

    async def sweep(self, by: datetime, limit: int = SWEEP_STEP) -> int:
        """Delete up to `limit` rows that expired long before `by`; call it again while it returns that many."""
        now = self._clock.now()
        horizon = int((by - SWEEP_GRACE).timestamp())
        arguments = [self._keys.tag, horizon, limit, microseconds(now), self.slices]
        command = call(script("sweep"), [self._keys.meta, self._keys.expiries], arguments)
        return int(await self._patiently(command))

    async def _patiently(self, command: Command) -> Any:  # noqa: ANN401 - whatever the command returns
        """Send a request that may be repeated until it is answered. Raises `RetryLater` once retries run out."""
        patience = RetryLoop(self._backoff, self._clock)
        while True:
            try:
                return await self._reads.run(command)
            except RetryLater as trouble:
                await patience.wait(trouble)


def store_gone(servers: Servers, version: bytes | None) -> StoreGone:
    """Return the error for a server without the installation, or with one of another version."""
    where = f"{servers.where}"
    if version is None:
        return StoreGone(
            f"there is no store at {servers.place.shown}: it was never made, or the server has lost its data; if it "
            "is new, make it with `interlock store init`, otherwise restore the server's data before a worker starts"
        )
    return StoreGone(
        f"{where} has store version {version.decode(errors='replace')} and this program knows {VERSION}: a newer "
        "Interlock has made it; install that release, or use another prefix"
    )


def _change(table: TableName, entry_id: bytes, fields: Sequence[bytes]) -> Change:
    named: Mapping[bytes, bytes] = dict(zip(fields[::2], fields[1::2], strict=True))
    body = named[b"b"]
    return Change(
        position=int(entry_id.partition(b"-")[0]),
        table=table,
        key=Key(named[b"p"].decode(), named[b"s"].decode()),
        kind=ChangeKind(named[b"k"].decode()),
        image=decode_row(body) if body else None,
        at=_instant(named[b"a"]),
    )


def _instant(at_us: bytes) -> datetime:
    return EPOCH + timedelta(microseconds=int(at_us))
