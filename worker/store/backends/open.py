"""Opens stores: one URL names the backend and its location.

sqlite:///path/to/interlock.db            a file (four slashes for an absolute path)
dynamodb://interlock                      tables interlock-control, -joblog, -rerun, -events; region from AWS_*
dynamodb://interlock?region=eu-west-1&endpoint=http://127.0.0.1:4566
dynamodb://?control=a&joblog=b&rerun=c&events=d      existing tables with other names
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from worker.runtime.clock import Clock
from worker.store.admin import StoreAdmin
from worker.store.sqlite.admin import SqliteAdmin
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import TableName, Tables
from worker.store.url import DynamoPlace, SqlitePlace, locate

if TYPE_CHECKING:
    from worker.store.dynamodb.scan import WholeTable


def open_tables(url: str, clock: Clock) -> Tables:
    """Return the store that a URL names, not yet started. Raises `ConfigError` for an invalid URL."""
    match locate(url):
        case SqlitePlace(path):
            return SqliteTables(path, clock)
        case DynamoPlace() as place:
            return _dynamo_tables(place, clock)


@asynccontextmanager
async def opened_as_found(url: str, clock: Clock) -> AsyncGenerator[Tables]:
    """Open a store without requiring that it is complete, to read tables that another system created.

    Raises `ConfigError` for a file that must be created or migrated first: a read does neither.
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
    """Return the administration of the store that a URL names. Raises `ConfigError` for an invalid URL."""
    match locate(url):
        case SqlitePlace(path):
            return SqliteAdmin(path, clock)
        case DynamoPlace() as place:
            return _dynamo_admin(place, clock)


# The AWS library is imported only where it is needed: the import takes longer than most commands, which do not use it.


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
    """Return the control table for a full scan, which a person asked for."""
    from worker.net.aws_client import PERSON, ClientSettings  # noqa: PLC0415
    from worker.store.dynamodb.scan import WholeTable  # noqa: PLC0415

    settings = ClientSettings(region=place.region, endpoint=place.endpoint, read_s=20.0, agent=PERSON)
    return WholeTable(place.names[TableName.CONTROL], settings, clock)


def _dynamo_admin(place: DynamoPlace, clock: Clock) -> StoreAdmin:
    from worker.net.aws_client import ClientSettings  # noqa: PLC0415
    from worker.store.dynamodb.admin import DynamoAdmin  # noqa: PLC0415

    return DynamoAdmin(place.names, ClientSettings(region=place.region, endpoint=place.endpoint), clock)
