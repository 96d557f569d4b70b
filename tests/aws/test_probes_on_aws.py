"""Probes of AWS on an emulator: what the test's own answers might get wrong about the services, it would show."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiobotocore.session import AioSession

from tests.support.aws.emulators import moto, use_test_credentials
from tests.support.fakes.aws import aws_at
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.probes import Probe, ProbeType
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeAnswer, ProbeResult, ProbeUnknown
from worker.core.time.periods import Period
from worker.jobs.aws.client import Aws
from worker.jobs.secrets import EnvironmentSecrets
from worker.probes.adapters.aws import DynamodbItemProbes, GluePartitionProbes, S3Probes
from worker.probes.adapters.postgresql import PostgresqlQueries
from worker.probes.adapters.sql import SqlProbes
from worker.probes.prober import ProbeCall, Prober
from worker.probes.runner import ProbeRunner
from worker.runtime.clock import SystemClock
from worker.targets.calls import Targets

pytestmark = pytest.mark.xdist_group("aws")

CLOCK = SystemClock()
SESSION = AioSession()
DAY = Period(datetime(2026, 3, 3, tzinfo=UTC).date())


def url() -> str:
    """Not the proxy, which gives no leave to send a body and waits for that of a HEAD."""
    return f"http://127.0.0.1:{moto().port}"


@asynccontextmanager
async def admin(service: Any) -> AsyncGenerator[Any]:  # noqa: ANN401 - to set a stage with
    use_test_credentials()
    async with SESSION.create_client(service, region_name="eu-west-1", endpoint_url=url()) as client:
        yield client


@pytest.fixture
async def aws() -> AsyncGenerator[Aws]:
    async with aws_at(url()) as opened:
        yield opened


async def asked(
    runner: ProbeRunner, kind: ProbeType, config: Mapping[str, Json], timeout_s: float = 20.0
) -> ProbeAnswer:
    probe = Probe(key="probe", type=kind, config=config, timeout=timedelta(seconds=timeout_s))
    call = ProbeCall(pipeline=PipelineId("fx"), schedule=ScheduleId("cron"), period=DAY, probe=probe)
    return await Prober({kind: runner}, Targets(CLOCK)).send(call)


async def test_an_object_and_a_prefix_of_a_bucket_are_looked_up(aws: Aws) -> None:
    async with admin("s3") as s3:
        await s3.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
        for name, body in (("a.csv", b"12345"), ("b.csv", b"1"), ("_SUCCESS", b""), ("", b"")):
            await s3.put_object(Bucket="lake", Key=f"in/2026-03-03/{name}", Body=body)
    probes = S3Probes(aws)

    one = await asked(probes, ProbeType.S3, {"bucket": "lake", "key": "in/${DATE}/a.csv"})
    none = await asked(probes, ProbeType.S3, {"bucket": "lake", "key": "in/${DATE}/c.csv"})
    several = await asked(probes, ProbeType.S3, {"bucket": "lake", "prefix": "in/${DATE}/"})
    cut = await asked(probes, ProbeType.S3, {"bucket": "lake", "prefix": "in/", "maxObjects": 2})
    nothing = await asked(probes, ProbeType.S3, {"bucket": "lake", "prefix": "out/"})
    elsewhere = await asked(probes, ProbeType.S3, {"bucket": "no-such-lake", "prefix": "in/"})

    assert isinstance(one, ProbeResult)
    assert (one.data["exists"], one.data["bytes"]) == (True, 5)
    assert one.data["etag"] == "827ccb0eea8a706c4c34a16891f84e7b"
    assert str(one.data["newest"]).endswith("Z")
    assert none == ProbeResult({"exists": False, "count": 0, "bytes": 0})
    assert isinstance(several, ProbeResult)
    assert [several.data[name] for name in ("exists", "count", "bytes", "success")] == [True, 2, 6, True]
    assert isinstance(cut, ProbeResult)
    assert cut.data["truncated"] is True
    assert nothing == ProbeResult({"exists": False, "count": 0, "bytes": 0, "success": False})
    assert isinstance(elsewhere, ProbeUnknown)
    assert "NoSuchBucket" in elsewhere.reason


async def test_a_partition_is_there_or_not_and_a_missing_table_is_neither(aws: Aws) -> None:
    async with admin("glue") as glue:
        await glue.create_database(DatabaseInput={"Name": "ledger"})
        table = {"Name": "positions", "PartitionKeys": [{"Name": "day", "Type": "string"}]}
        await glue.create_table(DatabaseName="ledger", TableInput=table)
        partition = {"Values": ["2026-03-03"], "Parameters": {"recordCount": "42"}}
        await glue.create_partition(DatabaseName="ledger", TableName="positions", PartitionInput=partition)
    probes = GluePartitionProbes(aws)

    async def of(table: str, day: str) -> ProbeAnswer:
        config: dict[str, Json] = {"database": "ledger", "table": table, "values": [day]}
        return await asked(probes, ProbeType.GLUE_PARTITION, config)

    found, missing, no_table = await of("positions", "${DATE}"), await of("positions", "x"), await of("nowhere", "x")

    assert isinstance(found, ProbeResult)
    assert (found.data["exists"], found.data["rows"]) == (True, 42)
    assert str(found.data["createdAt"]).endswith("Z")
    assert missing == ProbeResult({"exists": False})
    assert isinstance(no_table, ProbeUnknown)
    assert "EntityNotFoundException" in no_table.reason


async def test_an_item_is_read_whole_or_in_part(aws: Aws) -> None:
    async with admin("dynamodb") as dynamodb:
        await dynamodb.create_table(
            TableName="feeds",
            KeySchema=[{"AttributeName": "feed", "KeyType": "HASH"}, {"AttributeName": "day", "KeyType": "RANGE"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("feed", "day")],
            BillingMode="PAY_PER_REQUEST",
        )
        item = {"feed": {"S": "fx"}, "day": {"S": "2026-03-03"}, "status": {"S": "PASS"}, "rows": {"N": "12.5"}}
        await dynamodb.put_item(TableName="feeds", Item=item)
    probes = DynamodbItemProbes(aws)
    key: Json = {"feed": "fx", "day": "${DATE}"}

    whole = await asked(probes, ProbeType.DYNAMODB_ITEM, {"table": "feeds", "key": key})
    part = await asked(probes, ProbeType.DYNAMODB_ITEM, {"table": "feeds", "key": key, "fields": ["status"]})
    none = await asked(probes, ProbeType.DYNAMODB_ITEM, {"table": "feeds", "key": {"feed": "x", "day": "x"}})
    wrong = await asked(probes, ProbeType.DYNAMODB_ITEM, {"table": "feeds", "key": {"feed": "fx"}})

    assert isinstance(whole, ProbeResult)
    assert {name: str(value) for name, value in whole.data.items()} == {
        "exists": "True",
        "feed": "fx",
        "day": "2026-03-03",
        "status": "PASS",
        "rows": "12.5",
    }
    assert part == ProbeResult({"exists": True, "status": "PASS"})
    assert none == ProbeResult({"exists": False})
    assert isinstance(wrong, ProbeUnknown)
    assert "ValidationException" in wrong.reason


# --- Athena -----------------------------------------------------------------------------------------------------------


async def tell_moto(path: str, said: Mapping[str, object]) -> None:
    """Set the stage by the emulator's own API: it runs no queries."""
    request = urllib.request.Request(
        f"{url()}/moto-api/{path}", json.dumps(said).encode(), {"Content-Type": "application/json"}
    )
    await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=10).close())


async def takes(polls: int) -> None:
    """Let a query be under way for as many looks at it."""
    transition = {"progression": "manual", "times": polls} if polls else {"progression": "immediate"}
    await tell_moto("state-manager/set-transition", {"model_name": "athena::execution", "transition": transition})


class NoHosts:
    async def addresses(self, host: str, port: int) -> list[str]:
        raise OSError(f"{host}:{port} is not asked for")


NO_SERVER = PostgresqlQueries(NoHosts(), EnvironmentSecrets({}))
QUERY: Mapping[str, Json] = {
    "engine": "athena",
    "database": "ledger",
    "query": "select count(*) as rows, max(day) as day from positions where day = ?",
    "parameters": ["2026-03-03"],
    "output": "s3://results/probes",
}


async def test_a_query_is_followed_to_its_row(aws: Aws) -> None:
    columns = [{"Name": "rows", "Type": "bigint"}, {"Name": "day", "Type": "varchar"}]
    cells = [["rows", "day"], ["42", "2026-03-03"]]
    rows = [{"Data": [{"VarCharValue": cell} for cell in row]} for row in cells]
    await takes(0)
    results = {"region": "eu-west-1", "results": [{"rows": rows, "column_info": columns}]}
    await tell_moto("static/athena/query-results", results)

    answer = await asked(SqlProbes(aws, CLOCK, NO_SERVER), ProbeType.SQL, QUERY)

    assert answer == ProbeResult({"exists": True, "rows": 42, "day": "2026-03-03"})


async def test_a_query_that_takes_too_long_is_stopped_at_athena(aws: Aws) -> None:
    await takes(1000)

    answer = await asked(SqlProbes(aws, CLOCK, NO_SERVER), ProbeType.SQL, QUERY, timeout_s=1.0)

    assert isinstance(answer, ProbeUnknown)
    assert answer.kind == "timeout"
    async with admin("athena") as athena:
        states = [
            (await athena.get_query_execution(QueryExecutionId=each))["QueryExecution"]["Status"]["State"]
            for each in (await athena.list_query_executions())["QueryExecutionIds"]
        ]
    assert "CANCELLED" in states
