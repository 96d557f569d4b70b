"""How fast rows are committed and read, beside `sqlite3` itself running the same statements on a file of its own.

Both wait for the disk (`synchronous=FULL`). Raw commits follow one another in one thread, each a transaction of its
own with the row ready as bytes: nothing of ours is in it. Ours come from 32 callers at once, with everything a caller
gets: checks, encoding, conditions, commit ids. Run it with `python -m bench.sqlite`.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from worker.runtime.clock import SystemClock
from worker.store.row_codec import decode_row, encode
from worker.store.sqlite.file import connect
from worker.store.sqlite.statements import CHANGE_INSERT, ROW_FIND, ROW_GET, ROW_INSERT, ROW_REPLACE
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Equals, Key, TableName, Update, Value

CALLERS = 32
ROUNDS = 7
COMMITS_PER_ROUND = 640
READS_PER_ROUND = 3_200
FILLER: dict[str, Value] = {
    "state": "POLLING",
    "owner": "w-7f3a9c",
    "startedOn": {"orders": "0" * 40},
    "note": "x" * 250,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one operation took, by the clock on the wall and on the processor."""

    seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One operation beside raw `sqlite3`. `speed` over 1 means that ours does more of them in a second."""

    name: str
    raw_per_second: float
    ours_per_second: float
    speed: float
    raw_cpu_us: float
    ours_cpu_us: float


class Raw:
    """The same statements as ours, one transaction each."""

    def __init__(self, path: Path) -> None:
        self._connection = connect(path)
        for number in range(CALLERS):
            self._connection.execute(ROW_INSERT, ("control", f"PIPELINE#{number}", "ROW", self._body(number, 0), None))
        self._version = 0

    def close(self) -> None:
        self._connection.close()

    def commit(self) -> None:
        for _ in range(COMMITS_PER_ROUND // CALLERS):
            self._version += 1
            for number in range(CALLERS):
                self._commit(number)

    def read(self) -> None:
        for at in range(READS_PER_ROUND):
            [body] = self._connection.execute(ROW_GET, ("control", f"PIPELINE#{at % CALLERS}", "ROW")).fetchone()
            decode_row(body)

    def _commit(self, number: int) -> None:
        body, execute = self._body(number, self._version), self._connection.execute
        execute("BEGIN IMMEDIATE")
        [row, _] = execute(ROW_FIND, ("control", f"PIPELINE#{number}", "ROW")).fetchone()
        execute(ROW_REPLACE, (body, None, row))
        execute(CHANGE_INSERT, ("control", f"PIPELINE#{number}", "ROW", "MODIFY", body, 1_772_000_000_000_000))
        execute("COMMIT")

    def _body(self, number: int, version: int) -> bytes:
        return _BODIES[number] + b"%d}" % version


class Ours:
    def __init__(self, path: Path) -> None:
        self._tables = SqliteTables(path, SystemClock())
        self._version = 0

    async def start(self) -> None:
        await self._tables.start()
        for number in range(CALLERS):
            await self._tables.commit(Update(table=TableName.CONTROL, key=_key(number), set={**FILLER, "version": 0}))

    async def stop(self) -> None:
        await self._tables.stop()

    async def commit(self) -> None:
        rounds = COMMITS_PER_ROUND // CALLERS
        await _from_all_callers(lambda number: self._commit(number, rounds))
        self._version += rounds

    async def read(self) -> None:
        await _from_all_callers(self._read)

    async def read_alone(self) -> None:
        """One caller, so that no hand-over to the thread is shared."""
        for at in range(READS_PER_ROUND):
            await self._tables.get(TableName.CONTROL, _key(at % CALLERS))

    async def _commit(self, number: int, rounds: int) -> None:
        for version in range(self._version, self._version + rounds):
            await self._tables.commit(
                Update(
                    table=TableName.CONTROL,
                    key=_key(number),
                    set={"version": version + 1},
                    condition=Equals("version", version),
                )
            )

    async def _read(self, number: int) -> None:
        for _ in range(READS_PER_ROUND // CALLERS):
            await self._tables.get(TableName.CONTROL, _key(number))


def _key(number: int) -> Key:
    return Key(f"PIPELINE#{number}", "ROW")


_BODIES = [
    encode({**FILLER, "PK": f"PIPELINE#{number}", "SK": "ROW", "cid": "0" * 32})[:-1] + b',"version":'
    for number in range(CALLERS)
]


async def _from_all_callers(work: Callable[[int], Awaitable[None]]) -> None:
    async def call(number: int) -> None:
        await work(number)

    async with asyncio.TaskGroup() as callers:
        for number in range(CALLERS):
            callers.create_task(call(number))


def run() -> list[Row]:
    """Measure both in turn, round by round, so that a slow moment of the machine hits both."""
    return asyncio.run(_run())


async def _run() -> list[Row]:
    with TemporaryDirectory() as folder, closing(Raw(Path(folder) / "raw.db")) as raw:
        ours = Ours(Path(folder) / "ours.db")
        await ours.start()
        rows = [
            await _compare("commit", COMMITS_PER_ROUND, raw.commit, ours.commit),
            await _compare("get", READS_PER_ROUND, raw.read, ours.read),
            await _compare("get, alone", READS_PER_ROUND, raw.read, ours.read_alone),
        ]
        await ours.stop()
    return rows


async def _compare(name: str, count: int, raw: Callable[[], None], ours: Callable[[], Awaitable[None]]) -> Row:
    raw()
    await ours()  # a round to warm up
    raw_costs: list[Cost] = []
    our_costs: list[Cost] = []
    for _ in range(ROUNDS):
        with _measured(raw_costs):
            raw()
        with _measured(our_costs):
            await ours()
    raw_s, ours_s = (median(cost.seconds for cost in costs) / count for costs in (raw_costs, our_costs))
    raw_cpu, ours_cpu = (median(cost.cpu_seconds for cost in costs) / count for costs in (raw_costs, our_costs))
    return Row(
        name=name,
        raw_per_second=1 / raw_s,
        ours_per_second=1 / ours_s,
        speed=raw_s / ours_s,
        raw_cpu_us=raw_cpu * 1e6,
        ours_cpu_us=ours_cpu * 1e6,
    )


@contextmanager
def _measured(costs: list[Cost]) -> Generator[None]:
    wall, cpu = perf_counter(), process_time()
    yield
    costs.append(Cost(seconds=perf_counter() - wall, cpu_seconds=process_time() - cpu))


def main() -> None:
    print(f"sqlite3 {sqlite3.sqlite_version}, synchronous=FULL, {CALLERS} callers at once, median of {ROUNDS} rounds")
    print(f"{'operation':<10} {'raw/s':>10} {'ours/s':>10} {'speed':>8} {'raw CPU us':>11} {'our CPU us':>11}")
    for row in run():
        print(
            f"{row.name:<10} {row.raw_per_second:>10,.0f} {row.ours_per_second:>10,.0f} {row.speed:>7.0%} "
            f"{row.raw_cpu_us:>11.0f} {row.ours_cpu_us:>11.0f}"
        )


if __name__ == "__main__":
    main()
