"""A web server whose every byte, silence and disconnection a test decides."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from struct import pack
from typing import TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Behaviour: TypeAlias = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


def answer(status: int, body: object = "", **headers: str) -> Behaviour:
    """Answer with a status and a text, or a value as JSON; `Retry_After` stands for `Retry-After`."""
    content = (body if isinstance(body, str) else json.dumps(body)).encode()
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    head = "\r\n".join([f"HTTP/1.1 {status} As Told", f"Content-Length: {len(content)}", *lines, "", ""])

    async def behave(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head.encode() + content)
        await writer.drain()

    return behave


async def reset(_request: Received, writer: asyncio.StreamWriter) -> None:
    """Drop the connection in the rudest way."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(SOL_SOCKET, SO_LINGER, pack("ii", 1, 0))
    writer.close()


async def hang(_request: Received, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def break_off(status: int) -> Behaviour:
    """Promise more than is sent."""

    async def behave(_request: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status} As Told\r\nContent-Length: 1000\r\n\r\nhalf".encode())
        await writer.drain()
        writer.close()

    return behave


def in_turn(*behaviours: Behaviour) -> Behaviour:
    """Behave differently each time; the last one stays."""
    left = list(behaviours)

    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, writer)

    return behave


def by_path(**behaviours: Behaviour) -> Behaviour:
    """Behave according to the first part of the path."""

    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        await behaviours[request.path.strip("/").partition("/")[0].partition("?")[0]](request, writer)

    return behave


@dataclass(slots=True, kw_only=True)
class WebServer:
    port: int = 0
    behaviour: Behaviour = field(default_factory=lambda: answer(200))
    received: list[Received] = field(default_factory=list[Received])
    connections: int = 0

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await _read(reader):
                self.received.append(request)
                await self.behaviour(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received | None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method=method, path=path, headers=headers, body=body)


@asynccontextmanager
async def a_web_server(behaviour: Behaviour | None = None) -> AsyncGenerator[WebServer]:
    served = WebServer()
    if behaviour:
        served.behaviour = behaviour
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(served.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await server.wait_closed()


class Names(AbstractResolver):
    """A name service that answers as a test says, differently each time if it says so."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        self.asked.append(host)
        answers = self._answers[host.replace(".", "_").replace("-", "_")]
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if not found:
            raise OSError(None, f"{host} does not exist")
        return [
            ResolveResult(hostname=host, host=address, port=port, family=2 if "." in address else 10, proto=0, flags=0)
            for address in found
        ]

    async def close(self) -> None:
        pass
