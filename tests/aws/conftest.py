"""A store behind a wire that breaks on order, and another writer on the same tables behind a sound one."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.support.aws.emulators import (
    Server,
    assert_nothing_was_scanned,
    ministack,
    new_names,
    use_test_credentials,
)
from tests.support.aws.wire import WireProxy
from worker.net.aws_client import ClientSettings
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.url import TableNames

ANSWER_S = 1.0  # long for an emulator, on a busy machine too; short for a test that waits it out
IMPATIENT = Backoff(attempts_max=4, first_s=0.001, longest_s=0.004, budget_s=10.0, jitter=lambda: 1.0)

Interruption = Callable[[], Awaitable[None]]


class InterruptedClock:
    """Real time; the first wait is when `interruption` happens, between two tries of the store under test."""

    def __init__(self) -> None:
        self._real = SystemClock()
        self.now, self.monotonic, self.call_later = self._real.now, self._real.monotonic, self._real.call_later
        self.interruption: Interruption | None = None

    async def sleep(self, seconds: float) -> None:
        interruption, self.interruption = self.interruption, None
        if interruption is not None:
            await interruption()
        await self._real.sleep(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rig:
    """`ours` is the store under test, behind `wire`; `other` is another writer, whose requests never break."""

    wire: WireProxy
    clock: InterruptedClock
    names: TableNames
    ours: DynamoTables
    other: DynamoTables


@asynccontextmanager
async def rig_on(server: Server) -> AsyncGenerator[Rig]:
    """Two writers on new tables of an emulator."""
    use_test_credentials()
    names, clock = new_names(), InterruptedClock()
    with WireProxy(server.port) as wire:
        ours = DynamoTables(names, clock, ClientSettings(endpoint=wire.url, read_s=ANSWER_S), backoff=IMPATIENT)
        other = DynamoTables(names, SystemClock(), ClientSettings(endpoint=server.proxy.url))
        await other.ensure_tables()
        await ours.start()
        yield Rig(wire=wire, clock=clock, names=names, ours=ours, other=other)
        await ours.stop()
        await other.stop()
    assert_nothing_was_scanned(wire)


# Making a client and four tables costs more than most tests: those of a module share them, and start from known rows.
@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_rig() -> AsyncIterator[Rig]:
    async with rig_on(ministack()) as rig:
        yield rig


@pytest.fixture
def rig(shared_rig: Rig) -> Rig:
    shared_rig.wire.mend()
    shared_rig.clock.interruption = None
    return shared_rig
