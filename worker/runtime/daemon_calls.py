"""Calls of libraries that block, each in a thread that a stopping process does not wait for."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(call: Callable[[], T], name: str) -> T:
    """Return what `call` returns. If the caller is cancelled, the call goes on and its result is dropped.

    `asyncio.to_thread` would keep the process from ending until the call has returned.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # pyright: ignore[reportArgumentType] - without an error it is a T

    def serve() -> None:
        try:
            done = partial(settle, call(), None)
        except Exception as error:  # noqa: BLE001  every error goes to the caller, in another thread
            done = partial(settle, None, error)
        with suppress(RuntimeError):  # the loop is closed, so nobody waits
            loop.call_soon_threadsafe(done)

    threading.Thread(target=serve, name=name, daemon=True).start()
    return await answer
