"""One URL says which store, and a wrong one says what is wrong with it."""

from pathlib import Path

import pytest

from tests.support.clock.manual import ManualClock
from worker.core.errors import ConfigError
from worker.store.backends.open import open_tables
from worker.store.dynamodb.tables import DynamoTables
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import TableName


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
    ],
)
def test_a_wrong_url_says_what_is_wrong(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        open_tables(url, ManualClock())
