"""The archive in a bucket: written over the wire, rejected with a remedy, and checked by `interlock doctor`."""

import asyncio
import gzip
import json
import secrets
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from aiobotocore.session import get_session

from tests.support.aws.emulators import ministack, use_test_credentials
from tests.support.builders.command_line import interlock, records
from worker.config.settings import ARCHIVE, STORE
from worker.core.model.events import Event
from worker.net.aws_client import ClientSettings
from worker.operations.doctor.archive import look_at_bucket
from worker.operations.doctor.aws_calls import AwsCalls
from worker.operations.doctor.report import Health
from worker.runtime.clock import SystemClock
from worker.store.archive_url import S3Archive
from worker.store.backends.open import open_tables
from worker.store.repos.delivery.archive_progress import ArchiveProgress, ArchiveProgresses
from worker.store.repos.events import event_write

pytestmark = pytest.mark.xdist_group("dynamodb-ministack")


def endpoint() -> str:
    """Not the proxy, which waits for no leave to send a body."""
    return f"http://127.0.0.1:{ministack().port}"


async def objects_of(bucket: str, *, make: bool = False) -> dict[str, bytes]:
    opening: Any = get_session().create_client("s3", region_name="eu-west-1", endpoint_url=endpoint())
    async with opening as s3:
        if make:
            where = {"LocationConstraint": "eu-west-1"}
            await s3.create_bucket(Bucket=bucket, CreateBucketConfiguration=where)
        listed = await s3.list_objects_v2(Bucket=bucket)
        found: dict[str, bytes] = {}
        for each in listed.get("Contents", ()):
            answer = await s3.get_object(Bucket=bucket, Key=each["Key"])
            found[each["Key"]] = await answer["Body"].read()
        return found


async def put_event(store: str, target: str) -> str:
    clock = SystemClock()
    now, tables = clock.now(), open_tables(store, clock)
    await tables.start()
    event = Event(id="e1", type="SLA_BREACH", at=now - timedelta(minutes=20), pipeline="orders")
    await tables.commit(event_write(event))
    begin = (now - timedelta(minutes=45)).replace(minute=0, second=0, microsecond=0)
    await ArchiveProgresses(tables, target).save(ArchiveProgress(up_to=begin, began_at=now, moved_at=now))
    await tables.stop()
    return f"{event.at:%Y-%m-%d}"


async def diagnosed(bucket: str) -> list[Health]:
    settings = ClientSettings(region="eu-west-1", endpoint=endpoint())
    async with AsyncExitStack() as stack:
        calls = AwsCalls(stack, settings, SystemClock())
        return [found.health async for found in look_at_bucket(calls, S3Archive(bucket, "interlock/"))]


def test_an_archive_is_written_to_a_bucket_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    use_test_credentials()
    url = endpoint()
    bucket, prefix = f"b-{secrets.token_hex(6)}", f"t{secrets.token_hex(6)}"
    target, store = f"s3://{bucket}/interlock", f"dynamodb://{prefix}?region=eu-west-1&endpoint={url}"
    monkeypatch.setenv(STORE, store)
    monkeypatch.setenv(ARCHIVE, target)
    assert interlock("store", "init", clock=SystemClock()).exit_code == 0
    day = asyncio.run(put_event(store, target))

    missing = interlock("archive", clock=SystemClock())
    unchecked = asyncio.run(diagnosed(bucket))
    asyncio.run(objects_of(bucket, make=True))
    written = interlock("archive", "--json", clock=SystemClock())
    checked = asyncio.run(diagnosed(bucket))

    assert missing.exit_code == 3
    assert "make the bucket, or correct INTERLOCK_ARCHIVE" in missing.stderr
    assert written.exit_code == 0, written.stderr
    assert records(written.stdout)[-1]["events"] == 1
    [(name, content)] = asyncio.run(objects_of(bucket)).items()
    assert name.startswith(f"interlock/events/day={day}/")
    assert json.loads(gzip.decompress(content))["id"] == "e1"
    assert (unchecked, checked) == ([Health.FAIL], [Health.OK])
