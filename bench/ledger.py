"""What a ledger of 50,000 records costs: seed, compare and save, on SQLite and on an emulator of DynamoDB.

The processor time is that of this process alone; the time of an emulator says nothing about DynamoDB. The requests are
counted on the wire between this process and the emulator, with what each carried: keys of a read, rows of a
transaction; the proxy that counts them is part of this process and of its processor time. `sqlite3 alone` is the raw
limit: the same rows, read by key with the library. RECORDS asks for another number.
"""

import asyncio
import json
import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.support.aws.emulators import dynamodb_tables, ministack
from tests.support.aws.wire import WireProxy
from worker.core.ledger.hold import LedgerHolder, LedgerRecord
from worker.operations.record_ledgers import RecordLedgers
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables

RECORDS: Final = int(os.environ.get("RECORDS", "50000"))
CHUNK: Final = 2_000
RUN: Final = LedgerHolder("bench", 1)

T = TypeVar("T")


class Wire:
    """Counts the requests that the emulator answered, and the keys and rows in them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.most_keys = 0

    def saw(self, operation: str, asked: bytes, _answered: bytes) -> None:
        self.counts[operation] += 1
        body: dict[str, Any] = json.loads(asked or b"{}")
        if operation == "BatchGetItem":
            keys = sum(len(each["Keys"]) for each in body["RequestItems"].values())
            self.counts["keys read"] += keys
            self.most_keys = max(self.most_keys, keys)
        elif operation == "TransactWriteItems":
            self.counts["rows written"] += len(body["TransactItems"])

    def text(self) -> str:
        said = ", ".join(f"{number:,} {name}" for name, number in sorted(self.counts.items()))
        return f"{said}; at most {self.most_keys} keys in a read" if self.most_keys else said

    def clear(self) -> None:
        self.counts.clear()
        self.most_keys = 0


def main() -> None:
    asyncio.run(_all())


async def _all() -> None:
    clock = SystemClock()
    print(f"{'store':<20}{'step':<28}{'records':>9}{'cpu s':>8}{'wall s':>8}  on the wire")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.db"
        tables = SqliteTables(path, clock)
        await tables.start()
        await _measure("sqlite", tables, RECORDS, None)
        await tables.stop()
        _raw(path)
    wire = Wire()
    with WireProxy(ministack().port, observe=wire.saw) as proxy:
        async with dynamodb_tables(replace(ministack(), proxy=proxy), clock) as tables:
            await _measure("dynamodb-ministack", tables, min(RECORDS, 5_000), wire)


def _raw(path: Path) -> None:
    """Read the same rows by key with the library alone: what no program on SQLite can do without."""
    file = sqlite3.connect(path)
    ledger: dict[tuple[str, str], list[str]] = {}
    for table, pk, sk in file.execute("SELECT tbl, pk, sk FROM row WHERE pk LIKE 'LEDGER#%'"):
        ledger.setdefault((table, pk), []).append(sk)
    count = sum(len(keys) for keys in ledger.values())
    cpu, wall = time.process_time(), time.perf_counter()
    for (table, pk), keys in ledger.items():
        for begin in range(0, len(keys), 500):
            some = keys[begin : begin + 500]
            marks = ", ".join("?" * len(some))
            query = f"SELECT sk, body FROM row WHERE tbl = ? AND pk = ? AND sk IN ({marks})"
            file.execute(query, (table, pk, *some)).fetchall()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    file.close()
    print(f"{'sqlite3 alone':<20}{'read the same rows':<28}{count:>9,}{cpu:>8.2f}{wall:>8.2f}", flush=True)


async def _measure(store: str, tables: Tables, count: int, wire: Wire | None) -> None:
    ledgers = RecordLedgers(tables, SystemClock())
    records = [LedgerRecord(f"bill-{number:06d}", f"{number:032x}") for number in range(count)]
    some = [LedgerRecord(each.id, "new") for each in records[:100]]
    await ledgers.take("bench", RUN)
    await _step(store, "seed", count, ledgers.seed("bench", records), wire)
    await _step(store, "diff, nothing changed", count, _diff(ledgers, records), wire)
    await _step(store, "commit of a checkpoint", len(some), ledgers.commit("bench", RUN, some), wire)
    await _step(store, "commit, nothing changed", count, ledgers.commit("bench", RUN, records[100:]), wire)


async def _diff(ledgers: RecordLedgers, records: list[LedgerRecord]) -> None:
    for begin in range(0, len(records), CHUNK):
        await ledgers.diff("bench", records[begin : begin + CHUNK])


async def _step(store: str, step: str, count: int, work: Awaitable[T], wire: Wire | None) -> None:
    if wire is not None:
        wire.clear()
    cpu, wall = time.process_time(), time.perf_counter()
    await work
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    said = wire.text() if wire is not None else ""
    print(f"{store:<20}{step:<28}{count:>9,}{cpu:>8.2f}{wall:>8.2f}  {said}", flush=True)
