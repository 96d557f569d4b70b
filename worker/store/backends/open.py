"""Opens stores: one URL names the backend and its location.

sqlite:///path/to/interlock.db            a file (four slashes for an absolute path)
dynamodb://interlock                      tables interlock-control, -joblog, -rerun, -events; region from AWS_*
dynamodb://interlock?region=eu-west-1&endpoint=http://127.0.0.1:4566
dynamodb://?control=a&joblog=b&rerun=c&events=d      existing tables with other names
redis://user:password@host:6379/0?prefix=interlock   keys of a Redis or Valkey server; rediss:// with TLS
redis+sentinel://host:26379,host:26379/0?service=mymaster
redis+cluster://host:6379
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from worker.core.errors import ConfigError
from worker.runtime.clock import Clock
from worker.store.admin import StoreAdmin
from worker.store.sqlite.admin import SqliteAdmin
from worker.store.sqlite.tables import SqliteTables
from worker.store.sqlite.whole_file import WholeFile
from worker.store.table import TableName, Tables
from worker.store.url import DynamoPlace, RedisPlace, SqlitePlace, locate
from worker.store.whole_store import WholeStore

if TYPE_CHECKING:
    from worker.store.dynamodb.scan import WholeTable


def open_tables(url: str, clock: Clock) -> Tables:
    """Return the store that a URL names, not yet started. Raises `ConfigError` for an invalid URL."""
    match locate(url):
        case SqlitePlace(path):
            return SqliteTables(path, clock)
        case DynamoPlace() as place:
            return _dynamo_tables(place, clock)
        case RedisPlace() as place:
            return _redis_tables(place, clock)


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
        case RedisPlace() as place:
            tables = _redis_tables(place, clock)
            await tables.start()
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
        case RedisPlace() as place:
            return _redis_admin(place, clock)


# The libraries are imported only where they are needed: the import takes longer than most commands, and Redis's may not
# be installed.


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


@asynccontextmanager
async def opened_whole(url: str, clock: Clock) -> AsyncGenerator[WholeStore]:
    """Open a store to read every row of it, which a person asked for."""
    match locate(url):
        case SqlitePlace(path):
            yield WholeFile(path)
        case DynamoPlace() as place:
            from worker.net.aws_client import PERSON, ClientSettings  # noqa: PLC0415
            from worker.store.dynamodb.whole_tables import WholeTables  # noqa: PLC0415

            settings = ClientSettings(region=place.region, endpoint=place.endpoint, read_s=20.0, agent=PERSON)
            yield WholeTables(place.names, settings, clock)
        case RedisPlace() as place:
            require_redis_library()
            from worker.store.redis.connections import Servers  # noqa: PLC0415
            from worker.store.redis.lane import PipelinedLane  # noqa: PLC0415
            from worker.store.redis.whole_prefix import WholePrefix  # noqa: PLC0415

            servers = Servers(place)
            lane = PipelinedLane(servers, "store-scan")
            await lane.start()
            try:
                yield WholePrefix(servers.keys, lane)
            finally:
                await lane.stop()


def require_redis_library() -> None:
    """Raise `ConfigError`, with the remedy, if the library of the Redis store is not installed."""
    if find_spec("redis") is None:
        raise ConfigError("the store is on Redis, and the library for it is not installed; install interlock[redis]")


def _redis_tables(place: RedisPlace, clock: Clock) -> Tables:
    require_redis_library()
    from worker.store.redis.connections import Servers  # noqa: PLC0415
    from worker.store.redis.tables import RedisTables  # noqa: PLC0415

    return RedisTables(Servers(place), clock)


def _redis_admin(place: RedisPlace, clock: Clock) -> StoreAdmin:
    require_redis_library()
    from worker.store.redis.admin import RedisAdmin  # noqa: PLC0415
    from worker.store.redis.connections import Servers  # noqa: PLC0415

    return RedisAdmin(Servers(place), clock)
