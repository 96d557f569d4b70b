"""Probes against evaluators that are slow, huge, not JSON, redirecting, flapping or dying: unknown, never an error."""

import asyncio
import gc
import os
import sqlite3
import sys
import warnings
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web

from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.probes import Probe, ProbeType
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeAnswer, ProbeResult, ProbeUnknown
from worker.core.run.state import FailureCategory
from worker.core.time.periods import Period
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.probes.adapters.aws import DynamodbItemProbes, GluePartitionProbes, S3Probes
from worker.probes.adapters.command import CommandProbes
from worker.probes.adapters.http import HttpProbes
from worker.probes.adapters.postgresql import PostgresqlQueries
from worker.probes.adapters.sql import SqlProbes
from worker.probes.prober import ProbeCall, Prober
from worker.probes.runner import ProbeRunner
from worker.runtime.clock import SystemClock
from worker.targets.calls import Targets

SECRET = "sesame-9000"
SECRETS = EnvironmentSecrets({"INTERLOCK_RATES_TOKEN": SECRET})
DAY = Period(datetime(2026, 3, 3, tzinfo=UTC).date())
CLOCK = SystemClock()


def a_call(kind: ProbeType, config: Mapping[str, Json], **more: object) -> ProbeCall:
    probe = Probe(key="rates", type=kind, config=config, **{"timeout": timedelta(seconds=20), **more})  # pyright: ignore[reportArgumentType]
    return ProbeCall(pipeline=PipelineId("fx"), schedule=ScheduleId("cron"), period=DAY, probe=probe)


async def asked(runner: ProbeRunner, call: ProbeCall) -> ProbeAnswer:
    return await Prober({call.probe.type: runner}, Targets(CLOCK)).send(call)


# --- HTTP -------------------------------------------------------------------------------------------------------------


async def _respond(request: web.Request) -> web.StreamResponse:
    match request.match_info["how"]:
        case "pass":
            body = {
                "status": "PASS",
                "value": 3,
                "day": request.query.get("day"),
                "seen": request.headers["authorization"],
            }
            return web.json_response(body)
        case "echo":
            return web.json_response(await request.json())
        case "missing":
            return web.json_response({"status": "FAIL", "reason": "no such day"}, status=404)
        case "nested":
            return web.json_response({"data": {"latest": [{"rate": 1.5}]}, "noise": "x" * 20_000})
        case "slow":
            await asyncio.sleep(30)
        case "huge":
            return web.Response(text='{"a": "' + "x" * 200_000 + '"}')
        case "text":
            return web.Response(text=f"<html>{SECRET}</html>")
        case "deep":
            return web.Response(text="[" * 500 + "]" * 500)
        case "metadata":
            raise web.HTTPFound("http://169.254.169.254/latest/meta-data/")
        case "dying":
            response = web.StreamResponse(headers={"Content-Length": "100"})
            await response.prepare(request)
            await response.write(b'{"status": ')
            assert request.transport
            request.transport.abort()
            return response
        case status:
            return web.Response(status=int(status), text=f"no, {SECRET}")
    return web.Response()


@asynccontextmanager
async def evaluator() -> AsyncGenerator[tuple[str, HttpProbes]]:
    app = web.Application()
    app.router.add_route("*", "/{how}", _respond)
    # Not 0, which aiohttp reads as no limit: it would wait for the slow evaluator.
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    async with HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        yield f"http://127.0.0.1:{port}", HttpProbes(client, CLOCK, SECRETS)
    await runner.cleanup()


async def test_a_response_is_the_result_without_the_secrets_that_it_repeats() -> None:
    async with evaluator() as (url, probes):
        config: dict[str, Json] = {
            "url": f"{url}/pass?day=${{DATE}}",
            "headers": {"authorization": "Bearer ${INTERLOCK_RATES_TOKEN}"},
        }
        answer = await asked(probes, a_call(ProbeType.HTTP, config))

    assert answer == ProbeResult(
        {"status": "PASS", "value": 3, "day": "2026-03-03", "seen": "Bearer ***", "httpStatus": 200}
    )


async def test_a_post_sends_pipeline_schedule_period_and_parameters() -> None:
    async with evaluator() as (url, probes):
        config: dict[str, Json] = {"url": f"{url}/echo", "method": "POST", "parameters": {"least": 5}}
        answer = await asked(probes, a_call(ProbeType.HTTP, config))

    assert isinstance(answer, ProbeResult)
    assert answer.data["config"] == {"least": 5}
    assert [answer.data[name] for name in ("pipeline", "schedule", "period")] == ["fx", "cron", "2026-03-03"]


async def test_a_response_that_says_no_is_a_result() -> None:
    async with evaluator() as (url, probes):
        answer = await asked(probes, a_call(ProbeType.HTTP, {"url": f"{url}/missing"}))

    assert answer == ProbeResult({"status": "FAIL", "reason": "no such day", "httpStatus": 404})


async def test_json_path_selects_what_is_kept_of_a_response() -> None:
    async with evaluator() as (url, probes):
        config: dict[str, Json] = {"url": f"{url}/nested"}
        fields = await asked(probes, a_call(ProbeType.HTTP, config, select={"rate": "data.latest.0.rate", "no": "x.y"}))
        part = await asked(probes, a_call(ProbeType.HTTP, config, select_all="$.data.latest.0"))
        nothing = await asked(probes, a_call(ProbeType.HTTP, config, select_all="data.never"))
        everything = await asked(probes, a_call(ProbeType.HTTP, config))

    assert fields == ProbeResult({"rate": 1.5, "httpStatus": 200})
    assert part == ProbeResult({"rate": 1.5, "httpStatus": 200})
    assert isinstance(nothing, ProbeUnknown)
    assert isinstance(everything, ProbeUnknown)
    assert "jsonPath" in everything.reason


@pytest.mark.parametrize(
    ("how", "kind", "is_down"),
    [
        ("slow", "timeout", True),
        ("huge", "too-long", False),
        ("text", "not-json", False),
        ("deep", "unfit", False),
        ("dying", "broken", True),
        ("503", "http-503", True),
        ("401", "http-401", False),
        ("429", "http-429", True),
        ("metadata", "rejected", False),
    ],
)
async def test_a_hostile_evaluator_is_unknown_with_a_reason_without_secrets(how: str, kind: str, is_down: bool) -> None:
    timeout = timedelta(seconds=1 if how == "slow" else 20)
    config_headers: Json = {"authorization": "${INTERLOCK_RATES_TOKEN}"}
    async with evaluator() as (url, probes):
        call = a_call(ProbeType.HTTP, {"url": f"{url}/{how}", "headers": config_headers}, timeout=timeout)
        answer = await asked(probes, call)

    assert isinstance(answer, ProbeUnknown)
    assert (answer.kind, answer.is_down) == (kind, is_down)
    assert SECRET not in answer.reason
    assert "\n" not in answer.reason
    if how == "metadata":
        assert "169.254.169.254 is link-local" in answer.reason


async def test_an_address_that_no_job_may_reach_is_refused_before_anything_is_sent() -> None:
    async with HttpClient(AddressPolicy.parse([])) as client:
        answer = await asked(HttpProbes(client, CLOCK, SECRETS), a_call(ProbeType.HTTP, {"url": "http://127.0.0.1:9/"}))

    assert isinstance(answer, ProbeUnknown)
    assert "127.0.0.1 is loopback" in answer.reason


async def test_a_missing_secret_is_named_and_nothing_is_sent() -> None:
    async with evaluator() as (url, probes):
        config: dict[str, Json] = {"url": f"{url}/pass", "headers": {"authorization": "${INTERLOCK_OTHER}"}}
        answer = await asked(probes, a_call(ProbeType.HTTP, config))

    assert isinstance(answer, ProbeUnknown)
    assert "${INTERLOCK_OTHER}, which is not set" in answer.reason


# --- programs ---------------------------------------------------------------------------------------------------------

PROGRAMS = {
    "pass": (
        "import json,sys; r=json.load(sys.stdin)\n"
        "print(json.dumps({'status':'PASS','value':r['config']['least'],'day':r['period']}))"
    ),
    "deaf": 'print(\'{"status": "FAIL"}\')',
    "text": "print('hello')",
    "nothing": "",
    "dying": "import sys; sys.exit('no rates, sesame-9000')",
    "huge": "import sys\nwhile True: sys.stdout.write('x' * 100000)",
    "wordy": "import sys; sys.stderr.write('x' * 1000000); print('{\"status\": \"PASS\"}')",
    "slow": "import os,time; os.fork(); time.sleep(60)",
}


def a_program(how: str, **more: object) -> ProbeCall:
    config: dict[str, Json] = {
        "command": [sys.executable, "-c", PROGRAMS[how]],
        "parameters": {"least": 7},
        "environment": {"TOKEN": "${INTERLOCK_RATES_TOKEN}"},
    }
    return a_call(ProbeType.COMMAND, config, **more)


async def test_a_program_gets_json_and_responds_with_json() -> None:
    probes = CommandProbes(SECRETS, {"PATH": os.environ["PATH"]})

    assert await asked(probes, a_program("pass")) == ProbeResult({"status": "PASS", "value": 7, "day": "2026-03-03"})
    assert await asked(probes, a_program("deaf")) == ProbeResult({"status": "FAIL"})
    assert await asked(probes, a_program("wordy")) == ProbeResult({"status": "PASS"})


@pytest.mark.parametrize(
    ("how", "kind"),
    [("text", "not-json"), ("nothing", "not-json"), ("dying", "exit-1"), ("huge", "too-long"), ("slow", "timeout")],
)
async def test_a_hostile_program_is_unknown_and_ends_with_the_request(how: str, kind: str) -> None:
    probes = CommandProbes(SECRETS, {"PATH": os.environ["PATH"]})

    answer = await asked(probes, a_program(how, timeout=timedelta(seconds=2 if how == "slow" else 30)))

    assert isinstance(answer, ProbeUnknown)
    assert answer.kind == kind
    assert SECRET not in answer.reason


async def test_a_program_that_leaves_another_behind_is_answered_and_the_other_ends(tmp_path: Path) -> None:
    """The other has left its group and its session, and holds the outputs."""
    note = tmp_path / "pid"
    code = f"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open({str(note)!r}, "w").write(str(os.getpid()))
        time.sleep(60)
    os._exit(0)
while not os.path.exists({str(note)!r}): time.sleep(0.01)
print('{{"status": "PASS"}}', flush=True)
"""
    call = a_call(ProbeType.COMMAND, {"command": [sys.executable, "-c", code]}, timeout=timedelta(seconds=30))

    answer = await asked(CommandProbes(SECRETS, {"PATH": os.environ["PATH"]}), call)

    assert answer == ProbeResult({"status": "PASS"})
    left = Path("/proc") / note.read_text() / "stat"
    for _ in range(500):  # a killed process ends a moment later, or waits for who reaps it
        if not left.exists() or ") Z " in left.read_text():
            break
        await asyncio.sleep(0.01)
    else:
        pytest.fail("it runs on")


def test_a_program_that_is_killed_has_ended_before_the_request_does() -> None:
    async def ask_and_stop() -> None:
        probes = CommandProbes(SECRETS, {"PATH": os.environ["PATH"]})
        await asked(probes, a_program("slow", timeout=timedelta(seconds=0.5)))

    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        asyncio.run(ask_and_stop())  # the loop ends at once: nothing can wait for the process later
        gc.collect()

    assert [str(complaint.message) for complaint in complaints] == []


async def test_a_program_that_does_not_exist_is_unknown() -> None:
    answer = await asked(CommandProbes(SECRETS, {}), a_call(ProbeType.COMMAND, {"command": "no-such-program-anywhere"}))

    assert isinstance(answer, ProbeUnknown)
    assert answer.kind == "not-runnable"


# --- AWS --------------------------------------------------------------------------------------------------------------


class Answers:
    """A client of AWS that answers as the test says, and fails with a code where the test says one."""

    def __init__(self, *answers: Mapping[str, object] | str) -> None:
        self._answers, self.calls = list(answers), list[tuple[str, str, Mapping[str, object]]]()

    async def call(self, service: str, operation: str, parameters: Mapping[str, object]) -> Mapping[str, object]:
        self.calls.append((service, operation, dict(parameters)))
        answer = self._answers.pop(0)
        if isinstance(answer, str):
            code, _, said = answer.partition(": ")
            message = f"{service} {operation}: {code}: {said}"
            raise AwsTrouble(message, category=FailureCategory.PERMANENT, code=code)
        return answer


NEWEST = datetime(2026, 3, 3, 7, tzinfo=UTC)


async def test_s3_finds_one_object_or_none() -> None:
    aws = Answers({"ContentLength": 12, "LastModified": NEWEST, "ETag": '"abc"'}, "404: Not Found", "403: Forbidden")
    probes = S3Probes(aws)  # pyright: ignore[reportArgumentType]
    call = a_call(ProbeType.S3, {"bucket": "lake", "key": "in/${DATE}/a.csv"})

    assert await asked(probes, call) == ProbeResult(
        {"exists": True, "count": 1, "bytes": 12, "newest": "2026-03-03T07:00:00Z", "etag": "abc"}
    )
    assert await asked(probes, call) == ProbeResult({"exists": False, "count": 0, "bytes": 0})
    assert isinstance(await asked(probes, call), ProbeUnknown)
    assert aws.calls[0][2] == {"Bucket": "lake", "Key": "in/2026-03-03/a.csv"}


async def test_s3_counts_the_objects_of_a_prefix_up_to_a_limit() -> None:
    def page(first: int, count: int, **more: object) -> Mapping[str, object]:
        objects = [{"Key": f"in/{n}.csv", "Size": 2, "LastModified": NEWEST} for n in range(first, first + count)]
        return {"Contents": objects, **more}

    done = {"Contents": [{"Key": "in/_SUCCESS", "Size": 0}, {"Key": "in/", "Size": 0}, {"Key": "in/a", "Size": 5}]}
    small = await asked(S3Probes(Answers(done)), a_call(ProbeType.S3, {"bucket": "b", "prefix": "in/"}))  # pyright: ignore[reportArgumentType]
    assert small == ProbeResult({"exists": True, "count": 1, "bytes": 5, "success": True})

    aws = Answers(page(0, 1000, NextContinuationToken="t1"), page(1000, 1000, NextContinuationToken="t2"))
    call = a_call(ProbeType.S3, {"bucket": "b", "prefix": "in/", "maxObjects": 2000})
    large = await asked(S3Probes(aws), call)  # pyright: ignore[reportArgumentType]
    assert isinstance(large, ProbeResult)
    assert (large.data["count"], large.data["truncated"], len(aws.calls)) == (2000, True, 2)


async def test_a_partition_exists_or_not_and_a_missing_table_shows_nothing() -> None:
    found = {"Partition": {"CreationTime": NEWEST, "Parameters": {"recordCount": "42"}}}
    aws = Answers(
        found, "EntityNotFoundException: Cannot find partition.", "EntityNotFoundException: Table x not found"
    )
    probes = GluePartitionProbes(aws)  # pyright: ignore[reportArgumentType]
    call = a_call(ProbeType.GLUE_PARTITION, {"database": "d", "table": "t", "values": ["${DATE}"]})

    created = "2026-03-03T07:00:00Z"
    assert await asked(probes, call) == ProbeResult({"exists": True, "createdAt": created, "rows": 42})
    assert await asked(probes, call) == ProbeResult({"exists": False})
    assert isinstance(await asked(probes, call), ProbeUnknown)


async def test_an_item_is_read_with_its_attributes() -> None:
    aws = Answers({"Item": {"status": {"S": "PASS"}, "rows": {"N": "12"}}}, {})
    probes = DynamodbItemProbes(aws)  # pyright: ignore[reportArgumentType]
    call = a_call(ProbeType.DYNAMODB_ITEM, {"table": "feeds", "key": {"pk": "orders", "day": "${DATE}"}})

    assert await asked(probes, call) == ProbeResult({"exists": True, "status": "PASS", "rows": 12})
    assert await asked(probes, call) == ProbeResult({"exists": False})
    assert aws.calls[0][2]["Key"] == {"pk": {"S": "orders"}, "day": {"S": "2026-03-03"}}
    assert aws.calls[0][2]["ConsistentRead"] is True


class NoHosts:
    async def addresses(self, host: str, port: int) -> list[str]:
        raise OSError(f"{host}:{port} is not asked for")


NO_SERVER = PostgresqlQueries(NoHosts(), SECRETS)


# --- SQL --------------------------------------------------------------------------------------------------------------


def a_query(path: Path, query: str, **more: object) -> ProbeCall:
    config: dict[str, Json] = {"engine": "sqlite", "path": str(path), "query": query, "parameters": []}
    return a_call(ProbeType.SQL, config, **more)


async def test_a_query_returns_its_row_and_can_change_nothing(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.db"
    with sqlite3.connect(path) as connection:
        connection.execute("create table loads (day text, rows integer)")
        connection.execute("insert into loads values ('2026-03-03', 12), ('2026-03-04', 1)")
    connection.close()
    probes = SqlProbes(Answers(), CLOCK, NO_SERVER)  # pyright: ignore[reportArgumentType]

    row = await asked(probes, a_query(path, "select day, rows from loads where day = '${DATE}'"))
    assert row == ProbeResult({"exists": True, "day": "2026-03-03", "rows": 12})
    none = await asked(probes, a_query(path, "select rows from loads where day = 'never'"))
    assert none == ProbeResult({"exists": False})
    for query, kind in (
        ("select * from loads", "many-rows"),
        ("delete from loads", "query-failed"),
        (f"attach '{tmp_path}/other.db' as other", "query-failed"),
        ("pragma user_version = 3", "query-failed"),
        ("select", "query-failed"),
        ("select 1; delete from loads", "query-failed"),
        ("select hex(zeroblob(100000000))", "query-failed"),
    ):
        answer = await asked(probes, a_query(path, query))
        assert isinstance(answer, ProbeUnknown), query
        assert answer.kind == kind
    missing = await asked(probes, a_query(tmp_path / "missing.db", "select 1"))
    assert isinstance(missing, ProbeUnknown)
    assert not (tmp_path / "missing.db").exists()


async def test_a_query_that_takes_too_long_is_interrupted(tmp_path: Path) -> None:
    path = tmp_path / "warehouse.db"
    sqlite3.connect(path).close()
    path.touch()
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    probes = SqlProbes(Answers(), CLOCK, NO_SERVER)  # pyright: ignore[reportArgumentType]

    answer = await asked(probes, a_query(path, endless, timeout=timedelta(seconds=1)))

    assert isinstance(answer, ProbeUnknown)
    assert answer.kind == "timeout"


async def test_athena_is_polled_until_its_row_is_there() -> None:
    columns = [{"Name": "rows", "Type": "bigint"}, {"Name": "done", "Type": "boolean"}]
    cells = [[{"VarCharValue": "rows"}, {"VarCharValue": "done"}], [{"VarCharValue": "7"}, {"VarCharValue": "true"}]]
    aws = Answers(
        {"QueryExecutionId": "q1"},
        {"QueryExecution": {"Status": {"State": "SUCCEEDED"}}},
        {"ResultSet": {"ResultSetMetadata": {"ColumnInfo": columns}, "Rows": [{"Data": row} for row in cells]}},
    )
    config: dict[str, Json] = {"engine": "athena", "database": "d", "query": "select 1", "parameters": ["it's"]}

    answer = await asked(SqlProbes(aws, CLOCK, NO_SERVER), a_call(ProbeType.SQL, config))  # pyright: ignore[reportArgumentType]

    assert answer == ProbeResult({"exists": True, "rows": 7, "done": True})
    assert aws.calls[0][2]["ExecutionParameters"] == ["'it''s'"]
