"""The HTTP client alone: what is half an answer, and what is none."""

import asyncio
from datetime import timedelta

from tests.contract.http_runner.httpjobs import HERE
from tests.support.fakes.http_target import WebServer, hang
from worker.net.http_client import HttpAnswer, HttpClient, Request, Unanswered


async def test_a_time_limit_covers_the_body_too(server: WebServer) -> None:
    async def trickle(_request: object, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nslow")
        await asyncio.Event().wait()

    server.behaviour = trickle
    async with HttpClient(HERE) as client:
        reply = await client.send(
            Request(method="POST", url=server.url(), timeout=timedelta(milliseconds=100), once=True)
        )

    assert isinstance(reply, HttpAnswer)
    assert not reply.is_whole


async def test_silence_is_told_from_refusal(server: WebServer) -> None:
    server.behaviour = hang
    async with HttpClient(HERE) as client:
        reply = await client.send(
            Request(method="POST", url=server.url("/x?key=secret"), timeout=timedelta(milliseconds=100), once=True)
        )

    assert reply == Unanswered(f"POST {server.url('/x')}: no answer in time")
