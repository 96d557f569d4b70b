"""Archive on S3 by real processes that are killed between any two steps: nothing is lost, nothing else is archived.

CHAOS_ROUNDS asks for it: each kill is a process of its own.
"""

import asyncio
import json
import os
import secrets
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from consumers.inbox.consumer import SensorInbox
from consumers.inbox.notifications import Happened, ObjectNotification
from consumers.inbox.objects import Objects, ObjectState
from consumers.inbox.part_archive import PartArchive
from consumers.inbox.rules import BucketPrefix
from consumers.inbox.rules_file import rules_of
from consumers.inbox.s3 import open_objects
from tests.support.aws.emulators import ministack, use_test_credentials
from tests.support.builders.values import a_key, a_run
from tests.support.worlds.installation import client, endpoint_of
from worker.config.deploy import deploy
from worker.config.load import load_text
from worker.core.model.job_data import JobInput, JobInputs
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Outcome, State
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.repos.delivery.part_collections import CollectionKey, PartCollections
from worker.store.repos.run_data import inputs_write
from worker.store.repos.runs import Runs
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

pytestmark = [
    pytest.mark.xdist_group("aws"),
    pytest.mark.skipif("CHAOS_ROUNDS" not in os.environ, reason="starts a process for each kill; CHAOS_ROUNDS asks"),
]

ROOT: Final = Path(__file__).parents[2]
COUNT: Final = 6
RUN: Final = a_key()
KEYS: Final = [f"orders/{RUN.period}/part-{number}.csv" for number in range(COUNT)]
COLLECTION: Final = CollectionKey(rule="parts", pipeline=RUN.pipeline, sensor=f"parts#{RUN.period}")
RULES: Final = """\
rules:
  - name: parts
    object: {bucket: BUCKET, key: "orders/${date}/part-${part}.csv"}
    pipeline: orders
    sensor: parts
    period: ${date}
    collect: {until: {count: COUNT}}
    archive: s3://BUCKET/done/
"""
CONFIG: Final = """
pipeline: {id: orders}
schedule: {trigger: {key: parts, check: exists}}
job: {type: command, config: {command: "true"}}
"""


@dataclass
class Killed:
    """S3, and the end of this process after so many copies and deletions."""

    objects: Objects
    steps_left: int

    async def read(self, bucket: str, key: str, bytes_max: int) -> bytes:
        return await self.objects.read(bucket, key, bytes_max)

    async def state(self, bucket: str, key: str) -> ObjectState | None:
        return await self.objects.state(bucket, key)

    async def copy(self, bucket: str, key: str, etag: str, *, to_bucket: str, to_key: str) -> None:
        await self.objects.copy(bucket, key, etag, to_bucket=to_bucket, to_key=to_key)
        self._step()

    async def delete(self, bucket: str, key: str, etag: str) -> None:
        await self.objects.delete(bucket, key, etag)
        self._step()

    def _step(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


async def archive(store: str, bucket: str, endpoint: str, steps: int) -> int:
    """What a process does: archive the collection, and die after so many steps; 0 means never."""
    tables = SqliteTables(Path(store), SystemClock())
    await tables.start()
    async with open_objects(ClientSettings(endpoint=endpoint, read_s=30.0)) as objects:
        killed = Killed(objects, steps)
        done = await PartArchive(tables, SystemClock(), killed).archive(
            COLLECTION, bucket, BucketPrefix(bucket=bucket, prefix="done/")
        )
    await tables.stop()
    return done


def child(*arguments: object) -> int:
    code = (
        f"import asyncio, sys; from {__name__} import archive; asyncio.run(archive(*sys.argv[1:4], int(sys.argv[4])))"
    )
    words = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False).returncode


async def prepare(store: Path, bucket: str, s3: Any, endpoint: str) -> None:  # noqa: ANN401  a client of botocore
    """A completed run that used all parts, and one part that arrived after its start."""
    tables, clock = SqliteTables(store, SystemClock()), SystemClock()
    await tables.start()
    pipeline = load_text(CONFIG).pipeline
    assert pipeline is not None
    await deploy(tables, pipeline, clock)
    rules = rules_of(RULES.replace("BUCKET", bucket).replace("COUNT", str(COUNT)))
    async with open_objects(ClientSettings(endpoint=endpoint, read_s=30.0)) as objects:
        inbox = SensorInbox(tables, rules, clock, objects)

        async def arrive(key: str) -> None:
            etag = (await s3.put_object(Bucket=bucket, Key=key, Body=key.encode()))["ETag"].strip('"')
            await inbox.take_in(
                ObjectNotification(
                    bucket=bucket, key=key, happened=Happened.CREATED, etag=etag, size=len(key), at=clock.now()
                )
            )

        for key in KEYS:
            await arrive(key)
        found = await Sensors(tables).get(PipelineId("orders"), COLLECTION.sensor)
        assert found is not None
        assert found.data["complete"] is True
        inputs = JobInputs(attempt=1, inputs={COLLECTION.sensor: JobInput(content_hash="h", data=dict(found.data))})
        run = replace(a_run(State.COMPLETED, version=0), key=RUN, attempt=1, outcome=Outcome.SUCCEEDED)
        await Runs(tables).save(run, inputs_write(RUN, inputs, clock.now()))
        await arrive(LATE)
    await tables.stop()


LATE: Final = f"orders/{RUN.period}/part-late.csv"


async def held(s3: Any, bucket: str) -> dict[str, str]:  # noqa: ANN401  a client of botocore
    listed = (await s3.list_objects_v2(Bucket=bucket)).get("Contents", [])
    return {
        each["Key"]: (await (await s3.get_object(Bucket=bucket, Key=each["Key"]))["Body"].read()).decode()
        for each in listed
    }


@pytest.mark.timeout(280)
async def test_a_process_that_is_killed_after_any_copy_or_deletion_loses_nothing(tmp_path: Path) -> None:
    use_test_credentials()
    endpoint = endpoint_of(ministack())
    kills = 0
    async with client("s3", endpoint) as s3:
        for steps in range(1, 2 * COUNT + 1):
            bucket, store = f"t{secrets.token_hex(6)}", tmp_path / f"{steps}.db"
            await s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
            await prepare(store, bucket, s3, endpoint)

            code = await asyncio.to_thread(child, store, bucket, endpoint, steps)

            kills += code == -signal.SIGKILL
            between = await held(s3, bucket)
            for key in KEYS:
                found = {between.get(key), between.get(f"done/{key}")} - {None}
                assert found == {key}, f"after {steps} steps, {key} is lost or has other content: {json.dumps(between)}"
            assert await asyncio.to_thread(child, store, bucket, endpoint, 0) == 0
            assert await held(s3, bucket) == {LATE: LATE} | {f"done/{key}": key for key in KEYS}
            await _check_marks(store)
    assert kills == 2 * COUNT


async def _check_marks(store: Path) -> None:
    tables = SqliteTables(store, SystemClock())
    await tables.start()
    marks = {each.key: each.is_archived async for each in PartCollections(tables).parts(COLLECTION)}
    await tables.stop()
    assert marks == {**dict.fromkeys(KEYS, True), LATE: False}
