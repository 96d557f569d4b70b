"""10,000 parts of one period through SQS into DynamoDB, by two real workers that are killed: one start with all.

CHAOS_ROUNDS asks for it: it takes minutes. The notifications are in any order, some twice, as S3 and SQS deliver them.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.support.aws.emulators import ministack, use_test_credentials
from tests.support.worlds.inbox import an_object, notification
from tests.support.worlds.installation import REGION, Installation, client, endpoint_of, install
from tests.support.worlds.live_worker import LiveWorker, interlock, today
from worker.core.collect.collection import CollectedPart, add_parts
from worker.core.collect.collection import Collection as Parts
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.keys import RunKey
from worker.core.run.state import Run
from worker.core.time.periods import Period
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.delivery.part_collections import CollectionKey, PartCollections
from worker.store.repos.run_data import RunData
from worker.store.repos.runs import Runs

pytestmark = [
    pytest.mark.xdist_group("aws"),
    pytest.mark.skipif("CHAOS_ROUNDS" not in os.environ, reason="takes minutes; CHAOS_ROUNDS asks for it"),
]

ROUNDS: Final = [(1, 500), (2, int(os.environ.get("PARTS", "10000")))]
PATIENCE_S: Final = 540.0
CONFIG: Final = """
pipeline: {id: orders}
schedule:
  trigger: {key: parts, check: equals, field: complete, value: true}
validation:
  rules: [{key: parts, check: equals, field: complete, value: true}]
job:
  type: command
  config: {command: [sh, -c, "echo started >> STARTS"]}
  pollIntervalSeconds: 1
"""
RULES: Final = """\
rules:
  - name: parts
    object: {bucket: landing, key: "orders/${date}/part-${part}.csv"}
    pipeline: orders
    sensor: parts
    period: ${date}
    collect: {until: {count: COUNT}}
"""


def lines(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def part(day: str, number: int) -> dict[str, Any]:
    return an_object(f"orders/{day}/part-{number}.csv", f"e{number}", "01")


async def send(sqs: Any, queue: str, objects: Sequence[dict[str, Any]]) -> None:  # noqa: ANN401  a client of botocore
    """Send one message for each object, ten at a time."""
    for begin in range(0, len(objects), 10):
        entries = [
            {"Id": str(number), "MessageBody": json.dumps(notification(each))}
            for number, each in enumerate(objects[begin : begin + 10])
        ]
        await sqs.send_message_batch(QueueUrl=queue, Entries=entries)


async def until_started(
    workers: dict[str, LiveWorker],
    again: Callable[[str], LiveWorker],
    starts: Path,
    random: Random,
    kills_wanted: int,
) -> int:
    """Kill one of the workers now and then until the job has started; return how often."""
    kills, deadline = 0, time.monotonic() + PATIENCE_S
    while not lines(starts) or kills < kills_wanted:
        assert time.monotonic() < deadline, "\n".join(each.log.read_text()[-3000:] for each in workers.values())
        await asyncio.sleep(random.uniform(1.0, 6.0))
        if kills < kills_wanted or random.random() < 0.1:
            name = random.choice(sorted(workers))
            workers[name].kill()
            kills += 1
            workers[name] = again(f"{name}-{kills}")
    return kills


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "count"), ROUNDS)
async def test_parts_through_a_queue_and_workers_that_are_killed_are_one_start(
    tmp_path: Path, seed: int, count: int
) -> None:
    use_test_credentials()
    random, day, starts = Random(seed), today(), tmp_path / "starts.txt"
    at = endpoint_of(ministack())
    place = await install(at)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/orders.yaml").write_text(CONFIG.replace("STARTS", str(starts)))
    objects = [part(day, number) for number in range(count)]
    arrivals = random.sample([*objects, *random.sample(objects, count // 5)], count + count // 5)
    async with client("sqs", at) as sqs:
        queue = (await sqs.create_queue(QueueName=f"parts-{seed}", Attributes={"VisibilityTimeout": "30"}))["QueueUrl"]
        variables = {
            **place.variables(slack_api=""),
            "INTERLOCK_SENSORS_QUEUE": queue,
            "INTERLOCK_INBOX": RULES.replace("COUNT", str(count)),
            "INTERLOCK_ROLES": "engine,scheduler,sensors",
        }
        pushed = await asyncio.to_thread(
            interlock, "pipelines", "push", "pipelines/", "--yes", at=tmp_path, **variables
        )
        assert pushed.returncode == 0, pushed.stderr

        def begin(name: str) -> LiveWorker:
            return LiveWorker(tmp_path, name, **variables)

        workers = {name: begin(name) for name in ("one", "two")}
        try:
            await send(sqs, queue, arrivals)
            kills = await until_started(workers, begin, starts, random, kills_wanted=6)
            await asyncio.sleep(5.0)  # a second start, if there were one, would come now
        finally:
            for each in workers.values():
                each.kill()
    await _check(place, day, count, starts)
    assert kills >= 6


async def _check(place: Installation, day: str, count: int, starts: Path) -> None:
    period = Period.parse(day)
    assert period is not None
    key = RunKey(PipelineId("orders"), ScheduleId("stream"), period)
    tables = DynamoTables(place.names, SystemClock(), ClientSettings(region=REGION, endpoint=place.endpoint))
    await tables.start()
    try:
        run = await Runs(tables).load(key)
        inputs = (await RunData(tables).inputs([key]))[key].inputs[f"parts#{day}"].data
        collection = CollectionKey(rule="parts", pipeline=key.pipeline, sensor=f"parts#{day}")
        kept = [each async for each in PartCollections(tables).parts(collection)]
    finally:
        await tables.stop()
    wanted = [
        CollectedPart(key=f"orders/{day}/part-{number}.csv", etag=f"e{number}", size=12) for number in range(count)
    ]
    assert isinstance(run, Run)
    assert inputs is not None
    assert (run.attempt, lines(starts)) == (1, "started\n")
    assert {each.key for each in kept} == {each.key for each in wanted}
    assert (inputs["count"], inputs["digest"]) == (
        count,
        add_parts(Parts(), {}, wanted, SystemClock().now()).collection.digest,
    )
