"""Finding the addresses of job targets, on threads of its own.

A name server that does not answer holds up a thread for many seconds, and the loop has only a few for everybody: the
names of a pipeline's target must not keep the store's from being found, nor one target's those of the others. So a
name has one thread at a time, however many requests wait for it.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias, cast

import aiohttp

# Names that are looked up at once. Each that hangs holds one: only so many of them delay any other.
NAMES_MAX: Final = 256

Found: TypeAlias = Sequence[tuple[Any, ...]]
LookUp: TypeAlias = Callable[..., Found]  # as `socket.getaddrinfo`


class OwnThreadsResolver(aiohttp.ThreadedResolver):
    """The library's resolver, without the threads of the loop."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo, *, names_max: int = NAMES_MAX) -> None:
        self._threads = _Threads(look_up, names_max)
        super().__init__(cast("asyncio.AbstractEventLoop", self._threads))

    async def close(self) -> None:
        self._threads.close()
        await super().close()


class _Threads:
    """As much of a loop as the library's resolver uses. Threads that hang keep neither a request nor the process."""

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

    async def _answer(self, asked: Hashable, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 - as the library has it
        """Wait for what is under way already, or begin it. Who waits no longer takes nothing from the others."""
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
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody waits any more

        def serve() -> None:
            try:
                settle = partial(_succeed, answer, ask())
            except Exception as error:  # noqa: BLE001  whatever it is belongs to those who wait, in another thread
                settle = partial(_fail, answer, error)
            with suppress(RuntimeError):  # the loop is closed: nobody is left to be told
                loop.call_soon_threadsafe(self._end, asked, settle)

        try:
            threading.Thread(target=serve, name="resolver", daemon=True).start()
        except RuntimeError as error:  # there are no more threads; there may be some at the next try
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
