"""AWS on loopback, as far as the job targets use it: jobs that do what a test says, behind the real services' contract.

Every request is read, and every answer written, by botocore's models (`aws_model.py`); a request that the service
would not understand fails the test that sent it.
"""

import asyncio
import json
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.support.aws.emulators import use_test_credentials
from tests.support.fakes.aws_model import AgainstModel, Call, Reply, read_call, write_answer, write_error
from tests.support.fakes.http_target import Behaviour, Received, WebServer, a_web_server
from worker.jobs.aws.client import Aws, AwsEndpoint

# What a service does with a call: its answer, or `AwsError`.
Handler: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class AwsError(Exception):
    def __init__(self, code: str, message: str = "as told") -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of one call: `behaviour` on the wire, after the call was carried out or instead of it."""

    behaviour: Behaviour
    is_carried_out: bool = False


@dataclass(slots=True)
class AwsFake:
    """The services together. `calls` is what they were asked, in order."""

    url: str = ""
    server: WebServer | None = None
    calls: list[Call] = field(default_factory=list[Call])
    handlers: dict[tuple[str, str], Handler] = field(default_factory=dict[tuple[str, str], Handler])
    against_model: list[str] = field(default_factory=list[str])
    faults: defaultdict[str, deque[Fault]] = field(default_factory=lambda: defaultdict[str, deque[Fault]](deque))

    def serve(self, service: str, **handlers: Handler) -> None:
        self.handlers |= {(service, operation): handler for operation, handler in handlers.items()}

    def break_next(self, operation: str, behaviour: Behaviour, *, is_carried_out: bool = False) -> None:
        """The next call of an operation goes wrong on the wire."""
        self.faults[operation].append(Fault(behaviour, is_carried_out))

    def decline_next(self, operation: str, code: str, message: str = "as told") -> None:
        """The next call of an operation is answered with an error of the service."""

        async def behave(received: Received, writer: asyncio.StreamWriter) -> None:
            await _send(write_error(read_call(received), code, message), writer)

        self.break_next(operation, behave)

    def asked(self, operation: str) -> list[Mapping[str, Any]]:
        """The parameters of every call of an operation."""
        return [call.parameters for call in self.calls if call.operation == operation]

    @property
    def counted(self) -> Counter[str]:
        return Counter(call.operation for call in self.calls)

    async def behave(self, received: Received, writer: asyncio.StreamWriter) -> None:
        try:
            call = read_call(received)
            self.calls.append(call)
            fault = self.faults[call.operation].popleft() if self.faults[call.operation] else None
            reply = self._carry_out(call) if fault is None or fault.is_carried_out else None
        except AgainstModel as problem:
            self.against_model.append(str(problem))
            return await _send(Reply(400, b"{}"), writer)
        if fault is not None:
            return await fault.behaviour(received, writer)
        assert reply is not None
        return await _send(reply, writer)

    def _carry_out(self, call: Call) -> Reply:
        try:
            return write_answer(call, self.handlers[call.service, call.operation](call.parameters))
        except AwsError as error:
            return write_error(call, error.code, error.message)


async def _send(reply: Reply, writer: asyncio.StreamWriter) -> None:
    headers = {
        "Content-Type": "application/x-amz-json-1.1",
        "x-amzn-RequestId": "11111111-2222-3333-4444-555555555555",
        **reply.headers,
    }
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = [f"HTTP/1.1 {reply.status} As Told", f"Content-Length: {len(reply.body)}", *lines, "", ""]
    writer.write("\r\n".join(head).encode() + reply.body)
    await writer.drain()


def raw_answer(status: int, body: object = "{}") -> Behaviour:
    """Any bytes, whatever the model says."""
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()

    async def behave(_received: Received, writer: asyncio.StreamWriter) -> None:
        await _send(Reply(status, content), writer)

    return behave


@asynccontextmanager
async def an_aws_fake() -> AsyncGenerator[AwsFake]:
    """A fake that fails the test if anything was sent to it that AWS would not understand."""
    async with a_web_server() as server:
        fake = AwsFake(url=server.url("").rstrip("/"), server=server)
        server.behaviour = fake.behave
        yield fake
    assert fake.against_model == []


@asynccontextmanager
async def aws_at(endpoint: str, *, answer_s: float = 10.0) -> AsyncGenerator[Aws]:
    use_test_credentials()
    settings = AwsEndpoint(region="eu-west-1", endpoint=endpoint, call_s=answer_s, start_s=answer_s)
    async with Aws(settings) as aws:
        yield aws
