"""No statement of the SQLite backend reads a whole table, and none is missing from the list that says so."""

import ast
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from worker.store.sqlite import statements
from worker.store.sqlite.file import connect_in_memory
from worker.store.sqlite.statements import STATEMENTS

SOURCES = sorted((Path(__file__).parents[2] / "worker" / "store" / "sqlite").glob("*.py"))
NAMED = {
    name: value
    for name, value in vars(statements).items()
    if name.isupper() and name[0] != "_" and isinstance(value, str)
}
# What reads no rows.
WITHOUT_PLAN = ("PRAGMA ", "BEGIN", "COMMIT", "ROLLBACK", "CREATE ", "ALTER ")
# What reads the schema, which is small, and what a migration reads once.
ONLY_IN = {
    "schema.py": {
        "SELECT 1 FROM sqlite_schema LIMIT 1",
        "SELECT id, body FROM row WHERE id > ? ORDER BY id LIMIT 500",
        "UPDATE row SET ttl = ? WHERE id = ?",
    },
    "admin.py": {"SELECT type, name FROM sqlite_schema"},
}


def plan(connection: sqlite3.Connection, sql: str) -> list[str]:
    parameters = [None] * sql.count("?")
    return [str(step[3]) for step in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]


def executed(source: str) -> Iterator[str]:
    """The first argument of every call that runs SQL: a text, or the name it stands under."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            (".execute", ".executemany", ".executescript")
        ):
            yield _text(node.args[0])


def _text(argument: ast.expr) -> str:
    match argument:
        case ast.Constant(str() as text):
            return text
        case ast.JoinedStr([ast.Constant(str() as beginning), *_]):
            return beginning
        case _:
            return ast.unparse(argument)


def unlisted(name: str, source: str) -> list[str]:
    allowed = ONLY_IN.get(name, set())
    return [
        sql
        for sql in executed(source)
        if sql not in NAMED
        and sql not in allowed
        and sql not in {"sql", "statement"}
        and not sql.startswith(WITHOUT_PLAN)
    ]


@pytest.mark.parametrize("sql", STATEMENTS)
def test_a_statement_searches_and_never_scans(sql: str) -> None:
    with closing(connect_in_memory()) as connection:
        steps = plan(connection, sql)

    assert [step for step in steps if not step.startswith("SEARCH ")] == []


def test_the_plan_of_a_scan_would_be_seen() -> None:
    with closing(connect_in_memory()) as connection:
        assert plan(connection, "SELECT body FROM row WHERE body = ?") == ["SCAN row"]
        assert "USE TEMP B-TREE" in str(plan(connection, "SELECT sk FROM row WHERE tbl = ? AND pk = ? ORDER BY body"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_every_statement_that_is_run_is_listed(path: Path) -> None:
    assert unlisted(path.name, path.read_text()) == []


def test_every_listed_statement_has_a_name_and_is_run() -> None:
    elsewhere = [path.read_text() for path in SOURCES if path.name != "statements.py"]

    assert sorted(STATEMENTS) == sorted(NAMED.values())
    assert [name for name in NAMED if not any(re.search(rf"\b{name}\b", source) for source in elsewhere)] == []


def test_a_statement_beside_the_list_would_be_seen() -> None:
    assert unlisted("reads.py", 'connection.execute("SELECT body FROM row")') == ["SELECT body FROM row"]
    assert unlisted("reads.py", 'connection.execute(f"SELECT {x}")') == ["SELECT "]
    assert unlisted("reads.py", "connection.execute(OTHER)") == ["OTHER"]
