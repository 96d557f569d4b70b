"""Who is alive and who holds what is read consistently, from the tables themselves: an index may lag behind."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.aws.emulators import ministack, use_test_credentials
from tests.support.aws.wire import WireProxy
from tests.support.worlds.installation import REGION, install
from worker.core.model.keys import SessionId
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.dynamodb.tables import DynamoTables
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.leases import Lease, Leases
from worker.store.repos.sessions import Sessions
from worker.store.table import Key, TableName

pytestmark = pytest.mark.xdist_group("aws")

READS = {"GetItem", "BatchGetItem", "Query", "Scan"}


def are_consistent(asked: Mapping[str, Any]) -> bool:
    each = asked.get("RequestItems", {"": asked}).values()
    return all(part.get("ConsistentRead") is True and "IndexName" not in part for part in each)


async def test_sessions_leases_and_parked_keys_are_read_consistently_and_from_no_index() -> None:
    use_test_credentials()
    asked: list[tuple[str, Mapping[str, Any]]] = []

    def observe(operation: str, request: bytes, _answer: bytes) -> None:
        if operation in READS:
            asked.append((operation, json.loads(request)))

    with WireProxy(ministack().port, observe=observe) as wire:
        place = await install(wire.url)
        tables = DynamoTables(place.names, SystemClock(), ClientSettings(region=REGION, endpoint=wire.url))
        await tables.start()
        try:
            asked.clear()
            sessions, leases = Sessions(tables, "g"), Leases(tables, "g")
            await sessions.register(SessionId("a"), "test")
            await sessions.list()
            for shard in ("0", "1"):
                await leases.create(Lease(stream="s", shard=shard))
            await leases.take_free(Lease(stream="s", shard="0"), SessionId("a"))
            await leases.list()
            await leases.list("s")
            await ParkedKeys(tables, "g").list("s")
            await tables.get_many(TableName.CONTROL, [Key("GROUP#g", "W#a")])
        finally:
            await tables.stop()

    assert {operation for operation, _ in asked} == READS - {"Scan"}
    assert len(asked) >= 6
    assert [request for _, request in asked if not are_consistent(request)] == []
