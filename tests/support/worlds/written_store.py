"""A store as a release leaves it when all of its workers die at once, written down for the releases after it.

`python -m tests.support.worlds.written_store FILE` writes one with the code at hand. Do it once for each release, in
its own checkout; `test_upgrades.py` has every later version take all of them over.
"""

import gzip
import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.clock.virtual_time import run
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.embedded_workers import Crew
from tests.support.worlds.engine import CONFIG, run_key
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.ids import PipelineId
from worker.core.run.state import FailureCategory, Pause
from worker.jobs.runner import Failed, Running, Succeeded
from worker.store.repos.pauses import Pauses
from worker.store.repos.requests import Requests, RerunRequest
from worker.store.repos.sensors import Sensors

DIED_S = 400  # after noon of the virtual day
DONE_DAY, RUNNING_DAY, WAITING_DAY = "2026-03-01", "2026-03-02", "2026-03-03"
RETRIED, DOUBTED, PAUSED, TIMED, WATCHED = "retried", "doubted", "paused", "timed", "watched"
SLA = "sla: {maxDuration: 15m}\n"


@dataclass
class WrittenStore:
    """WrittenStore is what is left: the rows, and the jobs that go on without a worker."""

    rows: str  # SQL
    jobs: dict[str, str] = field(default_factory=dict[str, str])  # by token: running, succeeded or failed

    def put_into(self, path: Path) -> None:
        """Make the store's file anew."""
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(self.rows)

    def runner(self) -> FakeRunner:
        """Return a target that has the jobs, and was asked for none."""
        known = {"running": Running(), "succeeded": Succeeded(), "failed": Failed(FailureCategory.TRANSIENT, "lost")}
        return FakeRunner(jobs={token: known[state] for token, state in self.jobs.items()})

    @staticmethod
    def read(path: Path) -> "WrittenStore":
        head, _, rows = gzip.decompress(path.read_bytes()).decode().partition("\n")
        return WrittenStore(rows=rows, jobs=json.loads(head.removeprefix("-- jobs: ")))

    def write(self, path: Path) -> None:
        text = f"-- jobs: {json.dumps(self.jobs)}\n{self.rows}"
        path.write_bytes(gzip.compress(text.encode(), mtime=0))


def config_of(name: str, more: str = "") -> str:
    return CONFIG.replace("{id: orders}", f"{{id: {name}}}") + more


def timed_config() -> str:
    return f"""
pipeline: {{id: {TIMED}}}
schedule: {{cron: "*/5 * * * *"}}
validation: {{rules: [{{key: count, check: exists}}]}}
job: {{type: command, config: {{command: "true"}}}}
"""


async def live_and_die() -> WrittenStore:
    """Let two workers work on runs of every kind, and kill both."""
    crew = Crew()
    for text in (
        CONFIG,
        *(config_of(name) for name in (RETRIED, DOUBTED, PAUSED)),
        config_of(WATCHED, SLA),
        timed_config(),
    ):
        pipeline = load_text(text).pipeline
        assert pipeline is not None
        await deploy(crew.store, pipeline, crew.clock)
    hosts = [crew.worker(name)[0] for name in ("a", "b")]
    await crew.clock.sleep(10)

    await crew.ready(DONE_DAY)
    await crew.clock.sleep(5)
    crew.runner.finish()
    await crew.clock.sleep(100)

    await is_ready(crew, RETRIED)
    await crew.clock.sleep(5)
    crew.runner.fail()
    await crew.clock.sleep(60)

    await Pauses(crew.store).put(PipelineId(PAUSED), Pause("maintenance", None))
    await is_ready(crew, PAUSED)
    await is_ready(crew, WATCHED)
    await crew.ready(RUNNING_DAY)
    await crew.sensor("ready", WAITING_DAY, status="done")
    await Sensors(crew.store).put(PipelineId(TIMED), "count", {"rows": 1})
    await crew.clock.sleep(DIED_S - 183)
    # The last things before the end: a start whose answer is lost, and a request that no worker saw.
    crew.runner.scripts.append(crew.runner.accept_and_lose_answer)
    await is_ready(crew, DOUBTED)
    await crew.clock.sleep(3)
    for host in hosts:
        host.crash()
    asked = RerunRequest(reason="manual", requested_at="2026-03-03T12:06:40Z", id="rerun-1", by="someone")
    await Requests(crew.store).ask_rerun(run_key(DONE_DAY), asked, None)
    return WrittenStore(rows=_dump(crew), jobs={token: _word(status) for token, status in crew.runner.jobs.items()})


async def is_ready(crew: Crew, pipeline: str) -> None:
    sensors = Sensors(crew.store)
    await sensors.put(PipelineId(pipeline), f"count#{WAITING_DAY}", {"rows": 120})
    await sensors.put(PipelineId(pipeline), f"ready#{WAITING_DAY}", {"status": "done"})


def _dump(crew: Crew) -> str:
    store: Any = crew.store
    connection: sqlite3.Connection = store._lanes.writes._connection
    # What makes a file this program's, and of which version, is in no table.
    marks = [
        f"PRAGMA {name} = {connection.execute(f'PRAGMA {name}').fetchone()[0]};"
        for name in ("application_id", "user_version")
    ]
    return "\n".join([*marks, *connection.iterdump()]) + "\n"


def _word(status: object) -> str:
    return type(status).__name__.lower()


if __name__ == "__main__":
    run(live_and_die()).write(Path(sys.argv[1]))
