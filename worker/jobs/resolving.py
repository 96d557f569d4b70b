"""Finding the addresses of job targets, on threads of its own.

A name server that does not answer holds up a thread for many seconds, and the loop has only a few for everybody: the
names of a pipeline's target must not keep the store's from being found.
"""

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, cast

import aiohttp

THREADS_MAX: Final = 16


class OwnThreadsResolver(aiohttp.ThreadedResolver):
    """The library's resolver, without the threads of the loop."""

    def __init__(self) -> None:
        self._threads = _Threads()
        super().__init__(cast("asyncio.AbstractEventLoop", self._threads))

    async def close(self) -> None:
        self._threads.close()
        await super().close()


class _Threads:
    """As much of a loop as the library's resolver uses."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="resolver")

    async def getaddrinfo(self, host: str, port: int, **further: int) -> Sequence[tuple[Any, ...]]:
        ask = partial(socket.getaddrinfo, host, port, **further)
        return await asyncio.get_running_loop().run_in_executor(self._pool, ask)

    async def getnameinfo(self, address: tuple[Any, ...], flags: int = 0) -> tuple[str, str]:
        return await asyncio.get_running_loop().run_in_executor(self._pool, socket.getnameinfo, address, flags)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
