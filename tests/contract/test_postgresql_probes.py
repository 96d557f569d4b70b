"""Probes of a real PostgreSQL server: one row, nothing changed, nothing beyond the time limit, no secret shown."""

from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

import psycopg
import pytest

from tests.support.postgresql_server import NAME, PASSWORD, USER, find_server, postgresql
from worker.config.load import load_text
from worker.core.model.ids import PipelineId, ScheduleId
from worker.core.model.probes import Probe, ProbeType
from worker.core.model.values import Json
from worker.core.probes.trait import ProbeAnswer, ProbeResult, ProbeUnknown
from worker.core.time.periods import Period
from worker.jobs.aws.client import Aws
from worker.jobs.secrets import EnvironmentSecrets
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.probes.adapters.postgresql import PostgresqlQueries
from worker.probes.adapters.sql import SqlProbes
from worker.probes.prober import ProbeCall, Prober
from worker.runtime.clock import SystemClock
from worker.targets.calls import Targets

pytestmark = [
    pytest.mark.xdist_group("postgresql"),
    pytest.mark.skipif(find_server() is None, reason="no PostgreSQL server is installed: apt-get install postgresql"),
]
CLOCK = SystemClock()
DAY = Period(datetime(2026, 3, 3, tzinfo=UTC).date())
VARIABLE = "${INTERLOCK_WAREHOUSE_URL}"


class Hosts:
    """Knows the name in the server's certificate."""

    async def addresses(self, host: str, port: int) -> list[str]:
        assert host == NAME
        return ["127.0.0.1"]


def a_url(host: str = "127.0.0.1", *, password: str = PASSWORD, more: str = "?sslmode=disable") -> str:
    return f"postgresql://{USER}:{quote(password, safe='')}@{host}:{postgresql().port}/postgres{more}"


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient(AddressPolicy.parse(["127.0.0.1"])) as client:
        yield client


@pytest.fixture(autouse=True)
async def table() -> AsyncGenerator[psycopg.AsyncConnection]:
    async with await psycopg.AsyncConnection.connect(a_url(), autocommit=True) as connection:
        await connection.execute("drop table if exists loads")
        await connection.execute("create table loads (day date, rows bigint, size numeric)")
        await connection.execute("insert into loads values ('2026-03-03', 12, 1.5), ('2026-03-04', 1, 2)")
        yield connection


async def asked(
    hosts: HttpClient | Hosts, query: str, parameters: list[Json] | None = None, *, url: str = "", timeout_s: float = 20
) -> ProbeAnswer:
    secrets = EnvironmentSecrets({"INTERLOCK_WAREHOUSE_URL": url or a_url()})
    config: dict[str, Json] = {
        "engine": "postgresql",
        "url": VARIABLE,
        "query": query,
        "parameters": parameters or [],
    }
    probe = Probe(key="rows", type=ProbeType.SQL, config=config, timeout=timedelta(seconds=timeout_s))
    call = ProbeCall(pipeline=PipelineId("fx"), schedule=ScheduleId("cron"), period=DAY, probe=probe)
    probes = SqlProbes(Aws(None), CLOCK, PostgresqlQueries(hosts, secrets))
    return await Prober({ProbeType.SQL: probes}, Targets(CLOCK)).send(call)


async def test_a_row_is_the_result_with_the_types_of_its_columns(http: HttpClient) -> None:
    row = await asked(http, "select * from loads where day = $1 and rows > $2", ["${DATE}", 5])
    none = await asked(http, "select rows from loads where day = '1999-01-01'")
    kinds = await asked(
        http,
        "select timestamptz '2026-03-03 07:00+00' as at, '{1,2}'::int[] as list, '{\"a\": [true]}'::jsonb as data, "
        "null as nothing, '\\x0102'::bytea as bytes, 1.5::float8 as share, 'a%b' as text",
    )

    assert row == ProbeResult({"exists": True, "day": "2026-03-03", "rows": 12, "size": 1.5})
    assert none == ProbeResult({"exists": False})
    assert kinds == ProbeResult(
        {
            "exists": True,
            "at": "2026-03-03T07:00:00Z",
            "list": [1, 2],
            "data": {"a": [True]},
            "nothing": None,
            "bytes": "0102",
            "share": 1.5,
            "text": "a%b",
        }
    )


@pytest.mark.parametrize(
    "query",
    [
        "delete from loads returning 1",
        "select 1; delete from loads",
        "select 1; commit; delete from loads",
        "with gone as (delete from loads returning 1) select count(*) from gone",
        "commit",
        "set transaction read write",
        "do $$ begin delete from loads; end $$",
        "select",
        "",
    ],
)
async def test_nothing_but_one_statement_that_reads_is_executed(
    http: HttpClient, table: psycopg.AsyncConnection, query: str
) -> None:
    answer = await asked(http, query)

    is_empty_row = answer == ProbeResult({"exists": True})  # `select` alone is a row without columns
    assert isinstance(answer, ProbeUnknown) or is_empty_row, answer
    found = await (await table.execute("select count(*) from loads")).fetchone()
    assert found == (2,)


async def test_more_than_one_row_is_no_result_and_a_huge_one_is_not_fetched(http: HttpClient) -> None:
    answer = await asked(http, "select generate_series(1, 100000000)", timeout_s=10)

    assert isinstance(answer, ProbeUnknown)
    assert answer.kind == "many-rows"


async def test_a_query_that_takes_too_long_ends_at_the_server_too(
    http: HttpClient, table: psycopg.AsyncConnection
) -> None:
    answer = await asked(http, "select pg_sleep(50)", timeout_s=1)

    assert isinstance(answer, ProbeUnknown)
    assert (answer.kind, answer.is_down) == ("timeout", True)
    query = "select count(*) from pg_stat_activity where query like '%pg_sleep(50)%' and pid <> pg_backend_pid()"
    assert await (await table.execute(query)).fetchone() == (0,)


@pytest.mark.parametrize(
    ("url", "words", "is_down"),
    [
        (lambda: a_url(password="open-sesame-wrong"), "password authentication failed", False),
        (lambda: a_url().replace("/postgres?", "/nowhere?"), 'database "nowhere" does not exist', False),
        (lambda: a_url().replace(f":{postgresql().port}/", ":1/"), "no connection", True),
        (lambda: a_url("10.1.2.3"), "10.1.2.3 is private", False),
        (lambda: a_url("169.254.169.254"), "link-local", False),
        (lambda: a_url("localhost"), "localhost is this machine", False),
        (lambda: a_url("127.0.0.1,10.1.2.3"), "one host on the network", False),
        (lambda: a_url(more="?hostaddr=10.1.2.3"), "not supported: hostaddr", False),
        (lambda: a_url(more="?service=other"), "not supported: service", False),
        (lambda: a_url(more="?options=-csearch_path%3Dx"), "not supported: options", False),
        (lambda: a_url(more="?sslmode=nonsense"), "sslmode", True),
        (lambda: a_url().replace("%", "%zz"), "cannot be read", False),
        (lambda: "https://user:open-sesame@db.example/x", "not one of PostgreSQL", False),
        (lambda: f"postgresql://{USER}:open-sesame@/postgres", "names no host", False),
        (lambda: f"postgresql://{USER}:open-sesame@%2Ftmp/postgres", "one host on the network", False),
    ],
)
async def test_a_url_that_leads_nowhere_is_unknown_and_no_part_of_its_password_is_shown(
    http: HttpClient, url: object, words: str, is_down: bool
) -> None:
    assert callable(url)

    answer = await asked(http, "select 1", url=str(url()))

    assert isinstance(answer, ProbeUnknown)
    assert words in answer.reason
    assert answer.is_down == is_down
    assert "sesame" not in answer.reason


async def test_the_checked_address_is_connected_to_and_tls_checks_the_name() -> None:
    trusted = f"?sslmode=verify-full&sslrootcert={quote(str(postgresql().authority))}"

    secure = await asked(
        Hosts(), "select ssl from pg_stat_ssl where pid = pg_backend_pid()", url=a_url(NAME, more=trusted)
    )
    async with HttpClient(AddressPolicy.parse(["127.0.0.1"])) as http:
        other = await asked(http, "select 1", url=a_url("127.0.0.1", more=trusted))

    assert secure == ProbeResult({"exists": True, "ssl": True})
    assert isinstance(other, ProbeUnknown)
    assert f'certificate for "{NAME}"' in other.reason


async def test_a_secret_that_the_row_repeats_is_hidden(http: HttpClient) -> None:
    answer = await asked(http, f"select '{PASSWORD}' as seen, '{a_url()}' as url")

    assert answer == ProbeResult({"exists": True, "seen": "***", "url": "***"})


def test_a_file_with_such_a_probe_loads_and_the_target_of_its_limits_shows_no_password() -> None:
    file = """
pipeline: {id: fx}
schedule: {cron: "0 6 * * *"}
probes:
  - key: rows
    type: sql
    config:
      engine: postgresql
      url: URL
      query: select count(*) as rows from loads where day = $1
      parameters: ["${DATE}"]
validation: {rules: [{key: rows, check: gte, field: rows, value: 1}]}
job: {type: command, config: {command: "true"}}
"""
    probes = SqlProbes(Aws(None), CLOCK, PostgresqlQueries(Hosts(), EnvironmentSecrets({})))

    for url, target in (
        (VARIABLE, "sql:INTERLOCK_WAREHOUSE_URL"),
        ("postgresql://me@db.example/x", "sql:db.example"),
    ):
        loaded = load_text(file.replace("URL", f'"{url}"'))
        assert loaded.pipeline is not None, loaded.errors
        [probe] = loaded.pipeline.probes
        assert probes.target(probe.config) == target
        assert probe.is_dated
    shown = load_text(file.replace("URL", '"postgresql://me:pass@db.example/x"'))
    assert [(problem.path, problem.message) for problem in shown.errors] == [
        ("probes[0].config.url", "holds a password")
    ]
    missing = load_text(file.replace("      url: URL\n", ""))
    assert [problem.path for problem in missing.errors] == ["probes[0].config.url"]
