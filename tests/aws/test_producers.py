"""Producers write sensor rows with plain requests and do not try again: nothing we do may make those fail."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from tests.aws.conftest import Rig
from worker.net.aws_client import ClientSettings, open_client
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.table import Key, Put, TableName, Update, Write

if TYPE_CHECKING:
    from types_aiobotocore_dynamodb.client import DynamoDBClient

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("aws")]

CONTROL, JOBLOG, EVENTS = TableName.CONTROL, TableName.JOBLOG, TableName.EVENTS
PIPELINE = "PIPELINE#orders"
RUN = Key(PIPELINE, "TRIGGER#cron#0")


def heaviest_transaction() -> list[Write]:
    """As many writes as fit in one commit, all about the pipeline whose sensors are being written."""
    events = [Put(EVENTS, {"PK": PIPELINE, "SK": f"{n}#DONE"}) for n in range(48)]
    logs = [Put(JOBLOG, {"PK": PIPELINE, "SK": f"JOB#cron#{n}"}) for n in range(48)]
    runs = [Update(table=CONTROL, key=Key(PIPELINE, f"TRIGGER#cron#{n}"), set={"v": n}) for n in range(4)]
    return [*runs, *events, *logs]


async def report(rig: Rig, producer: "DynamoDBClient", sk: str, count: int) -> None:
    """Write a sensor as producers do: a plain update, no condition, no second try."""
    await producer.update_item(
        TableName=rig.names[CONTROL],
        Key={"PK": {"S": PIPELINE}, "SK": {"S": sk}},
        UpdateExpression="SET #d = :d",
        ExpressionAttributeNames={"#d": "data"},
        ExpressionAttributeValues={":d": {"M": {"count": {"N": str(count)}}}},
    )


@asynccontextmanager
async def during_a_transaction(rig: Rig) -> AsyncGenerator["asyncio.Task[None]"]:
    """The time in which our heaviest transaction is under way; it ends when that is released."""
    patient = DynamoTables(rig.names, SystemClock(), ClientSettings(endpoint=rig.wire.url, read_s=30.0))
    await patient.start()
    rig.wire.hold_transactions()
    try:
        async with asyncio.TaskGroup() as ours:
            transaction = ours.create_task(patient.commit(*heaviest_transaction()))
            await rig.wire.transaction_is_held()
            yield transaction
            rig.wire.release_transactions()
    finally:
        rig.wire.release_transactions()
        await patient.stop()


async def test_a_plain_write_of_a_row_in_a_transaction_meets_a_conflict(rig: Rig) -> None:
    """Shows that the wire refuses what DynamoDB would refuse, so that the next test can fail."""
    async with open_client(ClientSettings(endpoint=rig.wire.url)) as producer, during_a_transaction(rig):
        with pytest.raises(ClientError, match="TransactionConflict"):
            await report(rig, producer, RUN.sk, 1)


async def test_a_producer_never_meets_a_conflict_during_our_heaviest_transaction(rig: Rig) -> None:
    async with open_client(ClientSettings(endpoint=rig.wire.url)) as producer, during_a_transaction(rig):
        for count in range(10):
            await report(rig, producer, "SENSOR#orders", count)
        await report(rig, producer, "CONFIG", 1)

    sensor = await rig.other.get(CONTROL, Key(PIPELINE, "SENSOR#orders"))
    assert sensor is not None
    assert sensor["data"] == {"count": 9}


async def test_our_own_plain_write_waits_for_our_transaction(rig: Rig) -> None:
    async with during_a_transaction(rig) as transaction:

        async def the_transaction_ends() -> None:
            rig.wire.release_transactions()
            await transaction

        rig.clock.interruption = the_transaction_ends

        await rig.ours.commit(Update(table=CONTROL, key=RUN, set={"seen": True}))

    run = await rig.other.get(CONTROL, RUN)
    assert run is not None
    assert (run["v"], run["seen"]) == (0, True)
