"""What only DynamoDB has: tables to be made and checked, pages of a megabyte, keys left unread, errors of its own."""

from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import pytest

from tests.support.aws.emulators import (
    RealWaits,
    assert_nothing_was_scanned,
    dynamodb_tables,
    ministack,
    moto,
    new_names,
    use_test_credentials,
)
from tests.support.aws.wire import WireProxy
from tests.support.clock.manual import ManualClock
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.net.aws_client import PERSON, ClientSettings, open_client
from worker.runtime.backoff import Backoff
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.table import ACTIVE, EVENT_TYPES, Key, Put, TableName, query_all
from worker.store.url import TableNames

pytestmark = pytest.mark.xdist_group("aws")

Client: TypeAlias = Any  # a plain client, to look at and to spoil what the store has made
LARGE = "x" * 390_000


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    use_test_credentials()
    async with open_client(settings()) as client:
        yield client


@pytest.fixture
async def tables() -> AsyncIterator[DynamoTables]:
    async with dynamodb_tables(ministack(), ManualClock()) as tables:
        yield tables


def settings() -> ClientSettings:
    return ClientSettings(endpoint=ministack().proxy.url)


def a_store(names: TableNames) -> DynamoTables:
    return DynamoTables(names, RealWaits(ManualClock()), settings())


async def given_tables(names: TableNames) -> None:
    store = a_store(names)
    await store.ensure_tables()
    await store.stop()


async def described(client: Client, names: TableNames, table: TableName) -> dict[str, Any]:
    return (await client.describe_table(TableName=names[table]))["Table"]


async def make_bare_table(client: Client, name: str, partition: str = "PK") -> None:
    await client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        AttributeDefinitions=[
            {"AttributeName": partition, "AttributeType": "S"},
            {"AttributeName": "SK", "AttributeType": "S"},
        ],
        BillingMode="PAY_PER_REQUEST",
    )


async def test_new_tables_have_streams_indexes_and_expiry(client: Client) -> None:
    names = new_names()

    await given_tables(names)

    control = await described(client, names, TableName.CONTROL)
    indexes = {index["IndexName"]: index["Projection"] for index in control["GlobalSecondaryIndexes"]}
    assert indexes["LISTS"] == {"ProjectionType": "ALL"}
    assert indexes["ACTIVE"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": sorted(ACTIVE.projected or ())}
    for table in (TableName.CONTROL, TableName.JOBLOG, TableName.EVENTS):
        stream = (await described(client, names, table))["StreamSpecification"]
        assert stream == {"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    for name in names.values():
        expiry = (await client.describe_time_to_live(TableName=name))["TimeToLiveDescription"]
        assert expiry == {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}


async def test_making_tables_again_changes_nothing(client: Client) -> None:
    names = new_names()
    await given_tables(names)
    before = [await described(client, names, table) for table in TableName]

    await given_tables(names)

    assert [await described(client, names, table) for table in TableName] == before


async def test_tables_of_an_older_installation_get_what_they_lack(client: Client) -> None:
    names = new_names()
    for name in names.values():
        await make_bare_table(client, name)

    await given_tables(names)

    store = a_store(names)
    await store.start()
    await store.stop()


async def test_a_store_whose_tables_are_missing_says_how_to_make_them() -> None:
    use_test_credentials()
    store = a_store(new_names())

    with pytest.raises(ConfigError, match="does not exist; create the tables with `interlock store init`"):
        await store.start()


async def test_a_store_whose_table_lacks_something_does_not_start(client: Client) -> None:
    names = new_names()
    for name in names.values():
        await make_bare_table(client, name)
    store = a_store(names)

    with pytest.raises(ConfigError, match=r"lacks a stream .*`interlock store init`"):
        await store.start()


async def test_a_table_with_other_keys_is_left_alone(client: Client) -> None:
    names = new_names()
    await make_bare_table(client, names[TableName.CONTROL], partition="Id")

    with pytest.raises(ConfigError, match="other keys than PK and SK"):
        await given_tables(names)


async def test_an_index_that_carries_too_little_does_not_pass_for_ours(client: Client) -> None:
    names = new_names()
    await given_tables(names)
    await client.update_table(
        TableName=names[TableName.EVENTS],
        GlobalSecondaryIndexUpdates=[{"Delete": {"IndexName": EVENT_TYPES.name}}],
    )
    await client.update_table(
        TableName=names[TableName.EVENTS],
        AttributeDefinitions=[
            {"AttributeName": EVENT_TYPES.partition, "AttributeType": "S"},
            {"AttributeName": EVENT_TYPES.sort, "AttributeType": "N"},
        ],
        GlobalSecondaryIndexUpdates=[
            {
                "Create": {
                    "IndexName": EVENT_TYPES.name,
                    "KeySchema": [
                        {"AttributeName": EVENT_TYPES.partition, "KeyType": "HASH"},
                        {"AttributeName": EVENT_TYPES.sort, "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            }
        ],
    )
    store = a_store(names)

    with pytest.raises(ConfigError, match=r"index GSI1 of another version; delete the index"):
        await store.start()


async def test_rows_beyond_a_megabyte_come_in_pages(tables: DynamoTables) -> None:
    for number in range(4):
        await tables.commit(Put(TableName.CONTROL, {"PK": "p", "SK": f"{number}", "data": LARGE}))

    first = await tables.query(TableName.CONTROL, "p")
    everything = [row["SK"] async for row in query_all(tables, TableName.CONTROL, "p")]

    assert 0 < len(first.rows) < 4
    assert first.cursor is not None
    assert everything == ["0", "1", "2", "3"]


async def test_keys_that_a_batch_leaves_unread_are_read_again() -> None:
    keys = [Key("p", f"{number:02}") for number in range(45)]  # more than the 16 MB that one answer holds
    # moto keeps to that limit, ministack does not.
    async with dynamodb_tables(moto(), ManualClock()) as tables:
        for key in keys:
            await tables.commit(Put(TableName.CONTROL, {"PK": key.pk, "SK": key.sk, "data": LARGE}))
        asked_before = moto().proxy.operations["BatchGetItem"]

        rows = await tables.get_many(TableName.CONTROL, keys)

        assert set(rows) == set(keys)
        assert moto().proxy.operations["BatchGetItem"] > asked_before + 1


async def test_a_key_asked_for_twice_is_read_once(tables: DynamoTables) -> None:
    await tables.commit(Put(TableName.CONTROL, {"PK": "p", "SK": "s"}))

    rows = await tables.get_many(TableName.CONTROL, [Key("p", "s"), Key("p", "s")])

    assert list(rows) == [Key("p", "s")]


async def test_an_index_that_would_not_take_a_value_rejects_the_row(tables: DynamoTables) -> None:
    row = {"PK": "p", "SK": "s", EVENT_TYPES.partition: "JOB_FAILED", EVENT_TYPES.sort: "not a number"}

    with pytest.raises(Rejected, match="ValidationException"):
        await tables.commit(Put(TableName.EVENTS, row))


async def test_a_query_for_text_that_is_not_unicode_is_rejected(tables: DynamoTables) -> None:
    with pytest.raises(Rejected, match="JSON"):
        await tables.query(TableName.CONTROL, "\ud800")


@pytest.mark.parametrize("cursor", ["", "nonsense", "bm9uc2Vuc2U=", "WzFd"])
async def test_text_that_is_no_cursor_is_rejected(tables: DynamoTables, cursor: str) -> None:
    with pytest.raises(Rejected, match="begin again"):
        await tables.query(TableName.CONTROL, "p", cursor=cursor)


async def test_a_store_that_is_not_started_says_so() -> None:
    with pytest.raises(ConfigError, match="not started"):
        await a_store(new_names()).get(TableName.CONTROL, Key("p", "s"))


async def test_a_store_that_cannot_be_reached_asks_for_patience() -> None:
    use_test_credentials()
    nowhere = ClientSettings(endpoint="http://127.0.0.1:1")
    store = DynamoTables(new_names(), SystemClock(), nowhere, backoff=Backoff(attempts_max=2, first_s=0.001))

    with pytest.raises(RetryLater, match="given up after 2 tries"):
        await store.start()


async def test_a_scan_is_seen_on_the_wire() -> None:
    """Shows that the check which guards the whole contract suite can fail."""
    use_test_credentials()
    names = new_names()
    await given_tables(names)
    with WireProxy(ministack().port) as wire:
        assert_nothing_was_scanned(wire)

        async with open_client(ClientSettings(endpoint=wire.url, agent=PERSON)) as client:
            await client.scan(TableName=names[TableName.CONTROL])

        with pytest.raises(AssertionError, match="Scan"):
            assert_nothing_was_scanned(wire)
