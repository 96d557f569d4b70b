"""Which store: one URL names the backend and where it is.

sqlite:///path/to/interlock.db            a file (four slashes for an absolute path)
dynamodb://interlock                      tables interlock-control, -joblog, -rerun, -events; region from AWS_*
dynamodb://interlock?region=eu-west-1&endpoint=http://127.0.0.1:4566
dynamodb://?control=a&joblog=b&rerun=c&events=d      tables that have names already
"""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from worker.core.errors import ConfigError
from worker.runtime.clock import Clock
from worker.store.admin import StoreAdmin
from worker.store.dynamodb.requests import TableNames
from worker.store.sqlite.admin import SqliteAdmin
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import TableName, Tables

if TYPE_CHECKING:
    from worker.store.dynamodb.scan import WholeTable

EXAMPLES: Final = "use sqlite:///interlock.db or dynamodb://PREFIX?region=REGION"
DYNAMODB_OPTIONS: Final = frozenset({"region", "endpoint", *TableName})
TABLE_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True)
class SqlitePlace:
    """`path` is without links, so that all who name one file agree on what is beside it; `named` is as it was given."""

    path: Path
    named: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamoPlace:
    """None leaves region or endpoint to the AWS environment."""

    names: TableNames
    region: str | None
    endpoint: str | None


Place: TypeAlias = SqlitePlace | DynamoPlace


def locate(url: str) -> Place:
    """Say where the store is that a URL names. Raises `ConfigError` for a URL that names none."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"the store {url!r} is not a URL: {error}; {EXAMPLES}") from error
    match parts.scheme:
        case "sqlite":
            named = _path(url, parts)
            return SqlitePlace(_without_links(named), named)
        case "dynamodb":
            options = _options(url, parts)
            names = _table_names(url, parts.netloc, options)
            return DynamoPlace(names=names, region=options.get("region"), endpoint=_endpoint(url, options))
        case _:
            raise ConfigError(f"the store {url!r} has no backend we know; {EXAMPLES}")


def open_tables(url: str, clock: Clock) -> Tables:
    """Give the store a URL names; it is not started yet. Raises `ConfigError` for a URL that names none."""
    match locate(url):
        case SqlitePlace(path):
            return SqliteTables(path, clock)
        case DynamoPlace() as place:
            return _dynamo_tables(place, clock)


@asynccontextmanager
async def opened_as_found(url: str, clock: Clock) -> AsyncGenerator[Tables]:
    """Open a store without asking that it be whole: for a look at tables that another system made.

    Raises `ConfigError` for a file that would have to be made or migrated: a look does neither.
    """
    match locate(url):
        case SqlitePlace(path):
            await SqliteAdmin(path, clock).require_ready()
            tables: Tables = SqliteTables(path, clock)
            await tables.start()
        case DynamoPlace() as place:
            tables = await _dynamo_as_found(place, clock)
    try:
        yield tables
    finally:
        await tables.stop()


def open_admin(url: str, clock: Clock) -> StoreAdmin:
    """Give what a person may do to the store a URL names. Raises `ConfigError` for a URL that names none."""
    match locate(url):
        case SqlitePlace(path):
            return SqliteAdmin(path, clock)
        case DynamoPlace() as place:
            return _dynamo_admin(place, clock)


# The AWS library is loaded where it is needed and not above: it takes longer than most commands, which do without it.


def _dynamo_tables(place: DynamoPlace, clock: Clock) -> Tables:
    from worker.net.aws_client import ClientSettings  # noqa: PLC0415
    from worker.store.dynamodb.tables import DynamoTables  # noqa: PLC0415

    return DynamoTables(place.names, clock, ClientSettings(region=place.region, endpoint=place.endpoint))


async def _dynamo_as_found(place: DynamoPlace, clock: Clock) -> Tables:
    from worker.net.aws_client import PERSON, ClientSettings  # noqa: PLC0415
    from worker.store.dynamodb.tables import DynamoTables  # noqa: PLC0415

    settings = ClientSettings(region=place.region, endpoint=place.endpoint, agent=PERSON)
    tables = DynamoTables(place.names, clock, settings)
    await tables.open()
    return tables


def open_whole_table(place: DynamoPlace, clock: Clock) -> "WholeTable":
    """Give the control table for a look at all of it, which a person asked for."""
    from worker.net.aws_client import PERSON, ClientSettings  # noqa: PLC0415
    from worker.store.dynamodb.scan import WholeTable  # noqa: PLC0415

    settings = ClientSettings(region=place.region, endpoint=place.endpoint, read_s=20.0, agent=PERSON)
    return WholeTable(place.names[TableName.CONTROL], settings, clock)


def _dynamo_admin(place: DynamoPlace, clock: Clock) -> StoreAdmin:
    from worker.net.aws_client import ClientSettings  # noqa: PLC0415
    from worker.store.dynamodb.admin import DynamoAdmin  # noqa: PLC0415

    return DynamoAdmin(place.names, ClientSettings(region=place.region, endpoint=place.endpoint), clock)


def _path(url: str, parts: SplitResult) -> Path:
    if parts.netloc or not parts.path.startswith("/") or len(parts.path) < 2:
        raise ConfigError(
            f"the store {url!r} names no file; use sqlite:///interlock.db, or four slashes for a root path"
        )
    if parts.query or parts.fragment:
        raise ConfigError(f"the store {url!r} has options, but sqlite:/// takes only a path")
    return Path(unquote(parts.path[1:]))


def _without_links(named: Path) -> Path:
    """Resolve links once, here. A path without any stays as it was written, for the messages it is in."""
    try:
        resolved = named.resolve()
        return named if resolved == named.absolute() else resolved
    except RuntimeError as error:
        raise ConfigError(f"the store {named} is a link that leads back to itself; name the file") from error
    except (OSError, ValueError):
        return named  # whoever opens it says what is wrong


def _options(url: str, parts: SplitResult) -> Mapping[str, str]:
    if parts.path not in {"", "/"} or parts.fragment:
        raise ConfigError(f"the store {url!r} has a path; dynamodb:// takes a prefix and ?options only")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    for name, value in pairs:
        if name not in DYNAMODB_OPTIONS:
            close = get_close_matches(name, DYNAMODB_OPTIONS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(sorted(DYNAMODB_OPTIONS))}"
            raise ConfigError(f"the store {url!r} has an unknown option {name!r}; {hint}")
        if not value:
            raise ConfigError(f"the store {url!r} has an empty option {name!r}; give it a value or leave it out")
    return dict(pairs)


def _endpoint(url: str, options: Mapping[str, str]) -> str | None:
    endpoint = options.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"the store {url!r} has an endpoint without http:// or https://; write it whole")
    return endpoint


def _table_names(url: str, prefix: str, options: Mapping[str, str]) -> TableNames:
    if not prefix and not all(table in options for table in TableName):
        raise ConfigError(f"the store {url!r} has no prefix; give one, or name all four tables; {EXAMPLES}")
    names = {table: options.get(table, f"{prefix}-{table}") for table in TableName}
    for name in names.values():
        if not TABLE_NAME.fullmatch(name):
            raise ConfigError(
                f"the store {url!r} needs a table {name!r}, but a table's name is 3 to 255 letters, digits, _ . and -"
            )
    if len(set(names.values())) < len(names):
        raise ConfigError(f"the store {url!r} gives two tables one name; each of the four needs its own")
    return names
