"""The peer: async-kinesis reading the same shard. Run by the peers' own Python; prints one JSON object."""

import asyncio
import importlib
import json
import os
import sys
from time import process_time
from typing import Any, Final

STREAM: Final = "bench-changes"
RECORDS: Final = 1_000  # in one answer
WARM_UP: Final = 2 * RECORDS
MEASURED: Final = 20 * RECORDS
SEEN: Final[list[object]] = []


async def handle(change: dict[str, Any]) -> None:
    SEEN[:] = [change["dynamodb"]["NewImage"]["rows"]["N"]]


async def measure(url: str) -> dict[str, float]:
    kinesis: Any = importlib.import_module("kinesis")  # not a dependency of ours, so no checker knows it
    consumer: Any = kinesis.Consumer(
        stream_name=STREAM,
        endpoint_url=url,
        region_name="eu-west-1",
        record_limit=RECORDS,
        shard_fetch_rate=1_000,  # what the service allows is not what is measured
        max_queue_size=2 * RECORDS,
    )
    count, started = 0, 0.0
    async with consumer:
        while count < WARM_UP + MEASURED:
            async for change in consumer:
                await handle(change)
                count += 1
                if count == WARM_UP:
                    started = process_time()
                if count == WARM_UP + MEASURED:
                    break
        cpu_s = process_time() - started
    return {"records_per_cpu_s": MEASURED / cpu_s}


if __name__ == "__main__":
    os.environ.update({"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"})
    print(json.dumps(asyncio.run(measure(sys.argv[1]))))
