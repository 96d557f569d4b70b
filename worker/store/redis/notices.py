"""Notices: the server says which slices have new changes, so that readers need not poll often."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from redis.exceptions import RedisError

from worker.core.errors import WorkerError
from worker.runtime.clock import Clock
from worker.store.redis.connections import Servers, ask, read
from worker.store.redis.errors import CONNECTION_ERRORS
from worker.store.table import TableName

SILENT_S: Final = 30.0  # then the connection may be dead: every session writes more often than this
AGAIN_S: Final = 1.0

# Gets a table and the number of its slice that changed; None for all of its slices.
Wake = Callable[[TableName, int | None], None]


class ChangeNotices:
    """Listens on the channel on which every commit names its slices.

    A lost notice is harmless: readers also poll.
    """

    def __init__(self, servers: Servers, clock: Clock) -> None:
        self._servers, self._clock = servers, clock

    async def listen(self, wake: Wake) -> None:
        """Listen until cancelled; call `wake` for each slice that changed, and for all after connecting."""
        while True:
            try:
                await self._listen_once(wake)
            except (*CONNECTION_ERRORS, RedisError, WorkerError):
                await self._clock.sleep(AGAIN_S)

    async def _listen_once(self, wake: Wake) -> None:
        connection = await self._servers.connect(for_scripts=False)
        try:
            await ask(connection, "SUBSCRIBE", self._servers.keys.changed)
            for table in TableName:
                wake(table, None)  # what changed while nobody listened
            while True:
                async with asyncio.timeout(SILENT_S):
                    message: Any = await read(connection)
                for table, number in _slices(message):
                    wake(table, number)
        finally:
            await connection.disconnect(nowait=True)


def _slices(message: Any) -> list[tuple[TableName, int]]:  # noqa: ANN401 - as the library has it
    """Return the slices that a message names, such as `control.3 events.0`; what is no slice is left out."""
    text = message[2].decode(errors="replace") if len(message) == 3 and isinstance(message[2], bytes) else ""
    known = {table.value: table for table in TableName}
    named = {each.partition(".")[::2] for each in text.split()}
    return [(known[name], int(number)) for name, number in named if name in known and number.isdecimal()]
