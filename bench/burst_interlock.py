"""The producer of facts for Interlock, a process of its own like the peer's: it writes sensors into the worker's store.

`deploy STORE` reads commands and makes a pipeline for each; `drive STORE` reads rounds of commands, one JSON line each,
writes the sensor of each, and answers with one line, once all of them are recorded as completed.
"""

import asyncio
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.runtime.clock import SystemClock
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

LOOK_AGAIN_S: Final = 0.3

# Nothing about polls: the default applies.
CONFIG: Final = """
pipeline: {{id: {name}}}
schedule:
  trigger: {{key: ready, check: exists}}
  evaluation: {{window: 12h, interval: 5m}}
validation:
  rules:
    - {{key: ready, check: exists}}
job:
  type: command
  config: {{command: {command}}}
"""


async def deploy_all(tables: SqliteTables, commands: dict[str, list[str]]) -> None:
    for name, command in commands.items():
        loaded = load_text(CONFIG.format(name=name, command=json.dumps(command)))
        assert loaded.pipeline, loaded
        await deploy(tables, loaded.pipeline, SystemClock())


async def drive(tables: SqliteTables, names: list[str]) -> dict[str, object]:
    """Write all sensors at once; return when each was written, and when the last run was recorded as completed."""
    today, written = Period(datetime.now(UTC).date()), dict[str, int]()

    async def fact(name: str) -> None:
        written[name] = time.time_ns()
        await Sensors(tables).put(PipelineId(name), f"ready#{today}", {"rows": 1})

    async with asyncio.TaskGroup() as producers:
        for name in names:
            producers.create_task(fact(name))
    keys = [RunKey(PipelineId(name), ScheduleId("stream"), today) for name in names]
    while True:
        found = (await Runs(tables).load_many(keys)).values()
        runs = [run for run in found if isinstance(run, Run) and run.state is State.COMPLETED]
        if len(runs) == len(keys):
            return {"written_ns": written, "recorded_s": max(run.since for run in runs).timestamp()}
        await asyncio.sleep(LOOK_AGAIN_S if len(names) > 1 else 0.02)


async def main(task: str, path: str) -> None:
    tables, loop = SqliteTables(Path(path), SystemClock()), asyncio.get_running_loop()
    await tables.start()
    try:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if task == "deploy":
                await deploy_all(tables, json.loads(line))
            else:
                print(json.dumps(await drive(tables, list(json.loads(line)))), flush=True)
    finally:
        await tables.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
