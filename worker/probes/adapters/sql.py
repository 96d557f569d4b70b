"""Asks SQLite files, Athena and PostgreSQL for one row. None can change anything."""

import asyncio
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, cast
from urllib.parse import quote, urlsplit

from worker.core.model.values import Json
from worker.core.probes.trait import ProbeUnknown
from worker.jobs.aws.client import Aws
from worker.jobs.aws.errors import AwsTrouble
from worker.jobs.aws.responses import part, parts, text
from worker.jobs.messages import tidy
from worker.jobs.secrets import secrets_named
from worker.jobs.spec_fields import parse_config
from worker.probes.adapters.postgresql import PostgresqlQueries
from worker.probes.adapters.rows import one_row
from worker.probes.runner import ProbeRequest, RawResponse
from worker.probes.specs import SqlProbeConfig
from worker.runtime.clock import Clock

_ALLOWED: Final = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
)
_POLL_S: Final = 1.0
_VALUE_BYTES_MAX: Final = 1_000_000  # of a text, a blob or a row while SQLite evaluates
_NUMBERS: Final = frozenset({"tinyint", "smallint", "integer", "bigint"})
_FRACTIONS: Final = frozenset({"float", "real", "double"})


class SqlProbes:
    """Runs a query that returns one row; no row is the result `exists: false`."""

    def __init__(self, aws: Aws, clock: Clock, postgresql: PostgresqlQueries) -> None:
        self._aws, self._clock, self._postgresql = aws, clock, postgresql

    def target(self, config: Mapping[str, Json]) -> str:
        match config.get("engine"):
            case "athena":
                return "athena"
            case "postgresql":
                return f"sql:{_server(str(config.get('url')))}"
            case _:
                return "sql"

    async def ask(self, request: ProbeRequest) -> RawResponse | ProbeUnknown:
        config = parse_config(SqlProbeConfig, request.config)
        match config.engine:
            case "athena":
                return await self._athena(config)
            case "postgresql":
                return await self._postgresql.ask(config, request.timeout)
            case _:
                return await _sqlite(config)

    # --- Athena -------------------------------------------------------------------------------------------------------

    async def _athena(self, config: SqlProbeConfig) -> RawResponse | ProbeUnknown:
        asked: dict[str, object] = {
            "QueryString": config.query,
            "QueryExecutionContext": {"Database": config.database},
            **({"WorkGroup": config.work_group} if config.work_group else {}),
            **({"ResultConfiguration": {"OutputLocation": config.output}} if config.output else {}),
            **({"ExecutionParameters": [_literal(each) for each in config.parameters]} if config.parameters else {}),
        }
        if not config.query.lstrip().lower().startswith(("select", "with", "show", "describe")):
            return ProbeUnknown(kind="rejected", reason="the query must begin with select, with, show or describe")
        started = await self._aws.call("athena", "StartQueryExecution", asked)
        query = {"QueryExecutionId": text(started, "QueryExecutionId")}
        is_done = False
        try:
            while True:
                execution = part(await self._aws.call("athena", "GetQueryExecution", query), "QueryExecution")
                status = part(execution, "Status")
                match text(status, "State"):
                    case "SUCCEEDED":
                        is_done = True
                        return _athena_row(
                            part(
                                await self._aws.call("athena", "GetQueryResults", {**query, "MaxResults": 3}),
                                "ResultSet",
                            )
                        )
                    case "FAILED" | "CANCELLED":
                        is_done = True
                        why = text(status, "StateChangeReason") or "Athena gives no reason"
                        return ProbeUnknown(kind="query-failed", reason=tidy(f"the query failed: {why}"))
                    case _:
                        await self._clock.sleep(_POLL_S)
        finally:
            if not is_done:
                with suppress(AwsTrouble):
                    await asyncio.shield(self._aws.call("athena", "StopQueryExecution", query))


def _server(url: str) -> str:
    """Return the name of a server for its limits: its host, or the secret that holds its URL."""
    with suppress(ValueError):
        if secrets := secrets_named(url):
            return secrets[0].strip("${}")
        return urlsplit(url).hostname or ""
    return ""


def _literal(value: str | float | None) -> str:
    """Write a parameter as Athena takes it: as a literal of SQL."""
    if value is None:
        return "null"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def _athena_row(results: Mapping[str, object]) -> RawResponse | ProbeUnknown:
    columns = [*parts(part(results, "ResultSetMetadata"), "ColumnInfo")]
    rows = [[text(cell, "VarCharValue") for cell in parts(row, "Data")] for row in parts(results, "Rows")]
    names = [text(column, "Name") for column in columns]
    rows = rows[1:] if rows and rows[0] == names else rows  # the first row of a select repeats the names
    types = [text(column, "Type") for column in columns]
    read = [[_typed(kind, cell) for kind, cell in zip(types, row, strict=False)] for row in rows]
    return one_row(names, read)


def _typed(kind: str, cell: str) -> Json:
    with suppress(ValueError):
        if kind in _NUMBERS:
            return int(cell)
        if kind in _FRACTIONS:
            return float(cell)
    return cell == "true" if kind == "boolean" else cell


# --- SQLite -----------------------------------------------------------------------------------------------------------


async def _sqlite(config: SqlProbeConfig) -> RawResponse | ProbeUnknown:
    """Run the query in a thread; the end of the request, also by its time limit, interrupts it."""
    opened: list[sqlite3.Connection] = []
    try:
        return await asyncio.to_thread(_query, config, opened)
    finally:
        for connection in opened:
            with suppress(sqlite3.ProgrammingError):  # closed already
                connection.interrupt()


def _query(config: SqlProbeConfig, opened: list[sqlite3.Connection]) -> RawResponse | ProbeUnknown:
    place = f"file:{quote(str(Path(config.path).absolute()))}?mode=ro"
    try:
        with closing(sqlite3.connect(place, uri=True, check_same_thread=False, timeout=1.0)) as connection:
            connection.set_authorizer(_authorize)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES_MAX)
            opened.append(connection)
            cursor = connection.execute(config.query, config.parameters)
            names = [column[0] for column in cursor.description or ()]
            rows = [[_plain(cell) for cell in row] for row in cast("Sequence[Sequence[object]]", cursor.fetchmany(2))]
    except (sqlite3.Error, sqlite3.Warning) as problem:
        return ProbeUnknown(kind="query-failed", reason=tidy(f"SQLite {config.path}: {problem}"))
    return one_row(names, rows)


def _authorize(action: int, *_: object) -> int:
    """Allow reading only; this also keeps a query from other files and settings."""
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _plain(cell: object) -> Json:
    return cell.hex() if isinstance(cell, bytes) else cast("Json", cell)
