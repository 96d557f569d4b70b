"""A link between a client and a server that can lose what it carries: requests, answers, or everything."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ssl import SSLContext


@dataclass
class TcpLink:
    """Forwards connections to a port. `loses_answers` cuts the link when the server has answered; likewise requests."""

    port: int
    to: int
    loses_requests: int = 0  # so many times
    loses_answers: int = 0
    lost: int = 0
    _writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self.to)
        self._writers |= {writer, ours}
        with suppress(ConnectionError):
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._carry(reader, ours, writer, are_requests=True))
                tasks.create_task(self._carry(theirs, writer, ours, are_requests=False))

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
        *,
        are_requests: bool,
    ) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if self._is_lost(are_requests=are_requests):
                    break
                writer.write(data)
                await writer.drain()
        for each in (writer, other):
            each.close()

    def _is_lost(self, *, are_requests: bool) -> bool:
        if are_requests and self.loses_requests:
            self.loses_requests -= 1
        elif not are_requests and self.loses_answers:
            self.loses_answers -= 1
        else:
            return False
        self.lost += 1
        return True

    def cut(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def tcp_link(to: int, tls: SSLContext | None = None) -> AsyncGenerator[TcpLink]:
    """Open a link. With `tls`, clients speak TLS with it, and the server does not know."""
    link = TcpLink(0, to)
    server = await asyncio.start_server(link.serve, "127.0.0.1", 0, ssl=tls)
    link.port = server.sockets[0].getsockname()[1]
    try:
        yield link
    finally:
        link.cut()
        server.close()
        await asyncio.sleep(0)
