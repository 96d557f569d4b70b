"""AWS sessions: one session of the AWS library per event loop, shared by all clients of that loop.

A session has locks and connections that belong to one loop. A worker has two loops, its own and its heartbeat's. If
both used one session, the heartbeat would fail as soon as both waited for new credentials.
"""

import asyncio
import threading
from functools import cache
from typing import Any, Final

from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from worker.net.aws_credentials import BackgroundCredentials

_sessions: Final[dict[asyncio.AbstractEventLoop, "LoopSession"]] = {}
_looking: Final = threading.Lock()  # loops run in different threads


def session_of_loop() -> AioSession:
    """Return the session of the running loop, and drop the sessions of closed loops."""
    loop = asyncio.get_running_loop()
    with _looking:
        for closed in [each for each in _sessions if each.is_closed()]:
            del _sessions[closed]
        if loop not in _sessions:
            _sessions[loop] = LoopSession()
        return _sessions[loop]


def sessions_held() -> int:
    """Return how many sessions are kept; right after `session_of_loop`, at most one per open loop."""
    return len(_sessions)


class LoopSession(AioSession):
    """Gives its clients credentials that are renewed in the background."""

    def __init__(self) -> None:
        super().__init__()
        self.register_component("data_loader", _descriptions())
        self._renewed = BackgroundCredentials(super().get_credentials, self._others)

    async def get_credentials(self) -> Any:  # noqa: ANN401 - the library accepts any object with these methods
        return self._renewed

    def _others(self) -> "list[BackgroundCredentials]":
        """Return the credentials of the other loops.

        A heartbeat that begins while no credentials are available then uses those of the worker.
        """
        with _looking:
            return [session._renewed for session in _sessions.values() if session is not self]  # noqa: SLF001


@cache
def _descriptions() -> object:
    # The loader belongs to no loop, and reading a description takes longer than creating a client.
    return create_loader()
