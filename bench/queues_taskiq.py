"""A peer: taskiq on SQS. Run by the peers' own Python; prints what `bench.queues_worker` prints."""

import asyncio
import importlib
import json
import sys
from time import perf_counter, process_time
from typing import Any, Final

WARM_UP: Final = 200


async def consume(url: str, messages: int) -> dict[str, float]:
    broker_class: Any = importlib.import_module("taskiq_aio_sqs").SQSBroker  # not a dependency of ours
    receiver_class: Any = importlib.import_module("taskiq.receiver").Receiver
    broker = broker_class(
        "taskiq",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",
        max_number_of_messages=10,
        wait_time_seconds=1,
    )
    handled = 0
    marks: list[tuple[float, float]] = []
    finished = asyncio.Event()

    async def handle(number: int) -> None:
        nonlocal handled
        handled += number >= 0
        if handled in (WARM_UP, WARM_UP + messages):
            marks.append((process_time(), perf_counter()))
        if handled == WARM_UP + messages:
            finished.set()

    task = broker.register_task(handle, task_name="handle")
    broker.is_worker_process = True
    await broker.startup()
    for number in range(WARM_UP + messages):
        await task.kiq(number)
    receiver = receiver_class(broker, max_async_tasks=100, run_startup=False)
    await receiver.listen(finished)
    await broker.shutdown()
    (cpu, wall), (cpu_end, wall_end) = marks
    return {"per_core": messages / (cpu_end - cpu), "per_second": messages / (wall_end - wall)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(consume(sys.argv[1], int(sys.argv[2])))))
