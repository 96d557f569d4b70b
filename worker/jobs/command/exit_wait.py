"""Waits for the end of processes that are not this process's children, without polling."""

import asyncio
import os
import resource
from dataclasses import dataclass
from typing import Final

from worker.jobs.command.processes import ProcessId, is_alive

_WAITS_MAX: Final = 4096
_DESCRIPTORS_PART: Final = 0.5  # of those that this process may have open


@dataclass(slots=True)
class ExitWaits:
    """Waits for processes. Each wait uses one descriptor, so their number has a limit."""

    count: int = 0

    async def wait(self, process: ProcessId) -> bool:
        """Return True soon after the process ended, or at once if it has; False if that cannot be noticed."""
        if not hasattr(os, "pidfd_open") or self.count >= _limit():
            return False
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        self.count += 1
        try:
            # The descriptor pins the process that has this id now; only then is it certain which one that is.
            if is_alive(process):
                await _readable(descriptor)
            return True
        finally:
            self.count -= 1
            os.close(descriptor)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_reader(descriptor, _settle, ended)
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)


def _settle(ended: "asyncio.Future[None]") -> None:
    if not ended.done():
        ended.set_result(None)


def _limit() -> float:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _WAITS_MAX if allowed == resource.RLIM_INFINITY else min(_WAITS_MAX, allowed * _DESCRIPTORS_PART)
