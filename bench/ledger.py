"""What a ledger of 50,000 records costs: seed, compare and save, on SQLite and on an emulator of DynamoDB.

The processor time is that of this process alone. The requests are those that DynamoDB gets: a read of 100 keys, and a
transaction of up to 100 rows. The time of an emulator says nothing about DynamoDB. RECORDS asks for another number.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from tests.support.aws.emulators import DYNAMODB_BACKENDS
from tests.support.fakes.remote_store import FaultyTables
from worker.core.ledger.hold import LedgerHolder, LedgerRecord
from worker.operations.record_ledgers import RecordLedgers
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Key, Row, TableName, Tables, Write

RECORDS: Final = int(os.environ.get("RECORDS", "50000"))
CHUNK: Final = 2_000
RUN: Final = LedgerHolder("bench", 1)

T = TypeVar("T")


class CountedTables(FaultyTables):
    """Counts the requests that DynamoDB would get."""

    def __init__(self, tables: Tables) -> None:
        super().__init__(tables)
        self.requests: Counter[str] = Counter()

    async def get_many(self, table: TableName, keys: Sequence[Key]) -> dict[Key, Row]:
        self.requests["reads"] += -(-len(keys) // 100)
        return await super().get_many(table, keys)

    async def commit(self, *writes: Write) -> None:
        self.requests["transactions"] += 1
        self.requests["rows"] += len(writes)
        await super().commit(*writes)


def main() -> None:
    asyncio.run(_all())


async def _all() -> None:
    clock = SystemClock()
    print(f"{'store':<20}{'step':<28}{'records':>9}{'cpu s':>8}{'wall s':>8}  requests")
    with tempfile.TemporaryDirectory() as folder:
        tables = SqliteTables(Path(folder) / "bench.db", clock)
        await tables.start()
        await _measure("sqlite", tables, RECORDS)
        await tables.stop()
    name = "dynamodb-ministack"
    async with DYNAMODB_BACKENDS[name](clock) as tables:
        await _measure(name, tables, min(RECORDS, 5_000))


async def _measure(store: str, tables: Tables, count: int) -> None:
    recorded = CountedTables(tables)
    ledgers = RecordLedgers(recorded, SystemClock())
    records = [LedgerRecord(f"bill-{number:06d}", f"{number:032x}") for number in range(count)]
    some = [LedgerRecord(each.id, "new") for each in records[:100]]
    await ledgers.take("bench", RUN)
    await _step(store, "seed", count, ledgers.seed("bench", records), recorded)
    await _step(store, "diff, nothing changed", count, _diff(ledgers, records), recorded)
    await _step(store, "commit of a checkpoint", len(some), ledgers.commit("bench", RUN, some), recorded)
    await _step(store, "commit, nothing changed", count, ledgers.commit("bench", RUN, records[100:]), recorded)


async def _diff(ledgers: RecordLedgers, records: list[LedgerRecord]) -> None:
    for begin in range(0, len(records), CHUNK):
        await ledgers.diff("bench", records[begin : begin + CHUNK])


async def _step(store: str, step: str, count: int, work: Awaitable[T], recorded: CountedTables) -> None:
    recorded.requests.clear()
    cpu, wall = time.process_time(), time.perf_counter()
    await work
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    requests = ", ".join(f"{number:,} {name}" for name, number in recorded.requests.items())
    print(f"{store:<20}{step:<28}{count:>9,}{cpu:>8.2f}{wall:>8.2f}  {requests}", flush=True)
