"""The web server over real loopback sockets: bounds on connections, heads and bodies, and its end."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from tests.support.worlds.web import OPERATOR, a_web_world
from worker.core.errors import ConfigError
from worker.web.addresses import Address
from worker.web.asgi import Receive, Scope, Send, respond
from worker.web.guard import WebLimits
from worker.web.server import HEAD_BYTES_MAX, UNREAD_BYTES_MAX, WebServer

HERE = Address("127.0.0.1", 0)
GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@asynccontextmanager
async def served(
    *, limits: WebLimits | None = None, connections_max: int = 2_000, head_s: float = 10.0
) -> AsyncGenerator[Address]:
    async with a_web_world(limits=limits) as world:
        server = WebServer(HERE, world.guard, setting="INTERLOCK_WEB", connections_max=connections_max, head_s=head_s)
        try:
            yield await server.start()
        finally:
            await server.stop()


async def exchange(address: Address, request: bytes, *, is_whole: bool = False) -> tuple[int, bytes]:
    """Send bytes, and return the status and the body of the first response; with `is_whole`, wait for the end."""
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        body = await reader.readexactly(int(length.split(b":")[1]))
        if is_whole:
            assert await reader.read() == b""
        writer.close()
        return int(head.split()[1]), body


def kind_of(body: bytes) -> str:
    return json.loads(body)["type"].removeprefix("urn:interlock:problem:")


async def test_a_request_is_answered_and_the_connection_is_kept() -> None:
    async with served() as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        for _ in range(3):
            writer.write(GET)
            assert b"200" in (await reader.readuntil(b"\r\n\r\n"))
            assert json.loads(await reader.readexactly(23))["ok"] is True
        writer.close()


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n bad\r\n\r\n",
    ],
)
async def test_what_is_no_request_gets_a_problem_and_no_connection(request_bytes: bytes) -> None:
    async with served() as address:
        status, body = await exchange(address, request_bytes, is_whole=True)

    assert (status, kind_of(body)) == (400, "bad-request")


@pytest.mark.parametrize("size", [HEAD_BYTES_MAX, 300_000])
@pytest.mark.parametrize("where", ["header", "headers", "path"])
async def test_a_head_that_is_too_large_is_refused(size: int, where: str) -> None:
    heads = {
        "header": b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * size + b"\r\n\r\n",
        "headers": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: abcdef\r\n" * (size // 7 + 1) + b"\r\n",
        "path": b"GET /" + b"x" * size + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    }
    async with served() as address:
        status, body = await exchange(address, heads[where])

    assert (status, kind_of(body)) == (431, "headers-too-large")


async def test_a_head_that_does_not_arrive_is_not_waited_for() -> None:
    async with served(head_s=0.05) as address:
        status, body = await exchange(address, b"GET /livez HTTP/1.1\r\nHost: loc", is_whole=True)
        silent, _ = await exchange(address, b"", is_whole=True)

    assert (status, kind_of(body)) == (408, "too-slow")
    assert silent == 408


def a_post(body: bytes, length: int) -> bytes:
    head = (
        f"POST /api/v1/sensors/orders/landing HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {OPERATOR}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    )
    return head.encode() + body


async def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async with served(limits=WebLimits(body_s=0.05)) as address:
        status, body = await exchange(address, a_post(b'{"rows"', 100), is_whole=True)

    assert (status, kind_of(body)) == (408, "too-slow")


async def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    async with served() as address:
        status, body = await exchange(address, a_post(b"", 1_000_001), is_whole=True)

    assert (status, kind_of(body)) == (413, "too-large")


async def test_a_body_that_turns_out_too_large_is_refused() -> None:
    head = a_post(b"", 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    async with served(limits=WebLimits(body_bytes_max=10)) as address:
        status, body = await exchange(address, head + b"14\r\n" + b"x" * 20 + b"\r\n", is_whole=True)

    assert (status, kind_of(body)) == (413, "too-large")


ANSWERED_UNREAD = [
    b"GET /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /api/v1/sensors/orders/landing HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n",
]


async def send_chunks(writer: asyncio.StreamWriter, size: int) -> None:
    for _ in range(size // 0x10000):
        writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        await writer.drain()


@pytest.mark.parametrize("head", ANSWERED_UNREAD)
async def test_a_body_without_end_is_not_read_once_its_request_is_answered(head: bytes) -> None:
    """Nobody needs a token for that, and all of it would pass through the worker's loop."""
    async with served() as address, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(head)
        await reader.readuntil(b"\r\n\r\n")
        with pytest.raises(ConnectionError):
            await send_chunks(writer, 100 * UNREAD_BYTES_MAX)

        writer.close()


@pytest.mark.parametrize("head", ANSWERED_UNREAD)
async def test_the_rest_of_a_body_whose_request_is_answered_is_not_waited_for(head: bytes) -> None:
    async with served(head_s=0.05) as address, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(head)

        assert (await reader.read()).startswith(b"HTTP/1.1 ")  # and then its end
        writer.close()


async def test_a_connection_is_kept_after_the_body_of_a_refused_request() -> None:
    async with served() as address, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(ANSWERED_UNREAD[1])
        assert b" 401 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"3\r\nabc\r\n0\r\n\r\n" + GET)

        await reader.readuntil(b"HTTP/1.1 200 OK")
        writer.close()


async def test_a_thousand_connections_at_once_are_all_answered() -> None:
    async with served() as address:
        opened = [await asyncio.open_connection(address.host, address.port) for _ in range(1_000)]
        for _, writer in opened:
            writer.write(GET)
        for reader, _ in opened:
            assert b"200 OK" in await reader.readline()
        for _, writer in opened:
            writer.close()


async def test_a_connection_too_many_takes_the_place_of_an_idle_one() -> None:
    async with served(connections_max=1) as address:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(GET)
        await reader.readuntil(b'"why": []}')

        assert (await exchange(address, GET))[0] == 200
        assert await reader.read() == b""
        writer.close()


async def test_without_an_idle_connection_one_too_many_is_refused() -> None:
    async with served(connections_max=1) as address:
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(b"GET /livez HTTP/1.1\r\n")
        await asyncio.sleep(0)
        status, body = await exchange(address, b"")

        assert (status, kind_of(body)) == (429, "too-many")
        writer.close()


async def test_an_address_in_use_is_said_with_what_to_do() -> None:
    async with served() as address:
        with pytest.raises(ConfigError, match="it is in use; choose another address with INTERLOCK_WEB"):
            await WebServer(address, _slow(asyncio.Event()), setting="INTERLOCK_WEB").start()


def _slow(begun: asyncio.Event):  # noqa: ANN202
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()
        await respond(send, 200, b"")

    return app


async def test_a_handler_that_does_not_end_does_not_hold_up_the_end() -> None:
    begun = asyncio.Event()
    server = WebServer(HERE, _slow(begun), setting="INTERLOCK_WEB", stop_s=0.05)
    address = await server.start()
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(GET)
    await begun.wait()

    async with asyncio.timeout(5):
        await server.stop()
    await reader.read()
    writer.close()
