"""Which store: one URL names the backend and where it is.

sqlite:///path/to/interlock.db            a file (four slashes for an absolute path)
dynamodb://interlock                      tables interlock-control, -joblog, -rerun, -events; region from AWS_*
dynamodb://interlock?region=eu-west-1&endpoint=http://127.0.0.1:4566
dynamodb://?control=a&joblog=b&rerun=c&events=d      tables that have names already
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
