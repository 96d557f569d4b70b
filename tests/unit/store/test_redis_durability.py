"""What a server's settings promise, and the remedy for each that promises too little."""

import pytest

from worker.store.redis.durability import Durability, Replica, durability_findings

GOOD = {"appendfsync": "always", "maxmemory-policy": "noeviction"}
ONLINE = Replica("10.0.0.2:6379", is_online=True, behind_s=0)


def a_server(
    settings: dict[str, str] | None = None,
    *,
    is_appending: bool = True,
    is_primary: bool = True,
    replicas: tuple[Replica, ...] = (),
    wait: int = 0,
    is_readable: bool = True,
    trouble: str = "",
) -> Durability:
    return Durability(
        settings={**GOOD, **(settings or {})} if is_readable else None,
        is_appending=is_appending,
        is_primary=is_primary,
        replicas=replicas,
        asked_replicas=wait,
        write_trouble=trouble,
    )


def problems(server: Durability) -> list[str]:
    return [found.subject for found in durability_findings(server) if not found.is_sound]


def promise(server: Durability) -> str:
    return next(found.finding for found in durability_findings(server) if found.subject.startswith("promise 2"))


def test_a_durable_server_without_replicas_keeps_the_promise() -> None:
    assert problems(a_server()) == []
    assert promise(a_server()) == "holds across crashes and power loss; there is no failover"


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl", "allkeys-random", "volatile-lfu"])
def test_every_policy_that_evicts_is_a_problem(policy: str) -> None:
    assert problems(a_server({"maxmemory-policy": policy})) == ["maxmemory-policy"]


@pytest.mark.parametrize(
    ("server", "subjects"),
    [
        (a_server(is_appending=False), ["appendonly", "promise 2: no decision is lost"]),
        (a_server({"appendfsync": "everysec"}), ["appendfsync", "promise 2: no decision is lost"]),
        (a_server({"appendfsync": "no"}), ["appendfsync", "promise 2: no decision is lost"]),
        (a_server(is_readable=False), ["maxmemory-policy", "appendfsync", "promise 2: no decision is lost"]),
        (a_server(is_primary=False), ["replication"]),
        (a_server(wait=1), ["replication"]),
        (a_server(replicas=(ONLINE,)), ["promise 2: no decision is lost"]),
        (a_server(trouble="aof_last_write_status"), ["disk"]),
    ],
)
def test_what_promises_too_little_is_named_with_a_remedy(server: Durability, subjects: list[str]) -> None:
    assert problems(server) == subjects


def test_a_failover_to_a_replica_that_confirmed_loses_nothing() -> None:
    assert problems(a_server(replicas=(ONLINE,), wait=1)) == []
    assert "across a failover" in promise(a_server(replicas=(ONLINE,), wait=1))


def test_a_power_loss_is_described_by_what_it_loses() -> None:
    [found] = [
        each for each in durability_findings(a_server({"appendfsync": "everysec"})) if each.subject == "appendfsync"
    ]
    assert "about a second of commits" in found.finding
