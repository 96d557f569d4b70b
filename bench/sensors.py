"""What a sensor over HTTP costs, beside `interlock sensor put` and a bare INSERT into SQLite; then a burst of 10,000.

All write to files of one disk, one sensor per commit unless it says otherwise, in one run. A bare INSERT is the floor:
a row of the same size, in a table with the same key, with the settings of SQLite that the store has. The burst goes to
a worker that serves the API: each of 10,000 sensors starts a run of its own, whose job is an HTTP request to a server
that counts them.
"""

import asyncio
import hashlib
import json
import os
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

import httpx

ROOT: Final = Path(__file__).parents[1]
TOKEN: Final = "bench-token"
COMMANDS: Final = 10
SINGLE: Final = 1_000
BATCHES: Final = 20
BATCH: Final = 500
BURST: Final = int(os.environ.get("BURST", "10000"))
PIPELINES: Final = 50
BURST_S: Final = float(os.environ.get("BURST_S", "900"))
INTERLOCK: Final = (sys.executable, "-c", "from worker.cli.main import main; main()")
PIPELINE: Final = """
pipeline: {{id: burst-{number:02d}, owner: bench}}
schedule:
  trigger: {{key: landed, check: exists}}
validation:
  rules: [{{key: landed, check: gt, field: rows, value: 0}}]
job:
  type: http
  config: {{url: "http://127.0.0.1:{port}/{number}/${{DATE}}", method: POST}}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        _command(here, "store", "init")
        rows = {"bare INSERT": _inserts(here), "interlock sensor put": _puts(here)}
        with _served(here, "web") as server:
            rows["POST /sensors/P/K, 1 connection"] = asyncio.run(_posts(server, connections=1))
            rows["POST /sensors/P/K, 16 connections"] = asyncio.run(_posts(server, connections=16))
            rows[f"POST /sensors, {BATCH} in one request"] = asyncio.run(_batches(server))
    print(f"{'one sensor by':<40}{'per s':>10}{'CPU ms':>10}{'ratio':>8}")
    floor = rows["bare INSERT"][1]
    for name, (rate, cpu_ms) in rows.items():
        print(f"{name:<40}{rate:>10.0f}{cpu_ms:>10.3f}{cpu_ms / floor:>8.1f}")
    with tempfile.TemporaryDirectory() as folder:
        _burst(Path(folder))


# --- one sensor -------------------------------------------------------------------------------------------------------


def _inserts(here: Path) -> tuple[float, float]:
    database = sqlite3.connect(here / "bare.db", isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=FULL")
    database.execute("CREATE TABLE rows (pk TEXT, sk TEXT, row TEXT, PRIMARY KEY (pk, sk)) WITHOUT ROWID")
    began, cpu = time.perf_counter(), time.process_time()
    for number in range(SINGLE):
        database.execute("INSERT INTO rows VALUES ('PIPELINE#orders', ?, '{\"rows\": 1}')", (f"SENSOR#k-{number}",))
    took, used = time.perf_counter() - began, time.process_time() - cpu
    database.close()
    return SINGLE / took, used * 1000 / SINGLE


def _puts(here: Path) -> tuple[float, float]:
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for number in range(COMMANDS):
        _command(here, "sensor", "put", "orders", f"c-{number}", "rows=1")
    after, took = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - began
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return COMMANDS / took, used * 1000 / COMMANDS


async def _posts(server: "_Server", *, connections: int) -> tuple[float, float]:
    left = iter(range(SINGLE))

    async def write(client: httpx.AsyncClient) -> None:
        for number in left:
            answer = await client.post(f"/api/v1/sensors/orders/h-{connections}-{number}", json={"rows": 1})
            answer.raise_for_status()

    async with _client(server) as client:
        began, cpu = time.perf_counter(), server.cpu_s()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(connections):
                tasks.create_task(write(client))
        return SINGLE / (time.perf_counter() - began), (server.cpu_s() - cpu) * 1000 / SINGLE


async def _batches(server: "_Server") -> tuple[float, float]:
    async with _client(server) as client:
        began, cpu = time.perf_counter(), server.cpu_s()
        for number in range(BATCHES):
            batch = [{"pipeline": "orders", "key": f"b-{number}-{each}", "data": {"rows": 1}} for each in range(BATCH)]
            (await client.post("/api/v1/sensors", json=batch, timeout=60)).raise_for_status()
        count = BATCHES * BATCH
        return count / (time.perf_counter() - began), (server.cpu_s() - cpu) * 1000 / count


# --- the burst --------------------------------------------------------------------------------------------------------


def _burst(here: Path) -> None:
    with _jobs() as (port, started):
        for number in range(PIPELINES):
            (here / f"burst-{number:02d}.yaml").write_text(PIPELINE.format(number=number, port=port))
        _command(here, "store", "init")
        _command(here, "pipelines", "push", str(here), "--yes")
        with _served(here, "run", INTERLOCK_HTTP_ALLOW="127.0.0.1", INTERLOCK_TARGET_RATES="http=10000") as server:
            _wait_for_feed(here)
            began, cpu = time.perf_counter(), server.cpu_s()
            asyncio.run(_send(server))
            accepted_s = time.perf_counter() - began
            while len(started) < BURST and time.perf_counter() - began < BURST_S:
                time.sleep(1)
            took_s = time.perf_counter() - began
            time.sleep(5)  # whatever starts twice does so now
            used_s = server.cpu_s() - cpu
    twice = sum(count > 1 for count in started.values())
    print(f"burst of {BURST}: accepted in {accepted_s:.1f} s, all started after {took_s:.1f} s, {used_s:.0f} s of CPU")
    print(f"{len(started)} of {BURST} runs started, {BURST - len(started)} lost, {twice} started twice")


def _wait_for_feed(here: Path) -> None:
    """Wait until the worker reads changes: on a new store it starts with what is written from then on."""
    words = [*INTERLOCK, "leases", "--json"]
    for _ in range(60):
        found = subprocess.run(words, cwd=here, env=_environment(), capture_output=True, check=True).stdout
        records: list[dict[str, Any]] = [json.loads(line) for line in found.splitlines()]
        if any(each.get("stream") == "feed.control" and each.get("holder") for each in records):
            return
        time.sleep(1)
    raise RuntimeError("no worker reads the changes of the store")


async def _send(server: "_Server") -> None:
    today = date.today()  # noqa: DTZ011  of this machine, as the worker's periods are near it
    sensors = [
        {
            "pipeline": f"burst-{number % PIPELINES:02d}",
            "key": "landed",
            "period": str(today - timedelta(days=number // PIPELINES)),
            "data": {"rows": 1},
        }
        for number in range(BURST)
    ]
    batches = iter([sensors[begin : begin + 100] for begin in range(0, BURST, 100)])

    async def send(client: httpx.AsyncClient) -> None:
        for batch in batches:
            (await client.post("/api/v1/sensors", json=batch, timeout=60)).raise_for_status()

    async with _client(server) as client, asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(send(client))


@contextmanager
def _jobs() -> Generator[tuple[int, Counter[str]]]:
    """A server whose every request is a job that has succeeded; it counts the starts of each run."""
    started: Counter[str] = Counter()

    class Job(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            started[self.path] += 1
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  its base class names it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Job)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, started
    finally:
        server.shutdown()


# --- the server -------------------------------------------------------------------------------------------------------


class _Server:
    def __init__(self, process: "subprocess.Popen[bytes]", url: str) -> None:
        self.url, self._stat = url, Path(f"/proc/{process.pid}/stat")

    def cpu_s(self) -> float:
        user, system = self._stat.read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _served(here: Path, command: str, **more: str) -> Generator[_Server]:
    log = here / "served.log"
    token = f"bench:operator:{hashlib.sha256(TOKEN.encode()).hexdigest()}"
    environment = {**_environment(), "INTERLOCK_WEB": "127.0.0.1:0", "INTERLOCK_WEB_TOKENS": token, **more}
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*INTERLOCK, command], cwd=here, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )
    try:
        yield _Server(process, _url(process, log))
    finally:
        process.terminate()
        process.wait(60)


def _url(process: "subprocess.Popen[bytes]", log: Path) -> str:
    for _ in range(600):
        for line in log.read_text().splitlines():
            if (found := re.search(r'"web.served".*', line)) and line.startswith("{"):
                said: Mapping[str, Any] = json.loads(line)
                return f"http://127.0.0.1:{said['port']}" if found else ""
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start:\n{log.read_text()}")


def _client(server: _Server) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30)


def _command(here: Path, *words: str) -> None:
    subprocess.run([*INTERLOCK, *words], cwd=here, env=_environment(), capture_output=True, check=True)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    return {**kept, "PYTHONPATH": str(ROOT), "INTERLOCK_STORE": "sqlite:///interlock.db"}


if __name__ == "__main__":
    main()
