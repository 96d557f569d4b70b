"""Our queue consumer on a local server. Prints one JSON object: messages per second of processor time, and of time."""

import asyncio
import json
import sys
from time import perf_counter, process_time
from typing import Final

from consumers.delivery.retry import RetryPolicy
from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.queue import Message
from consumers.queues.sqs import AwsQueue, open_sqs
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.sqlite.tables import SqliteTables

WARM_UP: Final = 200


async def consume(url: str, messages: int) -> dict[str, float]:
    clock = SystemClock()
    handled = 0
    marks: list[tuple[float, float]] = []

    async def handle(message: Message) -> None:
        nonlocal handled
        json.loads(message.body)
        handled += 1
        if handled in (WARM_UP, WARM_UP + messages):
            marks.append((process_time(), perf_counter()))

    async with open_sqs(ClientSettings(region="eu-west-1", endpoint=url, read_s=30.0)) as client:
        queue = (await client.create_queue(QueueName="ours"))["QueueUrl"]
        for start in range(0, WARM_UP + messages, 10):
            entries = [{"Id": str(n), "MessageBody": json.dumps({"number": start + n})} for n in range(10)]
            await client.send_message_batch(QueueUrl=queue, Entries=entries)  # pyright: ignore[reportArgumentType] - plain dicts are what it takes
        consumer = QueueConsumer(
            name="bench",
            calls=AwsQueue(client, queue),
            handle=handle,
            tries=RetryPolicy(clock, SqliteTables.in_memory(clock).ping),
            clock=clock,
            pace=QueuePace(),
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(consumer.run())
            while consumer.counts.done < WARM_UP + messages:
                await clock.sleep(0.02)
            consumer.stop()
    (cpu, wall), (cpu_end, wall_end) = marks
    return {"per_core": messages / (cpu_end - cpu), "per_second": messages / (wall_end - wall)}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(consume(sys.argv[1], int(sys.argv[2])))))
