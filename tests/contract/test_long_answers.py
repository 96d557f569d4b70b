"""Connections on which an answer is waited for long: none is forgotten on the way because nothing is sent on it."""

import asyncio
import os
import socket
import stat

from tests.support.builders.runners import a_request
from tests.support.clock.manual import ManualClock
from tests.support.fakes.aws import aws_at, raw_answer
from tests.support.fakes.http_target import Received, a_web_server, answer
from worker.jobs.http.runner import HttpRunner
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient

FORGOTTEN_AFTER_S = 350  # by NAT gateways and endpoints of AWS
DESCRIPTORS_MAX = 256


class Onlooker:
    """Looks at the other end of a connection, which is in this process, while it waits for its answer."""

    def __init__(self) -> None:
        self.silences_s: list[int] = []

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        with _socket_at(writer.get_extra_info("peername")[1]) as client:
            is_asked = client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            silence_s = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        self.silences_s.append(silence_s if is_asked else FORGOTTEN_AFTER_S)
        behave = raw_answer(200, {"JobRunId": "jr_1"}) if "x-amz-target" in request.headers else answer(200)
        await behave(request, writer)


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False  # not open


def _socket_at(port: int) -> socket.socket:
    for descriptor in filter(_is_socket, range(DESCRIPTORS_MAX)):
        found = socket.socket(fileno=os.dup(descriptor))
        if found.family in {socket.AF_INET, socket.AF_INET6} and found.getsockname()[1] == port:
            return found
        found.close()
    raise AssertionError("the client's socket is not there")


async def test_a_job_over_http_is_asked_for_in_silence_before_anybody_forgets_its_connection() -> None:
    looking = Onlooker()
    async with a_web_server(looking) as server, HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        await HttpRunner(client, ManualClock(), EnvironmentSecrets({})).start(a_request({"url": server.url()}))

    assert [silence_s < FORGOTTEN_AFTER_S for silence_s in looking.silences_s] == [True]


async def test_a_start_at_aws_is_asked_for_in_silence_before_anybody_forgets_its_connection() -> None:
    looking = Onlooker()
    async with a_web_server(looking) as server, aws_at(server.url("").rstrip("/")) as aws:
        await aws.start("glue", "StartJobRun", {"JobName": "etl"}, lambda: True)

    assert [silence_s < FORGOTTEN_AFTER_S for silence_s in looking.silences_s] == [True]
