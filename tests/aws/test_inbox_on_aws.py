"""The inbox on real wires: what an emulator's bucket, topic and bus send is understood, and a bucket can be listed."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from consumers.delivery.retry import RetryPolicy
from consumers.inbox.consumer import SensorInbox
from consumers.inbox.objects import ObjectGone, ObjectState
from consumers.inbox.rules import BucketPrefix
from consumers.inbox.rules_file import rules_of
from consumers.inbox.s3 import open_bucket, open_objects
from consumers.inbox.seeding import Seeder, SeedProgress
from consumers.queues.consumer import QueueConsumer, QueuePace
from consumers.queues.dead_letters import QueueDeadLetters
from consumers.queues.polls import Polling
from consumers.queues.sqs import AwsQueue, open_sqs
from tests.support.aws.emulators import ministack, use_test_credentials
from tests.support.builders.command_line import interlock as command
from tests.support.worlds.installation import REGION, client, endpoint_of, install
from tests.support.worlds.live_worker import LiveWorker, interlock
from worker.config.store_setting import GROUP
from worker.core.errors import ConfigError, Rejected
from worker.core.model.pipeline import JobType, PipelineId
from worker.jobs.state_changes import hint_of
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.job_hints import JobHintRows
from worker.store.repos.events import Events
from worker.store.repos.sensors import Sensors
from worker.store.sqlite.tables import SqliteTables

pytestmark = pytest.mark.xdist_group("aws")

T = TypeVar("T")

PATIENCE_S = 50.0
QUICK = QueuePace(polling=Polling(polls_max=1, wait_s=1, visibility_s=10))
RULES = """\
rules:
  - name: orders
    object: {bucket: BUCKET, key: "orders/dt=${date}/${part}.csv"}
    pipeline: orders
    sensor: export
    period: ${date}
    fields: {part: "${part}", etag: "${etag}", bytes: "${size}"}
"""


async def come(look: Callable[[], Awaitable[T | None]]) -> T:
    """Look until there is something."""
    async with asyncio.timeout(PATIENCE_S):
        while not (found := await look()):  # noqa: ASYNC110 - nobody tells us when it comes
            await asyncio.sleep(0.05)
    return found


@dataclass
class Cloud:
    """A bucket that tells a queue, and an inbox that takes from it into a store of its own."""

    s3: Any
    bucket: str
    queue_url: str
    inbox: SensorInbox
    tables: SqliteTables
    consumer: QueueConsumer

    async def put(self, key: str, body: bytes) -> str:
        answer = await self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)
        return answer["ETag"].strip('"')

    async def until_seen(self, count: int) -> None:
        async def is_seen() -> bool:
            return self.inbox.counts.seen >= count

        await come(is_seen)

    async def sensor(self, key: str) -> Any:  # noqa: ANN401 - whatever the test put there
        found = await Sensors(self.tables).get(PipelineId("orders"), key)
        return None if found is None else dict(found.data)


@pytest.fixture
async def clients() -> AsyncIterator[dict[str, Any]]:
    """Another's, that make buckets, topics and queues: the program itself may not."""
    use_test_credentials()
    at = endpoint_of(ministack())  # not through the proxy, which waits for no leave to send a body
    async with client("s3", at) as s3, client("sqs", at) as sqs, client("sns", at) as sns:
        yield {"s3": s3, "sqs": sqs, "sns": sns}


@pytest.fixture
async def cloud(clients: dict[str, Any]) -> AsyncIterator[Cloud]:
    name = f"t{secrets.token_hex(6)}"
    await clients["s3"].create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    url = (await clients["sqs"].create_queue(QueueName=name))["QueueUrl"]
    clock = SystemClock()
    tables = SqliteTables.in_memory(clock)
    inbox = SensorInbox(tables, rules_of(RULES.replace("BUCKET", name)), clock)
    tries = RetryPolicy(clock, tables.ping)
    async with (
        open_sqs(ClientSettings(endpoint=ministack().proxy.url, read_s=30.0)) as sqs,
        asyncio.TaskGroup() as tasks,
    ):
        park = QueueDeadLetters("sensors", DeadLetters(tables), tries, clock).park
        consumer = QueueConsumer(
            name="sensors",
            calls=AwsQueue(sqs, url),
            handle=inbox.handle,
            tries=tries,
            clock=clock,
            park=park,
            pace=QUICK,
        )
        tasks.create_task(consumer.run())
        yield Cloud(clients["s3"], name, url, inbox, tables, consumer)
        consumer.stop()


async def queue_arn(clients: dict[str, Any], url: str) -> str:
    answer = await clients["sqs"].get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
    return answer["Attributes"]["QueueArn"]


async def tell(clients: dict[str, Any], cloud: Cloud, **whom: Any) -> None:  # noqa: ANN401 - a request's own shape
    await clients["s3"].put_bucket_notification_configuration(Bucket=cloud.bucket, NotificationConfiguration=whom)


async def test_a_bucket_tells_its_queue_and_an_unchanged_object_is_no_news(
    clients: dict[str, Any], cloud: Cloud
) -> None:
    arn = await queue_arn(clients, cloud.queue_url)
    await tell(clients, cloud, QueueConfigurations=[{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}])

    etag = await cloud.put("orders/dt=2026-03-03/a b+é.csv", b"one")
    await cloud.until_seen(2)
    await cloud.put("orders/dt=2026-03-03/a b+é.csv", b"one")
    await cloud.put("other/readme.txt", b"one")
    await cloud.until_seen(4)

    assert await cloud.sensor("export#2026-03-03") == {"part": "a b+é", "etag": etag, "bytes": 3}
    counts = cloud.inbox.counts
    assert (counts.used, counts.skipped, counts.unmatched, counts.failed) == (1, 2, 1, 0), (
        "S3's own test of the way is skipped too"
    )


async def test_a_bucket_tells_a_topic_and_the_topic_the_queue(clients: dict[str, Any], cloud: Cloud) -> None:
    topic = (await clients["sns"].create_topic(Name=cloud.bucket))["TopicArn"]
    arn = await queue_arn(clients, cloud.queue_url)
    await clients["sns"].subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    body = {
        "Records": [
            {
                "eventName": "ObjectCreated:Put",
                "s3": {"bucket": {"name": cloud.bucket}, "object": {"key": "orders/dt%3D20260304/b.csv", "eTag": "e"}},
            }
        ]
    }

    await clients["sns"].publish(TopicArn=topic, Message=json.dumps(body))
    await cloud.until_seen(1)

    assert await cloud.sensor("export#2026-03-04") == {"part": "b", "etag": "e"}


async def test_what_a_bucket_held_before_is_noted_and_told_only_when_it_changes(
    clients: dict[str, Any], cloud: Cloud
) -> None:
    for part in range(3):
        await cloud.put(f"orders/dt=2026-03-03/{part}.csv", b"old")
    settings = ClientSettings(endpoint=ministack().proxy.url, read_s=30.0)
    seeding = Seeder(cloud.tables, rules_of(RULES.replace("BUCKET", cloud.bucket)), SystemClock())
    async with open_bucket(cloud.bucket, settings) as bucket:
        noted = [each async for each in seeding.run(bucket, BucketPrefix(bucket=cloud.bucket, prefix="orders/"))]
        rest = await bucket.page("orders/", "orders/dt=2026-03-03/1.csv")

    arn = await queue_arn(clients, cloud.queue_url)
    await tell(clients, cloud, QueueConfigurations=[{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}])
    await cloud.put("orders/dt=2026-03-03/0.csv", b"old")
    await cloud.until_seen(2)
    before = await cloud.sensor("export#2026-03-03")
    await cloud.put("orders/dt=2026-03-03/1.csv", b"newer")
    await cloud.until_seen(3)

    assert noted[-1] == SeedProgress(listed=3, noted=3, after="orders/dt=2026-03-03/2.csv")
    assert [each.key for each in rest] == ["orders/dt=2026-03-03/2.csv"]
    assert before is None
    assert (await cloud.sensor("export#2026-03-03"))["part"] == "1"


async def test_an_object_is_read_copied_and_deleted_only_as_long_as_it_is_the_one_that_is_meant(cloud: Cloud) -> None:
    etag = await cloud.put("orders/a é.csv", b"one")
    async with open_objects(ClientSettings(endpoint=endpoint_of(ministack()), read_s=30.0)) as objects:
        place = (cloud.bucket, "orders/a é.csv")
        assert await objects.read(*place, 10) == b"one"
        assert await objects.state(*place) == ObjectState(etag, 3)
        with pytest.raises(Rejected, match="is the most"):
            await objects.read(*place, 2)
        for wrong in (objects.copy(*place, "0" * 32, to_bucket=cloud.bucket, to_key="no"), objects.delete(*place, "x")):
            with pytest.raises(ObjectGone):
                await wrong
        await objects.copy(*place, etag, to_bucket=cloud.bucket, to_key="done/orders/a é.csv")
        await objects.delete(*place, etag)
        await objects.delete(*place, etag)

        assert await objects.state(*place) is None
        assert await objects.read(cloud.bucket, "done/orders/a é.csv", 10) == b"one"
        with pytest.raises(ObjectGone):
            await objects.read(*place, 10)
        with pytest.raises(ObjectGone):
            await objects.copy(*place, etag, to_bucket=cloud.bucket, to_key="no")


async def test_the_command_notes_a_bucket_and_a_second_time_finds_everything_known(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack().proxy.url)
    monkeypatch.setenv("INTERLOCK_STORE", f"sqlite:///{tmp_path}/interlock.db")
    monkeypatch.setenv("INTERLOCK_INBOX", RULES.replace("BUCKET", cloud.bucket))
    for key in ("orders/dt=2026-03-03/a.csv", "orders/readme.txt"):
        await cloud.put(key, b"old")
    assert (await asyncio.to_thread(command, "store", "init")).exit_code == 0

    first, again = [await asyncio.to_thread(command, "inbox", "seed", f"s3://{cloud.bucket}/orders/") for _ in range(2)]

    assert "up to orders/readme.txt" in first.stderr
    assert f"2 objects in s3://{cloud.bucket}/orders/: 1 noted, 0 known already, 1 without a rule" in first.stdout
    assert "0 noted, 1 known already" in again.stdout


async def test_a_bucket_that_is_not_there_is_a_mistake_that_a_person_mends() -> None:
    use_test_credentials()
    async with open_bucket("no-such-bucket", ClientSettings(endpoint=ministack().proxy.url, read_s=30.0)) as bucket:
        with pytest.raises(ConfigError, match=r"no-such-bucket.*s3:ListBucket"):
            await bucket.page("", "")


# --- a worker ---------------------------------------------------------------------------------------------------------


async def test_a_worker_takes_objects_and_events_of_others_from_their_queues(
    tmp_path: Path, clients: dict[str, Any], cloud: Cloud
) -> None:
    place = await install(endpoint_of(ministack()))
    queues = {
        name: (await clients["sqs"].create_queue(QueueName=f"{cloud.bucket}-{name}"))["QueueUrl"]
        for name in ("events", "sensors")
    }
    variables = {
        **place.variables(slack_api=""),
        "INTERLOCK_ROLES": "events,sensors",
        "INTERLOCK_EVENTS_QUEUE": queues["events"],
        "INTERLOCK_JOB_EVENTS": "glue",
        "INTERLOCK_SENSORS_QUEUE": queues["sensors"],
        "INTERLOCK_INBOX": RULES.replace("BUCKET", cloud.bucket),
    }
    arn = await queue_arn(clients, queues["sensors"])
    await tell(clients, cloud, QueueConfigurations=[{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}])
    closed = {"id": "e1", "source": "acme.billing", "detail-type": "Closed", "detail": {"pipelineId": "invoices"}}
    job = {"jobName": "orders", "state": "SUCCEEDED", "jobRunId": "jr_1"}
    ended = {"id": "e2", "source": "aws.glue", "detail-type": "Glue Job State Change", "detail": job}
    for event in (closed, ended):
        await clients["sqs"].send_message(QueueUrl=queues["events"], MessageBody=json.dumps(event))
    await cloud.put("orders/dt=2026-03-05/a.csv", b"one")

    worker = LiveWorker(tmp_path, "inbox", **variables)
    tables = DynamoTables(place.names, SystemClock(), ClientSettings(region=REGION, endpoint=place.endpoint))
    try:
        await tables.start()
        found = await come(lambda: Sensors(tables).get(PipelineId("orders"), "export#2026-03-05"))
        kept = await come(lambda: Events(tables).latest("invoices"))
        [hinted] = await come(lambda: JobHintRows(tables, GROUP).list())
    finally:
        worker.kill()
        await tables.stop()

    assert found.data["part"] == "a"
    assert [(each.event.id, each.event.type, each.out) for each in kept] == [("e1", "Closed", False)]
    # This worker holds no runs, so the hint waits for one that does.
    assert hinted.hints == (hint_of(JobType.GLUE, {"runId": "jr_1"}),)


async def test_a_worker_with_wrong_rules_does_not_start_and_says_where_they_are_wrong(tmp_path: Path) -> None:
    place = await install(endpoint_of(ministack()))
    wrong = {"INTERLOCK_ROLES": "sensors", "INTERLOCK_SENSORS_QUEUE": "http://queue", "INTERLOCK_INBOX": "rules: [{}]"}

    result = await asyncio.to_thread(interlock, "run", at=tmp_path, **place.variables(slack_api=""), **wrong)

    assert result.returncode == 2
    assert "rules[0].pipeline: is required" in result.stderr
