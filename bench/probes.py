"""1,000 waiting runs with three probes each: requests, writes and the lag of the event loop, counted.

The probes are asked every 10 seconds and answer after 20 ms. `PROBE_RUNS` and `PROBE_SECONDS` change the load.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from datetime import timedelta

from worker.app.components import build_engine
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.ids import PipelineId
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import JobType
from worker.core.model.probes import ProbeType
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.core.time.periods import Period
from worker.jobs.runner import Runner
from worker.probes.runner import ProbeRequest, RawResponse
from worker.runtime.clock import SystemClock
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import TableName, Write

EVERY_S = 10
CONFIG = f"""
pipeline: {{id: NAME}}
schedule: {{trigger: {{key: ready, check: exists}}, evaluation: {{window: 2h, interval: 30m}}}}
probes:
  - {{key: a, type: sql, config: {{engine: sqlite, path: "a-${{DATE}}", query: select 1}}, every: {EVERY_S}s, ttl: 10m}}
  - {{key: b, type: sql, config: {{engine: sqlite, path: "b-${{DATE}}", query: select 1}}, every: {EVERY_S}s, ttl: 10m}}
  - {{key: c, type: sql, config: {{engine: sqlite, path: "c-${{DATE}}", query: select 1}}, every: {EVERY_S}s, ttl: 10m}}
validation: {{rules: [{{key: a, check: passes}}, {{key: b, check: passes}}, {{key: c, check: passes}}]}}
job: {{type: command, config: {{command: "true"}}}}
"""


class Endpoint:
    """Answers after 20 ms that nothing is ready. The target is one that no rate slows down."""

    def __init__(self) -> None:
        self.requests = 0

    def target(self, config: Mapping[str, Json]) -> str:  # noqa: ARG002 - the port requires it
        return "command"

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:  # noqa: ARG002
        self.requests += 1
        await asyncio.sleep(0.02)
        return RawResponse(value={"status": "FAIL", "reason": "not yet"})


class CountedTables(SqliteTables):
    writes = 0

    async def commit(self, *writes: Write) -> None:
        CountedTables.writes += len(writes)
        await super().commit(*writes)


class Alone:
    session = SessionId("bench")

    def may_act(self) -> bool:
        return True

    def may_judge_time(self) -> bool:
        return True

    async def is_over(self, session: SessionId) -> bool:  # noqa: ARG002
        return False


async def measure(runs: int, seconds: float) -> None:
    clock, endpoint = SystemClock(), Endpoint()
    tables = CountedTables.in_memory(clock)
    await tables.start()
    runners: dict[JobType, Runner] = {}
    async with asyncio.TaskGroup() as tasks:
        began = clock.now()
        parts = build_engine(
            tables,
            runners,
            Alone(),
            clock,
            tasks,
            began_at=began - timedelta(days=1),
            probe_runners={ProbeType.SQL: endpoint},
        )
        service = tasks.create_task(parts.engine.run())
        day = str(Period(began.date()))
        for number in range(runs):
            name = f"p{number:04d}"
            loaded = load_text(CONFIG.replace("NAME", name)).pipeline
            assert loaded is not None
            await deploy(tables, loaded, clock)
            await Sensors(tables).put(PipelineId(name), f"ready#{day}", {"ok": True})
        position = 0
        while changes := await tables.changes(TableName.CONTROL, position):
            for change in changes:
                await parts.router.handle(change)
                position = change.position
        await asyncio.sleep(2 * EVERY_S)  # the first results are stored
        while changes := await tables.changes(TableName.CONTROL, position):
            position = changes[-1].position
        writes, requests, lags, cpu = CountedTables.writes, endpoint.requests, list[float](), time.process_time()
        ends_at = time.perf_counter() + seconds
        while time.perf_counter() < ends_at:
            before = time.perf_counter()
            await asyncio.sleep(0.01)
            lags.append(time.perf_counter() - before - 0.01)
        lags.sort()
        sent, allowed = endpoint.requests - requests, 3 * runs * (seconds / EVERY_S + 1)
        print(f"{runs} waiting runs with 3 probes each, every {EVERY_S} s, for {seconds:.0f} s")
        print(f"requests: {sent} ({sent / seconds:.0f} a second; at most {allowed:.0f} are allowed)")
        print(f"writes while no result changes: {CountedTables.writes - writes}")
        shown = [1000 * lags[len(lags) // 2], 1000 * lags[-(len(lags) // 100) - 1], 1000 * lags[-1]]
        print("lag of the loop: median {:.1f} ms, 99 % {:.1f} ms, most {:.1f} ms".format(*shown))
        print(f"processor time: {(time.process_time() - cpu) / seconds:.2f} of a core")
        service.cancel()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


def main() -> None:
    runs, seconds = int(os.environ.get("PROBE_RUNS", "1000")), float(os.environ.get("PROBE_SECONDS", "30"))
    asyncio.run(measure(runs, seconds))


if __name__ == "__main__":
    main()
