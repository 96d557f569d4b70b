"""One session of the AWS library for each event loop, which all clients of that loop share.

A session has locks and connections that belong to one loop. A worker has two loops, its own and its heartbeat's, and a
session that both used would fail the heartbeat as soon as both waited for new credentials.
"""

import asyncio
import threading
from functools import cache
from typing import Any, Final

from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from worker.net.aws_credentials import BackgroundCredentials

_sessions: Final[dict[asyncio.AbstractEventLoop, "LoopSession"]] = {}
_looking: Final = threading.Lock()  # loops run in threads of their own


def session_of_loop() -> AioSession:
    """Return the session of the running loop; those of loops that were closed are dropped."""
    loop = asyncio.get_running_loop()
    with _looking:
        for closed in [each for each in _sessions if each.is_closed()]:
            del _sessions[closed]
        if loop not in _sessions:
            _sessions[loop] = LoopSession()
        return _sessions[loop]


def sessions_held() -> int:
    """Return how many sessions are kept: at most one for each loop that is not closed, after the last was given."""
    return len(_sessions)


class LoopSession(AioSession):
    """Gives its clients credentials that are renewed beside their requests."""

    def __init__(self) -> None:
        super().__init__()
        self.register_component("data_loader", _descriptions())
        self._renewed = BackgroundCredentials(super().get_credentials, self._others)

    async def get_credentials(self) -> Any:  # noqa: ANN401 - the library uses whatever has the methods it calls
        return self._renewed

    def _others(self) -> "list[BackgroundCredentials]":
        """Those of the other loops: a heart that begins while no credentials are given out beats with the worker's."""
        with _looking:
            return [session._renewed for session in _sessions.values() if session is not self]  # noqa: SLF001


@cache
def _descriptions() -> object:
    # They belong to no loop, and reading one takes longer than making a client does.
    return create_loader()
