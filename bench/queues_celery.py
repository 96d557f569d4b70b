"""A peer: celery on SQS, one process. Run by the peers' own Python; prints what `bench.queues_worker` prints."""

import importlib
import json
import sys
from contextlib import suppress
from time import perf_counter, process_time
from typing import Any, Final

WARM_UP: Final = 200
QUEUE: Final = "celery"


def consume(url: str, messages: int) -> dict[str, float]:
    celery: Any = importlib.import_module("celery").Celery  # not a dependency of ours
    shutdown: Any = importlib.import_module("celery.exceptions").WorkerShutdown
    app = celery("bench", broker=f"sqs://bench:bench@{url.removeprefix('http://')}")
    app.conf.update(
        broker_transport_options={
            "region": "eu-west-1",
            "is_secure": False,
            "polling_interval": 0.01,
            "wait_time_seconds": 1,
            "predefined_queues": {
                QUEUE: {
                    "url": f"{url}/000000000000/{QUEUE}",
                    "access_key_id": "bench",
                    "secret_access_key": "bench",
                }
            },
        },
        task_ignore_result=True,
        worker_prefetch_multiplier=10,
        worker_enable_remote_control=False,
        worker_redirect_stdouts=False,  # what is printed is our answer
        broker_connection_retry_on_startup=False,
    )
    handled = 0
    marks: list[tuple[float, float]] = []

    def handle(number: int) -> None:
        nonlocal handled
        handled += number >= 0
        if handled in (WARM_UP, WARM_UP + messages):
            marks.append((process_time(), perf_counter()))
        if handled == WARM_UP + messages:
            raise shutdown(0)

    task = app.task(name="handle")(handle)
    for number in range(WARM_UP + messages):
        task.delay(number)
    worker = app.Worker(pool="solo", loglevel="ERROR", without_gossip=True, without_mingle=True, without_heartbeat=True)
    with suppress(SystemExit):  # how a worker ends that is told to
        worker.start()
    (cpu, wall), (cpu_end, wall_end) = marks
    return {"per_core": messages / (cpu_end - cpu), "per_second": messages / (wall_end - wall)}


if __name__ == "__main__":
    result = consume(sys.argv[1], int(sys.argv[2]))
    print(json.dumps(result))
