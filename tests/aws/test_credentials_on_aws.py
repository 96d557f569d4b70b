"""A worker's place in its group while whoever gives out its credentials is slow or away.

The heart beats in a loop of its own, as in production; the work asks the same store from the other.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from tests.support.aws.emulators import dynamodb_tables, ministack
from tests.support.fakes.credential_server import FRESH, CredentialEndpoint, a_credential_endpoint
from worker.core.errors import RetryLater
from worker.core.membership.liveness import Timing
from worker.membership.heartbeat_threads import ThreadBeater
from worker.membership.notices import Notice, SessionBegan, SessionOver
from worker.membership.sessions import GroupSettings, Member, Membership, session_ids
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables

pytestmark = pytest.mark.xdist_group("aws")

TIMING = Timing(beat_s=1.0, fence_s=4.0, kill_s=5.0, look_s=1.0)
AT_ONCE = 5
WITHIN_S = 30.0


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[CredentialEndpoint]:
    with a_credential_endpoint(monkeypatch) as found:
        yield found


@pytest.fixture
def short_lived(endpoint: CredentialEndpoint) -> CredentialEndpoint:
    """The endpoint, whose credentials expire soon from the first on."""
    endpoint.lifetime = timedelta(seconds=3)
    return endpoint


@dataclass(slots=True)
class Worker:
    """A worker whose clients have the credentials of the endpoint, and what it was told."""

    tables: DynamoTables
    outcomes: set[type[BaseException] | None] = field(default_factory=set[type[BaseException] | None])
    notices: list[Notice] = field(default_factory=list[Notice])
    serving: "asyncio.Task[None] | None" = None

    @property
    def begun(self) -> int:
        return sum(isinstance(notice, SessionBegan) for notice in self.notices)

    @property
    def over(self) -> int:
        return sum(isinstance(notice, SessionOver) for notice in self.notices)

    async def work(self, member: Member) -> None:
        while not member.stopping.is_set():
            came_to = await asyncio.gather(*(self.tables.ping() for _ in range(AT_ONCE)), return_exceptions=True)
            self.outcomes |= {None if outcome is None else type(outcome) for outcome in came_to}
            await asyncio.sleep(0.02)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something to happen to a worker that goes on."""
        async with asyncio.timeout(WITHIN_S):
            while not is_so():
                assert self.serving is not None
                assert not self.serving.done(), "the worker has ended"
                await asyncio.sleep(0.02)


@pytest.fixture
async def worker(endpoint: CredentialEndpoint, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    async with dynamodb_tables(ministack(), SystemClock()) as tables:
        # These have put the tests' own keys where keys are found first; nothing has asked for any yet.
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.delenv(name)
        found = Worker(DynamoTables(tables.names, SystemClock(), tables.settings, backoff=Backoff(attempts_max=1)))
        await found.tables.start()
        membership = Membership(
            GroupSettings(name="g", program="1", timing=TIMING),
            tables=found.tables,
            beater=ThreadBeater(lambda: DynamoTables(tables.names, SystemClock(), tables.settings, are_checked=True)),
            clock=SystemClock(),
            new_session_id=session_ids("test"),
            notify=found.notices.append,
        )
        async with asyncio.TaskGroup() as tasks:
            found.serving = tasks.create_task(membership.serve(found.work))
            await found.until(lambda: found.begun > 0)
            yield found
            membership.stop()
        await found.tables.stop()


async def test_a_session_outlives_an_endpoint_that_is_slow_and_fails_while_the_credentials_are_valid(
    worker: Worker, endpoint: CredentialEndpoint
) -> None:
    """They are in the last ten minutes of their lifetime throughout."""
    asked = endpoint.asked
    endpoint.held = threading.Event()
    await worker.until(lambda: endpoint.asked >= asked + 2)  # both loops wait for new ones
    endpoint.status, asked = 500, endpoint.asked
    endpoint.held.set()
    await worker.until(lambda: endpoint.asked >= asked + 4)
    endpoint.status, endpoint.lifetime, given = 200, FRESH, endpoint.given
    await worker.until(lambda: endpoint.given >= given + 2)

    assert worker.outcomes == {None}
    assert (worker.begun, worker.over) == (1, 0)


async def test_a_worker_whose_credentials_expire_waits_for_new_ones_and_begins_anew(
    short_lived: CredentialEndpoint, worker: Worker
) -> None:
    short_lived.status = 500
    await worker.until(lambda: worker.over > 0)
    assert worker.outcomes <= {None, RetryLater}

    begun = worker.begun
    worker.outcomes.clear()
    short_lived.status, short_lived.lifetime = 200, FRESH
    await worker.until(lambda: worker.begun > begun and None in worker.outcomes)
    assert worker.outcomes <= {None, RetryLater}


async def test_a_heart_that_cannot_open_its_store_at_once_tries_again() -> None:
    opened = 0

    class SlowToStart:
        async def start(self) -> None:
            nonlocal opened
            opened += 1
            if opened < 3:
                raise RetryLater("not yet")

        async def stop(self) -> None:
            return

    beaten: list[int] = []

    async def beat(_: object) -> None:
        beaten.append(opened)

    with suppress(TimeoutError):
        async with asyncio.timeout(WITHIN_S):
            await ThreadBeater(SlowToStart).run(beat)  # pyright: ignore[reportArgumentType] - as much as is used

    assert beaten == [3]
