"""Resolver: looks up the addresses of job targets on its own threads.

A name server that does not answer blocks a thread for many seconds, and the loop's shared pool has few threads. Lookups
for one target must delay neither the store's lookups nor those of other targets. So each name uses one thread at a
time, no matter how many requests wait for it.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

import aiohttp

# The number of names looked up at once. A lookup that hangs uses one slot: only when all slots hang do other names
# wait.
NAMES_MAX: Final = 256

Found: TypeAlias = Sequence[tuple[Any, ...]]
LookUp: TypeAlias = Callable[..., Found]  # the signature of `socket.getaddrinfo`


class OwnThreadsResolver(aiohttp.ThreadedResolver):
    """Resolves names like the library's resolver, but without the loop's thread pool."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo, *, names_max: int = NAMES_MAX) -> None:
        self._threads = _Threads(look_up, names_max)
        super().__init__(cast("asyncio.AbstractEventLoop", self._threads))

    async def close(self) -> None:
        self._threads.close()
        await super().close()


class _Threads:
    """Implements the part of an event loop that the library's resolver uses.

    A thread that hangs blocks neither a request nor the end of the process.
    """

    def __init__(self, look_up: LookUp, names_max: int) -> None:
        self._look_up, self._names_max = look_up, names_max
        self._under_way: dict[Hashable, asyncio.Future[Any]] = {}
        self._has_room = asyncio.Event()

    async def getaddrinfo(self, host: str, port: int, **further: int) -> Found:
        asked = (host, port, *sorted(further.items()))
        return await self._answer(asked, partial(self._look_up, host, port, **further))

    async def getnameinfo(self, address: tuple[Any, ...], flags: int = 0) -> tuple[str, str]:
        return await self._answer((address, flags), partial(socket.getnameinfo, address, flags))

    def close(self) -> None:
        for answer in self._under_way.values():
            _fail(answer, OSError("names are not looked up any more: the worker ends"))

    async def _answer(self, asked: Hashable, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - the library's signature
        """Wait for a lookup that is under way, or start it. Cancelling one waiter does not affect the others."""
        while (answer := self._under_way.get(asked)) is None:
            if len(self._under_way) < self._names_max:
                answer = self._begin(asked, ask)
                break
            self._has_room.clear()
            await self._has_room.wait()
        return await asyncio.shield(answer)

    def _begin(self, asked: Hashable, ask: Callable[[], Any]) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        answer = self._under_way[asked] = loop.create_future()
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # there may be no waiter left

        def serve() -> None:
            try:
                settle = partial(_succeed, answer, ask())
            except Exception as error:  # noqa: BLE001  every error goes to the waiters, in another thread
                settle = partial(_fail, answer, error)
            with suppress(RuntimeError):  # the loop is closed, so no task waits
                loop.call_soon_threadsafe(self._end, asked, settle)

        try:
            threading.Thread(target=serve, name="resolver", daemon=True).start()
        except RuntimeError as error:  # there are no threads left; a retry may find some
            self._end(asked, partial(_fail, answer, OSError(str(error))))
        return answer

    def _end(self, asked: Hashable, settle: Callable[[], None]) -> None:
        del self._under_way[asked]
        self._has_room.set()
        settle()


def _succeed(answer: "asyncio.Future[Any]", found: object) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
