"""Our own CPU per operation on DynamoDB, beside the same request sent through aiobotocore alone.

The peer has what makes the library fast (no parameter validation, a User-Agent that is not rebuilt, its own parse of
answers) and gets its request ready-made; it reads nothing out of the answer. So the difference is what the store adds:
limits, expressions, encoding, decoding, the time limit of a call, and the care for lost replies. Both talk to a server
with fixed answers, in turns. Run it with `python -m bench.dynamodb`.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from time import process_time
from typing import Any, Final, TypeAlias

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession

from bench.fixedanswers import fixed_answers
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.runtime.json_bytes import from_json, to_json
from worker.store.dynamodb.requests import commit_request
from worker.store.dynamodb.tables import DynamoTables
from worker.store.dynamodb.values import encode_key, encode_row
from worker.store.table import Absent, Equals, Key, Prefix, Put, Row, TableName, Update

ROUNDS: Final = 12
CALLS_PER_ROUND: Final = 240
AT_ONCE: Final = 8
TARGET: Final = 1.15

CONTROL, EVENTS = TableName.CONTROL, TableName.EVENTS
NAMES: Final = {table: f"bench-{table}" for table in TableName}
KEY: Final = Key("PIPELINE#orders", "TRIGGER#cron#2026-03-03")
RUN: Final[Row] = {
    "PK": KEY.pk,
    "SK": KEY.sk,
    "status": "RUNNING",
    "state": "POLLING",
    "version": 7,
    "attempt": 2,
    "runId": "3f2c9a52b7f84f0f9b4a7f6a2f5f0c11",
    "owner": "session-7",
    "since": "2026-03-03T06:00:00Z",
    "timeoutAt": 1772532000,
    "startedOn": {"orders": "6b86b273ff34fce1", "quality": "d4735e3a265e16ee"},
    "cid": "0bd4f5a64de7461e83b7cc9db72e654f",
}
EVENT: Final[Row] = {
    "PK": KEY.pk,
    "SK": "1772532000000#JOB_COMPLETED#3f2c9a52",
    "eventType": "JOB_COMPLETED",
    "timestamp": 1772532000000,
    "message": "the job has ended",
    "ttl": 1780308000,
    "out": True,
}
UPDATE: Final = Update(table=CONTROL, key=KEY, set={"version": 8, "state": "COMPLETED"}, condition=Equals("version", 7))
TRANSACTION: Final = (UPDATE, Put(EVENTS, EVENT, Absent()))
ANSWERS: Final[Mapping[str, bytes]] = {
    "GetItem": to_json({"Item": encode_row(RUN)}),
    "UpdateItem": b"{}",
    "TransactWriteItems": b"{}",
    "Query": to_json({"Items": [encode_row(RUN)] * 20, "Count": 20, "ScannedCount": 20}),
}

Call: TypeAlias = Callable[[], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One operation: microseconds of CPU per call, best round of each."""

    operation: str
    ours_us: float
    peer_us: float

    @property
    def ratio(self) -> float:
        return self.ours_us / self.peer_us


class _PlainParser:
    async def parse(self, response: Mapping[str, Any], _shape: object) -> dict[str, Any]:
        return from_json(response["body"])


class _PlainParsers:
    def __init__(self) -> None:
        self._parser = _PlainParser()

    def create_parser(self, _protocol: str) -> _PlainParser:
        return self._parser


async def _peer_client(resources: AsyncExitStack, url: str) -> Any:  # noqa: ANN401 - the library's inside has no types
    config = AioConfig(parameter_validation=False, user_agent="peer", retries={"mode": "standard"})
    client: Any = await resources.enter_async_context(
        AioSession().create_client("dynamodb", region_name="eu-west-1", endpoint_url=url, config=config)
    )
    client._endpoint._response_parser_factory = _PlainParsers()  # noqa: SLF001 - as the store does
    return client


def _peer_calls(client: Any) -> Mapping[str, Call]:  # noqa: ANN401 - as above
    get = {"TableName": NAMES[CONTROL], "Key": encode_key(KEY), "ConsistentRead": True}
    update = commit_request([UPDATE], "c" * 32, NAMES).parameters
    transaction = commit_request(TRANSACTION, "c" * 32, NAMES).parameters
    query = {
        "TableName": NAMES[CONTROL],
        "KeyConditionExpression": "#0 = :0 AND begins_with(#1, :1)",
        "ExpressionAttributeNames": {"#0": "PK", "#1": "SK"},
        "ExpressionAttributeValues": {":0": {"S": KEY.pk}, ":1": {"S": "TRIGGER#"}},
        "ConsistentRead": True,
        "ScanIndexForward": True,
        "Limit": 20,
    }
    return {
        "get": lambda: client.get_item(**get),
        "conditional update": lambda: client.update_item(**update),
        "transaction of 2": lambda: client.transact_write_items(**transaction),
        "query of 20": lambda: client.query(**query),
    }


def _our_calls(tables: DynamoTables) -> Mapping[str, Call]:
    return {
        "get": lambda: tables.get(CONTROL, KEY),
        "conditional update": lambda: tables.commit(UPDATE),
        "transaction of 2": lambda: tables.commit(*TRANSACTION),
        "query of 20": lambda: tables.query(CONTROL, KEY.pk, sk=Prefix("TRIGGER#"), limit=20),
    }


async def _cpu_us(call: Call) -> float:
    """CPU of this process per call, with `AT_ONCE` under way at a time."""

    async def repeat() -> None:
        for _ in range(CALLS_PER_ROUND // AT_ONCE):
            await call()

    started = process_time()
    async with asyncio.TaskGroup() as callers:
        for _ in range(AT_ONCE):
            callers.create_task(repeat())
    return (process_time() - started) / CALLS_PER_ROUND * 1e6


async def _measure(url: str) -> list[Figure]:
    tables = DynamoTables(NAMES, SystemClock(), ClientSettings(region="eu-west-1", endpoint=url))
    async with AsyncExitStack() as resources:
        await tables.open()
        resources.push_async_callback(tables.stop)
        ours, peer = _our_calls(tables), _peer_calls(await _peer_client(resources, url))
        best = {name: [float("inf"), float("inf")] for name in ours}
        for _ in range(ROUNDS):
            for name, figures in best.items():
                figures[:] = min(figures[0], await _cpu_us(ours[name])), min(figures[1], await _cpu_us(peer[name]))
    return [Figure(operation=name, ours_us=mine, peer_us=theirs) for name, (mine, theirs) in best.items()]


def run() -> list[Figure]:
    """Measure all operations of both in turns, so that a busy machine slows both alike; keep each one's best round."""
    os.environ.update({"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"})
    with fixed_answers(ANSWERS) as url:
        return asyncio.run(_measure(url))


def main() -> None:
    print(f"{'operation':20}{'ours':>10}{'aiobotocore':>14}{'ratio':>8}   (target: at most {TARGET})")
    for figure in run():
        print(f"{figure.operation:20}{figure.ours_us:>7.0f} us{figure.peer_us:>11.0f} us{figure.ratio:>8.2f}")


if __name__ == "__main__":
    main()
