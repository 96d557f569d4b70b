"""Viewers of a console: each holds a stream and fetches a page or a part of one every second, as a tab does."""

import asyncio
import signal
import sys
from statistics import quantiles
from time import perf_counter
from typing import Final

import httpx

PATHS: Final = ("/frag/overview", "/pipelines", "/timeline", "/frag/pipelines?ids=pipeline-00001,pipeline-00002", "/")
EVERY_S: Final = 1.0


async def look(client: httpx.AsyncClient, number: int, waits: list[float]) -> None:
    await asyncio.sleep(number / 20)
    while True:
        begin = perf_counter()
        response = await client.get(PATHS[number % len(PATHS)])
        response.raise_for_status()
        waits.append(perf_counter() - begin)
        await asyncio.sleep(EVERY_S)


async def listen(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/api/v1/stream", timeout=None) as response:
        async for _ in response.aiter_bytes():
            pass


async def main() -> None:
    base, viewers = sys.argv[1], int(sys.argv[2])
    waits: list[float] = []
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    limits = httpx.Limits(max_connections=2 * viewers + 10)
    headers = {"Accept": "text/html", "Accept-Encoding": "gzip"}
    async with httpx.AsyncClient(base_url=base, timeout=60, limits=limits, headers=headers) as client:
        await client.get("/")
        tasks = [asyncio.create_task(look(client, number, waits)) for number in range(viewers)]
        tasks += [asyncio.create_task(listen(client)) for _ in range(viewers)]
        await asyncio.sleep(2)
        print("looking", flush=True)
        await stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    twentieths = quantiles(waits, n=20)
    print(f"{len(waits)} views, p50 {twentieths[9] * 1e3:.0f} ms, p95 {twentieths[18] * 1e3:.0f} ms", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
