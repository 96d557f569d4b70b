"""A real worker in shadow mode on DynamoDB, on rows as the reference and its producers write them."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.aws.emulators import ministack
from tests.support.worlds.installation import Installation, client, endpoint_of, install
from tests.support.worlds.live_worker import PATIENCE_S, LiveWorker, interlock
from worker.core.model.keys import SHADOW
from worker.store.table import TableName

pytestmark = [pytest.mark.xdist_group("aws-workers"), pytest.mark.timeout(240)]

ORDERS = {
    "pipeline": {"id": "orders"},
    "schedule": {"trigger": {"key": "ready", "check": "equals", "field": "status", "value": "done"}},
    "validation": {"rules": [{"key": "count", "check": "gte", "field": "rows", "value": 10}]},
    "job": {"type": "step-function", "config": {"stateMachineArn": "arn:aws:states:eu-west-1:000000000000:x:y"}},
}
DAY = datetime.now(UTC).date().isoformat()  # an emulator lives in real time
Rows = Mapping[tuple[str, str, str], Mapping[str, Any]]


async def test_a_shadow_beside_the_reference_agrees_and_leaves_its_rows_as_they_are(tmp_path: Path) -> None:
    place = await install(endpoint_of(ministack()))
    await put(place, TableName.CONTROL, "CONFIG", config={"S": json.dumps(ORDERS)})
    variables = {**place.variables("http://127.0.0.1:1"), "INTERLOCK_SHADOW": "1"}
    worker = LiveWorker(tmp_path, "shadow", **variables)
    try:
        await until(worker, lambda: logged(worker, '"pipelines.resynced"'))
        # What producers and the reference write.
        await put(place, TableName.CONTROL, f"SENSOR#count#{DAY}", data={"M": {"rows": {"N": "12"}}})
        await put(place, TableName.CONTROL, f"SENSOR#ready#{DAY}", data={"M": {"status": {"S": "done"}}})
        await put(place, TableName.CONTROL, f"TRIGGER#stream#{DAY}", status={"S": "COMPLETED"})
        await put(place, TableName.JOBLOG, f"JOB#stream#{DAY}#{int(time.time() * 1000)}", event={"S": "success"})
        theirs = {key: row for key, row in (await rows(place)).items() if not is_shadows(key)}

        await until(worker, lambda: decided(place))
        await asyncio.to_thread(worker.stop)

        after = await rows(place)
        assert {key: row for key, row in after.items() if not is_shadows(key)} == theirs
        compared = interlock("migrate", "compare", "orders", "--json", at=tmp_path, **variables)
        [run, _] = [json.loads(line) for line in compared.stdout.splitlines()]
        assert run["result"] == "agreed", compared.stderr
    finally:
        if worker.process.poll() is None:
            worker.kill()


def is_shadows(key: tuple[str, str, str]) -> bool:
    return key[1].startswith(SHADOW) or key[2].startswith(SHADOW)


async def put(place: Installation, table: TableName, sk: str, **attributes: Any) -> None:  # noqa: ANN401
    async with client("dynamodb", place.endpoint) as dynamodb:
        item = {"PK": {"S": "PIPELINE#orders"}, "SK": {"S": sk}, **attributes}
        await dynamodb.put_item(TableName=place.names[table], Item=item)


async def rows(place: Installation) -> Rows:
    """Everything there is, for a test that must see it all; past the wire on which nobody may scan."""
    async with client("dynamodb", place.endpoint) as dynamodb:
        found = {table: (await dynamodb.scan(TableName=name))["Items"] for table, name in place.names.items()}
    return {(table, item["PK"]["S"], item["SK"]["S"]): item for table, items in found.items() for item in items}


async def logged(worker: LiveWorker, text: str) -> bool:
    return worker.has_logged(text)


async def decided(place: Installation) -> bool:
    found = (await rows(place)).get((TableName.CONTROL, "PIPELINE#orders", f"{SHADOW}DRY_RUN#stream#{DAY}"), {})
    return found.get("state") == {"S": "WOULD_TRIGGER"}


async def until(worker: LiveWorker, has_come: Callable[[], Awaitable[bool]]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not await has_come():
        said = worker.log.read_text()
        assert time.monotonic() < deadline, f"it did not come; the worker said:\n{said}"
        assert worker.process.poll() is None, f"the worker ended:\n{said}"
        await asyncio.sleep(0.3)
