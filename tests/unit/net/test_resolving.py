"""Names of targets whose name server does not answer: nobody else waits for them."""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from worker.net.address_policy import AddressPolicy, AddressRefused
from worker.net.guarded_connector import AddressGuard
from worker.net.resolver import OwnThreadsResolver

PUBLIC = "93.184.216.34"
WITHIN_S = 20.0


class NameServer:
    """Finds every name at once, but for those that begin with "hangs": they are found when the test says so."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.address = PUBLIC
        self.answers = threading.Event()

    def look_up(self, host: str, port: int, *_: object, **__: object) -> list[tuple[Any, ...]]:
        self.asked[host] += 1
        if host.startswith("hangs"):
            self.answers.wait(WITHIN_S)
        if host.startswith("unknown"):
            raise socket.gaierror("there is no such name")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (self.address, port))]


@pytest.fixture
def server() -> NameServer:
    return NameServer()


@pytest.fixture
async def resolver(server: NameServer) -> AsyncIterator[OwnThreadsResolver]:
    resolver = OwnThreadsResolver(server.look_up, names_max=40)
    yield resolver
    server.answers.set()
    await resolver.close()


async def found(resolver: OwnThreadsResolver | AddressGuard, host: str) -> list[str]:
    async with asyncio.timeout(WITHIN_S):
        return [answer["host"] for answer in await resolver.resolve(host, 443)]


@pytest.mark.parametrize("requests", [1, 16, 300])
async def test_a_name_that_hangs_delays_no_other_however_many_requests_want_it(
    resolver: OwnThreadsResolver, server: NameServer, requests: int
) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(found(resolver, "hangs.example")) for _ in range(requests)]
        await asyncio.sleep(0)

        for number in range(50):
            assert await found(resolver, f"good-{number}.example") == [PUBLIC]
        assert not any(task.done() for task in waiting)
        server.answers.set()

    assert all(task.result() == [PUBLIC] for task in waiting)
    assert server.asked["hangs.example"] == 1


async def test_many_names_of_one_silent_server_delay_no_other(resolver: OwnThreadsResolver, server: NameServer) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(39):
            tasks.create_task(found(resolver, f"hangs-{number}.example"))
        await asyncio.sleep(0)

        assert await found(resolver, "good.example") == [PUBLIC]
        server.answers.set()


async def test_threads_are_bounded_and_whoever_finds_none_gets_the_next(
    resolver: OwnThreadsResolver, server: NameServer
) -> None:
    async with asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(found(resolver, f"hangs-{number}.example"))
        await asyncio.sleep(0)
        waiting = tasks.create_task(found(resolver, "good.example"))
        await asyncio.sleep(0)
        assert sum(thread.name == "resolver" for thread in threading.enumerate()) <= 40
        server.answers.set()

    assert waiting.result() == [PUBLIC]
    assert set(server.asked.values()) == {1}


async def test_who_waits_no_longer_takes_nothing_from_the_others(
    resolver: OwnThreadsResolver, server: NameServer
) -> None:
    async with asyncio.TaskGroup() as tasks:
        impatient = tasks.create_task(found(resolver, "hangs.example"))
        patient = tasks.create_task(found(resolver, "hangs.example"))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.sleep(0)
        server.answers.set()

    assert patient.result() == [PUBLIC]


async def test_a_name_that_is_not_found_is_asked_for_anew(resolver: OwnThreadsResolver, server: NameServer) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="no such name"):
            await found(resolver, "unknown.example")

    assert server.asked["unknown.example"] == 2


async def test_each_request_that_shares_an_answer_is_guarded(resolver: OwnThreadsResolver, server: NameServer) -> None:
    """What a name resolves to is judged for each, and looked up anew for the next: it may be another by then."""
    guard = AddressGuard(AddressPolicy(), resolver)
    server.address = "169.254.169.254"
    shared = await asyncio.gather(*(found(guard, "sly.example") for _ in range(5)), return_exceptions=True)
    assert {type(each) for each in shared} == {AddressRefused}

    server.address = PUBLIC
    assert await found(guard, "sly.example") == [PUBLIC]
    assert server.asked["sly.example"] == 2


async def test_a_resolver_that_is_closed_lets_nobody_wait(server: NameServer) -> None:
    resolver = OwnThreadsResolver(server.look_up)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_outcome(resolver))
        await asyncio.sleep(0)
        await resolver.close()

    assert isinstance(waiting.result(), OSError)
    server.answers.set()


async def _outcome(resolver: OwnThreadsResolver) -> object:
    try:
        return await found(resolver, "hangs.example")
    except OSError as error:
        return error


async def test_a_name_is_looked_up_again_after_no_thread_could_be_had(
    resolver: OwnThreadsResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(OSError, match="can't start new thread"):
            await found(resolver, "some.example")

    assert await found(resolver, "some.example") == [PUBLIC]
