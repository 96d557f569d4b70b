"""The peer: dbos doing the same durable steps on SQLite. Run by the peers' own Python; prints one JSON object.

A workflow of three steps is five durable writes (its beginning, each step, its end), as many as a run's life has:
sensor, wait, start, job id, completion. One after the other, which costs dbos the least processor time.
"""

import importlib
import json
import sys
from time import perf_counter, process_time
from typing import Any, Final

WARM_UP: Final = 20
LIVES: Final = 300


def main(folder: str) -> None:
    dbos: Any = importlib.import_module("dbos").DBOS  # not a dependency of ours, so no checker knows it
    dbos(
        config={
            "name": "peer",
            "system_database_url": f"sqlite:///{folder}/dbos.sqlite",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )

    @dbos.step()
    def start(number: int) -> str:
        return f"job-{number}"

    @dbos.step()
    def poll(_job: str) -> str:
        return "SUCCEEDED"

    @dbos.step()
    def complete(number: int, status: str) -> str:
        return f"{number} {status}"

    @dbos.workflow()
    def life(number: int) -> str:
        return complete(number, poll(start(number)))

    dbos.launch()
    for number in range(WARM_UP):
        life(number)
    cpu, wall = process_time(), perf_counter()
    for number in range(LIVES):
        life(number)
    cpu, wall = process_time() - cpu, perf_counter() - wall
    dbos.destroy()
    print(json.dumps({"lives_per_second": LIVES / wall, "cpu_ms_per_life": cpu / LIVES * 1e3}))


if __name__ == "__main__":
    main(sys.argv[1])
