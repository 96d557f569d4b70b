"""The production backend: four DynamoDB tables, conditional writes and transactions."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from worker.core.errors import ConfigError, RetryLater
from worker.net.aws_client import ClientSettings
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.store.dynamodb.calls import DynamoCalls, credentials_required
from worker.store.dynamodb.errors import ConditionFailed, InDoubt
from worker.store.dynamodb.expressions import Expressions, cursor_from_key, key_from_cursor
from worker.store.dynamodb.requests import CommitRequest, commit_request
from worker.store.dynamodb.schema import check_tables, ensure_tables
from worker.store.dynamodb.values import Item, decode_row, encode_key
from worker.store.limits import check_commit, check_key
from worker.store.proven_access import ProvenAccess
from worker.store.store_clock import Observe, StoreTime
from worker.store.table import (
    COMMIT_ID,
    Between,
    Index,
    Key,
    Page,
    Prefix,
    Row,
    StaleWrite,
    TableName,
    Write,
    is_visible,
)
from worker.store.url import TableNames

BATCH_MAX: Final = 100


def new_commit_id() -> str:
    return uuid4().hex  # 32 characters: also fits as a request token


class DynamoTables:
    """Implements `Tables` on DynamoDB. Its change feed is DynamoDB Streams.

    After a lost reply, the commit id or a transaction's token shows whether the commit was applied. If neither can (the
    row was changed since, or deleted), the result is `RetryLater`, never a guess. A write without a condition whose
    reply was lost is sent again, even if another writer came in between: use a condition where that matters.
    """

    def __init__(
        self,
        names: TableNames,
        clock: Clock,
        settings: ClientSettings | None = None,
        *,
        backoff: Backoff | None = None,
        new_commit_id: Callable[[], str] = new_commit_id,
        observe_time: Observe | None = None,
        are_checked: bool = False,
        proven: ProvenAccess | None = None,
    ) -> None:
        """Create a store that is not open; `are_checked` means this process checked the tables before.

        `proven` is what the process knows of its rights; all its clients of one store share it.
        """
        self.names, self.settings, self._are_checked = names, settings or ClientSettings(), are_checked
        self._clock, self._new_commit_id = clock, new_commit_id
        store_time = None if observe_time is None else StoreTime(clock, observe_time)
        self._calls = DynamoCalls(self.settings, clock, backoff or Backoff(), store_time=store_time, proven=proven)

    async def open(self) -> None:
        """Connect without checking the tables; `start` does both."""
        await self._calls.open()

    async def start(self) -> None:
        await self.open()
        if self._are_checked:
            return
        try:
            with credentials_required():
                await check_tables(self._calls, self.names)
        except BaseException:
            await self._calls.close()
            raise

    async def stop(self) -> None:
        await self._calls.close()

    async def ensure_tables(self) -> None:
        """Create what is missing of the tables, for local use and tests; may be called before `start`."""
        await self.open()
        await ensure_tables(self._calls, self.names, self._clock)

    async def stream_arn(self, table: TableName) -> str:
        """Return the ARN of a table's stream. Raises `ConfigError` if it has none, and `RetryLater`."""
        answer = await self._calls.patiently("DescribeTable", {"TableName": self.names[table]})
        arn = answer["Table"].get("LatestStreamArn")
        if not arn:
            raise ConfigError(f"DynamoDB table {self.names[table]} has no stream; make one with `interlock store init`")
        return str(arn)

    async def ping(self) -> None:
        # Reading a row that does not exist needs no permission beyond those the worker needs anyway.
        await self._read(TableName.CONTROL, Key("PING", "PING"))

    async def get(self, table: TableName, key: Key) -> Row | None:
        check_key(key)
        row = await self._read(table, key)
        return row if row is not None and is_visible(row, self._clock.now()) else None

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        for key in keys:
            check_key(key)
        wanted = list(dict.fromkeys(keys))
        rows: dict[Key, Row] = {}
        for start in range(0, len(wanted), BATCH_MAX):
            items = await self._read_batch(self.names[table], wanted[start : start + BATCH_MAX])
            rows |= {Key(str(row["PK"]), str(row["SK"])): row for row in self._visible(items)}
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
        if _is_empty_range(sk):
            return Page([], None)
        partition, sort = ("PK", "SK") if index is None else (index.partition, index.sort)
        expressions = Expressions()
        request: dict[str, Any] = {
            "TableName": self.names[table],
            "KeyConditionExpression": expressions.key_range(partition, pk, sort, sk),
            "ScanIndexForward": not reverse,
        }
        request |= expressions.placeholders()
        request |= {"ConsistentRead": True} if index is None else {"IndexName": index.name}
        if limit is not None:
            request["Limit"] = limit
        if cursor is not None:
            request["ExclusiveStartKey"] = key_from_cursor(cursor)
        answer = await self._calls.patiently("Query", request)
        return Page(self._visible(answer["Items"]), cursor_from_key(answer.get("LastEvaluatedKey")))

    async def commit(self, *writes: Write) -> None:
        check_commit(writes)
        request = commit_request(writes, self._new_commit_id(), self.names)
        patience = self._calls.patience()
        in_doubt = False
        while True:
            try:
                await self._calls.once(request.operation, request.parameters)
                return
            except ConditionFailed as refusal:
                if await self._is_ours(request, refusal):
                    return
                raise _refused(request, refusal, in_doubt=in_doubt) from refusal
            except RetryLater as trouble:
                in_doubt = in_doubt or isinstance(trouble, InDoubt)
                if in_doubt and await self._was_applied(request):
                    return
                await patience.wait(trouble)

    async def _is_ours(self, request: CommitRequest, refusal: ConditionFailed) -> bool:
        """Return whether the commit itself, sent and applied earlier, caused the refusal."""
        if request.writes[refusal.position] is request.signed:
            return refusal.row is not None and refusal.row.get(COMMIT_ID) == request.commit_id
        return await self._was_applied(request)

    async def _was_applied(self, request: CommitRequest) -> bool:
        """Return whether the row has the commit's id; False: not applied yet, or overwritten since."""
        if request.signed is None:
            return False
        row = await self._read(request.signed.table, request.signed.key)
        return row is not None and row.get(COMMIT_ID) == request.commit_id

    async def _read(self, table: TableName, key: Key) -> Row | None:
        request = {"TableName": self.names[table], "Key": encode_key(key), "ConsistentRead": True}
        answer = await self._calls.patiently("GetItem", request)
        item = answer.get("Item")
        return None if item is None else decode_row(item)

    async def _read_batch(self, name: str, keys: Sequence[Key]) -> list[Item]:
        wanted: list[Item] = [encode_key(key) for key in keys]
        found: list[Item] = []
        patience = self._calls.patience()
        while True:
            request = {"RequestItems": {name: {"Keys": wanted, "ConsistentRead": True}}}
            answer = await self._calls.patiently("BatchGetItem", request)
            found += answer["Responses"].get(name, [])
            left: Mapping[str, Any] = answer.get("UnprocessedKeys") or {}
            if not left:
                return found
            if len(left[name]["Keys"]) < len(wanted):
                patience.restart()
            wanted = left[name]["Keys"]
            await patience.wait(RetryLater(f"DynamoDB BatchGetItem left {len(wanted)} keys of {name} unread"))

    def _visible(self, items: Sequence[Item]) -> list[Row]:
        now = self._clock.now()
        return [row for row in map(decode_row, items) if is_visible(row, now)]


def _is_empty_range(sk: Prefix | Between | None) -> bool:
    # DynamoDB rejects bounds in the wrong order instead of returning nothing.
    match sk:
        case Between(str(low), str(high)):
            return high == "" or low > high
        case Between(int(low), int(high)):
            return low > high
        case _:
            return False


def _refused(request: CommitRequest, refusal: ConditionFailed, *, in_doubt: bool) -> Exception:
    """Return the error for a refused commit.

    Only a transaction's token proves that an earlier attempt of the same commit was not applied.
    """
    write = request.writes[refusal.position]
    if not in_doubt or request.is_transaction:
        return StaleWrite(write, refusal.row)
    return RetryLater(
        f"the outcome of {type(write).__name__} of {write.table} {write.key.pk} {write.key.sk} is not known: its reply "
        "was lost and the row has changed since; reload and decide again"
    )
