"""One URL says which store, and a wrong one says what is wrong with it."""

from pathlib import Path

import pytest

from tests.support.clock.manual import ManualClock
from worker.core.errors import ConfigError
from worker.store.backends.open import open_tables
from worker.store.dynamodb.tables import DynamoTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import TableName
from worker.store.url import RedisPlace, locate, without_secrets


def dynamodb(url: str) -> DynamoTables:
    tables = open_tables(url, ManualClock())
    assert isinstance(tables, DynamoTables)
    return tables


async def test_a_sqlite_url_opens_its_file(tmp_path: Path) -> None:
    tables = open_tables(f"sqlite:///{tmp_path}/a%20store.db", ManualClock())

    assert isinstance(tables, SqliteTables)
    await tables.start()
    await tables.stop()
    assert (tmp_path / "a store.db").exists()


def test_a_prefix_names_the_four_tables() -> None:
    tables = dynamodb("dynamodb://Prod?region=eu-west-1&endpoint=http://127.0.0.1:4566")

    assert tables.names[TableName.CONTROL] == "Prod-control"
    assert tables.settings.region == "eu-west-1"
    assert tables.settings.endpoint == "http://127.0.0.1:4566"


def test_a_table_that_has_a_name_already_keeps_it() -> None:
    tables = dynamodb("dynamodb://prod?events=their-events")

    assert tables.names[TableName.EVENTS] == "their-events"
    assert tables.names[TableName.RERUN] == "prod-rerun"


def test_four_named_tables_need_no_prefix() -> None:
    tables = dynamodb("dynamodb://?control=aaa&joblog=bbb&rerun=ccc&events=ddd")

    assert list(tables.names.values()) == ["aaa", "bbb", "ccc", "ddd"]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "no backend"),
        ("interlock.db", "no backend"),
        ("postgres://host/db", "no backend"),
        ("sqlite://interlock.db", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///a.db?mode=ro", "takes only a path"),
        ("dynamodb://", "no prefix"),
        ("dynamodb://?control=aaa", "no prefix"),
        ("dynamodb://prod/eu-west-1", "has a path"),
        ("dynamodb://prod?regoin=eu-west-1", "did you mean 'region'"),
        ("dynamodb://prod?colour=red", "known are"),
        ("dynamodb://prod?region=", "empty option"),
        ("dynamodb://prod?endpoint=localhost:8000", "http://"),
        ("dynamodb://my tables", "letters, digits"),
        ("dynamodb://prod?control=same&events=same", "two tables one name"),
        ("dynamodb://[half", "not a URL"),
        ("redis://", "names no server"),
        ("redis://host:port/0", "HOST:PORT"),
        ("redis://host/zero", "number of its database"),
        ("redis://a,b/0", "several servers"),
        ("redis://host/0?prefix={x}", "letters, digits"),
        ("redis://host/0?perfix=x", "did you mean 'prefix'"),
        ("redis://host/0?wait=all", "number of replicas"),
        ("redis://host/0?service=shop", "redis.sentinel"),
        ("redis://host/0?ssl_ca_certs=ca.pem", "only rediss"),
        ("rediss://host/0?ssl_cert_reqs=maybe", "required or none"),
        ("redis+sentinel://host/0", "what the Sentinels watch"),
        ("redis+cluster://host/3", "only database 0"),
        ("redis://:pa#ss@host/0", "percent-encode"),
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        open_tables(url, ManualClock())


def redis_place(url: str) -> RedisPlace:
    place = locate(url)
    assert isinstance(place, RedisPlace)
    return place


def test_a_redis_url_is_read_as_the_library_reads_it() -> None:
    place = redis_place("rediss://worker:p%40ss%2Fword@db.example:6380/2?prefix=shop&wait=1&ssl_ca_certs=/etc/ca.pem")

    assert place.nodes == (("db.example", 6380),)
    assert (place.username, place.password, place.database) == ("worker", "p@ss/word", 2)
    assert (place.prefix, place.wait, place.has_tls) == ("shop", 1, True)
    assert place.tls == (("ssl_ca_certs", "/etc/ca.pem"),)


def test_a_redis_url_without_details_has_the_usual_ones() -> None:
    place = redis_place("redis://localhost")

    assert place == RedisPlace(nodes=(("localhost", 6379),))
    assert place.shown == "redis://localhost:6379/0#interlock"


def test_sentinels_and_nodes_of_a_cluster_are_listed() -> None:
    behind = redis_place("redis+sentinel://:secret@a:1,b/1?service=shop&sentinel_password=other")
    cluster = redis_place("redis+cluster://a,b:7001")

    assert (behind.nodes, behind.service, behind.password) == ((("a", 1), ("b", 26379)), "shop", "secret")
    assert behind.sentinel_password == "other"
    assert (cluster.nodes, cluster.is_cluster) == ((("a", 6379), ("b", 7001)), True)


@pytest.mark.parametrize(
    "url",
    [
        "redis://worker:hunter2@host/0",
        "redis://:hunter2@host/0?perfix=x",
        "rediss://worker:hunter2@host/zero",
        "redis+sentinel://host/0?service=a&sentinel_password=hunter2",
        "redis+sentinel://worker:hunter2@host/0",
        "postgres://worker:hunter2@host/0",
        "redis://worker:hunter2@[half",
    ],
)
def test_no_message_and_no_name_shows_a_password(url: str) -> None:
    try:
        shown = f"{(place := redis_place(url))!r} {place.shown}"
    except ConfigError as error:
        shown = str(error)

    assert "hunter2" not in f"{shown} {without_secrets(url)}"
