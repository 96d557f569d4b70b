"""A target whose TLS fails: nothing was sent, the reason is told, and another try may succeed."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import connector

from tests.support.certificates import Authority
from tests.support.fakes.http_target import Names
from worker.core.run.state import FailureCategory
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpAnswer, HttpClient, NotSent, Request

HOST = "target.example"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
YESTERDAY = datetime.now(UTC) - timedelta(hours=1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that the client trusts: the library reads the system's only once, when it is imported."""
    made = Authority(tmp_path_factory.mktemp("trusted"), "trusted by the tests of HTTP")
    context: ssl.SSLContext = connector._SSL_CONTEXT_VERIFIED  # pyright: ignore[reportPrivateUsage]
    context.load_verify_locations(made.file)
    return made


@asynccontextmanager
async def a_target(
    files: tuple[Path, Path] | None, *, greeting: bytes | None = None
) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """A server by its port, and what it was asked. `greeting` is what it says before any TLS; None: nothing."""
    asked: list[bytes] = []
    tls = None
    if files is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*files)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if tls is None:
                if greeting is None:
                    await reader.read()  # the handshake never ends
                writer.write(greeting or b"")
                return
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(ANSWER)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1], asked


async def post(port: int) -> object:
    resolver = Names(target_example=[["127.0.0.1"]])
    async with HttpClient(AddressPolicy.parse([HOST]), resolver=resolver) as client:
        timeout = timedelta(seconds=2)
        return await client.send(
            Request(method="POST", url=f"https://{HOST}:{port}/jobs", body=b"{}", once=True, timeout=timeout)
        )


async def test_a_valid_certificate_is_accepted(authority: Authority) -> None:
    async with a_target(authority.sign("valid", HOST)) as (port, asked):
        reply = await post(port)

    assert isinstance(reply, HttpAnswer)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("kind", "reason"),
    [("expired", "expired"), ("other host", "mismatch"), ("unknown authority", "unable to get local issuer")],
)
async def test_a_certificate_that_cannot_be_trusted_now_may_be_replaced(
    authority: Authority, tmp_path: Path, kind: str, reason: str
) -> None:
    stranger = Authority(tmp_path, "stranger")
    files = {
        "expired": lambda: authority.sign("expired", HOST, valid_until=YESTERDAY),
        "other host": lambda: authority.sign("other", "other.example"),
        "unknown authority": lambda: stranger.sign("unknown", HOST),
    }[kind]()

    async with a_target(files) as (port, asked):
        reply = await post(port)

    assert isinstance(reply, NotSent)
    assert (reply.category, reply.is_final) == (FailureCategory.TRANSIENT, False)
    assert reason in reply.message
    assert asked == []


@pytest.mark.parametrize("greeting", [b"", ANSWER, b"\x15\x03\x01\x00\x02\x02\x28"], ids=["cut", "plain", "alert"])
async def test_a_handshake_that_fails_is_tried_again(greeting: bytes) -> None:
    async with a_target(None, greeting=greeting) as (port, _):
        reply = await post(port)

    assert isinstance(reply, NotSent)
    assert (reply.category, reply.is_final) == (FailureCategory.TRANSIENT, False)


async def test_a_handshake_that_never_ends_takes_no_longer_than_the_request_may() -> None:
    async with a_target(None) as (port, _):
        reply = await post(port)

    assert reply == NotSent(FailureCategory.TIMEOUT, f"POST https://{HOST}:{port}/jobs: no answer in time")
