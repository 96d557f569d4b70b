"""AWS emulators on loopback, each started once per test process and ended with it, however it ends."""

import atexit
import json
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.support.aws.wire import WireProxy
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import Clock, SystemClock
from worker.store.dynamodb.schema import TableSchema
from worker.store.dynamodb.tables import DynamoTables
from worker.store.table import TableName, Tables
from worker.store.url import TableNames

BIN = Path(__file__).parents[3] / ".venv" / "emulators" / "bin"
READY_S = 30.0
DYNAMODB_LOCAL = "INTERLOCK_DYNAMODB_LOCAL"  # where DynamoDB Local is unpacked, if it is to be tested
KINESIS_LOCAL = "INTERLOCK_KINESIS_LOCAL"  # where kinesis-local is unpacked, likewise
# `sh` ends the server when our end of its input closes, which the kernel does even if we are killed.
WITH_US = '"$@" </dev/null & server=$!; trap "kill $server" EXIT; cat >/dev/null'
FORBIDDEN = ("Scan", "ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction")
# Emulators take any credentials; real ones must not reach a test, nor a test wait for a metadata service.
AWS_ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}


@dataclass(frozen=True, slots=True)
class Server:
    """A running emulator. Clients use `proxy.url`, so that every request is seen on the wire."""

    name: str
    port: int
    proxy: WireProxy
    log: Path = field(repr=False)


@cache
def ministack() -> Server:
    """The daily emulator: fast, and exact about transactions."""
    port = _free_port()
    settings = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "LOG_LEVEL": "WARNING"}
    return _start("ministack", [str(_emulator("ministack"))], port, settings)


@cache
def moto() -> Server:
    """A second opinion. It ignores request tokens, its transactions slow down as a table grows, and two conditional
    writes at once can both pass, so it gets one request at a time."""
    port = _free_port()
    command = [str(_emulator("moto_server")), "-H", "127.0.0.1", "-p", str(port)]
    return _start("moto", command, port, {}, one_at_a_time=True)


@cache
def dynamodb_local() -> Server:
    """Amazon's own emulator, from where `tests/dynamodb_local.py` has put it."""
    port = _free_port()
    home = Path(os.environ[DYNAMODB_LOCAL])
    options = ["-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(port)]
    libraries = f"-Djava.library.path={home / 'DynamoDBLocal_lib'}"
    return _start("dynamodb-local", ["java", libraries, "-jar", str(home / "DynamoDBLocal.jar"), *options], port, {})


@cache
def kinesis_local() -> Server:
    """A mock of Kinesis that ends a shard as AWS does, from where `tests/kinesis_local.py` has put it."""
    port, tls_port = _free_port(), _free_port()
    settings = {"KINESIS_MOCK_PLAIN_PORT": str(port), "KINESIS_MOCK_TLS_PORT": str(tls_port), "LOG_LEVEL": "ERROR"}
    settings |= {f"{name}_DURATION": "50ms" for name in ("CREATE_STREAM", "SPLIT_SHARD", "MERGE_SHARDS")}
    # It looks for its certificate where it was started.
    command = ["sh", "-c", 'cd "$0" && exec node main.js', os.environ[KINESIS_LOCAL]]
    return _start("kinesis-local", command, port, settings)


class RealWaits:
    """The test's own time of day, but waits that really pass: an emulator lives in real time."""

    def __init__(self, clock: Clock) -> None:
        self.now = clock.now
        self._real = SystemClock()
        self.call_later = self._real.call_later

    def monotonic(self) -> float:
        return self._real.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._real.sleep(seconds)


@asynccontextmanager
async def dynamodb_tables(server: Server, clock: Clock) -> AsyncGenerator[DynamoTables]:
    """An open store on four new tables of its own; fails if anything scanned a table."""
    use_test_credentials()
    tables = DynamoTables(new_names(), RealWaits(clock), ClientSettings(endpoint=server.proxy.url, read_s=20.0))
    try:
        make_tables(server, tables.names)
        await tables.open()
        yield tables
    finally:
        await tables.stop()
        assert_nothing_was_scanned(server.proxy)


def make_tables(server: Server, names: TableNames) -> None:
    """Make them by one request each: `ensure_tables`, which has tests of its own, takes longer than most tests do.

    Their rows do not expire. A test has a time of day of its own, by which most of its rows expire: by the emulator's
    they may have long ago, and it would clear them away in the middle of the test.
    """
    scope = f"test/20260303/{AWS_ENVIRONMENT['AWS_DEFAULT_REGION']}/dynamodb/aws4_request"
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": "DynamoDB_20120810.CreateTable",
        "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
    }
    for table, name in names.items():
        asked = json.dumps(TableSchema(table=table, name=name).creation().parameters).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{server.port}/", asked, headers)
        with urllib.request.urlopen(request, timeout=READY_S) as answer:
            status = json.load(answer)["TableDescription"]["TableStatus"]
        assert status == "ACTIVE", f"{server.name} has not made {name} at once: it is {status}"


def new_names() -> TableNames:
    """Names of four tables that no other test has."""
    prefix = f"t{secrets.token_hex(6)}"
    return {table: f"{prefix}-{table}" for table in TableName}


def use_test_credentials() -> None:
    os.environ.update(AWS_ENVIRONMENT)


def on_ministack(clock: Clock) -> AbstractAsyncContextManager[Tables]:
    return dynamodb_tables(ministack(), clock)


def on_moto(clock: Clock) -> AbstractAsyncContextManager[Tables]:
    return dynamodb_tables(moto(), clock)


def on_dynamodb_local(clock: Clock) -> AbstractAsyncContextManager[Tables]:
    return dynamodb_tables(dynamodb_local(), clock)


DYNAMODB_BACKENDS = {"dynamodb-ministack": on_ministack, "dynamodb-moto": on_moto}
if DYNAMODB_LOCAL in os.environ:
    DYNAMODB_BACKENDS["dynamodb-local"] = on_dynamodb_local


def assert_nothing_was_scanned(wire: WireProxy) -> None:
    """Fail if, since the proxy started, anyone asked to read a table instead of a key range."""
    scans = {name: count for name in FORBIDDEN if (count := wire.operations[name])}
    assert not scans, f"table scans were sent: {scans}"


def _emulator(name: str) -> Path:
    path = BIN / name
    assert path.exists(), f"the emulator {name} is not installed at {path}; run `make test`, which installs it"
    return path


def _start(
    name: str, command: Sequence[str], port: int, settings: Mapping[str, str], *, one_at_a_time: bool = False
) -> Server:
    directory = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["sh", "-c", WITH_US, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=directory,
            env={**os.environ, **AWS_ENVIRONMENT, **settings},
        )
    atexit.register(_stop, process, directory)
    _wait_until_ready(name, process, port, log)
    proxy = WireProxy(port, one_at_a_time=one_at_a_time).__enter__()
    atexit.register(proxy.__exit__, None, None, None)
    return Server(name, port, proxy, log)


def _stop(process: subprocess.Popen[bytes], directory: Path) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=10)
    shutil.rmtree(directory, ignore_errors=True)


def _wait_until_ready(name: str, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        if _answers(port):
            return
        time.sleep(0.05)
    raise AssertionError(
        f"{name} did not answer on port {port} in {READY_S:.0f} s; its log:\n{log.read_text()[-2000:]}"
    )


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=2):
            return True
    except urllib.error.HTTPError:
        return True  # any answer is an answer
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
