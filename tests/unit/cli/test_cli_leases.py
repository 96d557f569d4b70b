"""`interlock leases`: who holds what, how far it got, and what the plan makes of it."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import pytest

from tests.support.builders import cli_runs
from tests.support.builders.command_line import TODAY, interlock, records
from tests.support.clock.manual import ManualClock
from worker.config.lease_roles import role_of
from worker.config.store_setting import GROUP
from worker.core.model.keys import SessionId
from worker.store.repos.leases import Lease, Leases
from worker.store.repos.sessions import Sessions
from worker.store.table import Tables

A, B = SessionId("host-a"), SessionId("host-b")
POSITION = f"{'7':0>40}@{int(TODAY.timestamp() - 90) * 1000:013d}"


def in_store(work: Callable[[Tables], Awaitable[object]]) -> None:
    interlock("store", "init")
    cli_runs.in_store(work)


async def split_stream(tables: Tables) -> None:
    """One worker, a shard that it reads, its child, a shard that is free, and one of a worker that is gone."""
    leases, sessions = Leases(tables, GROUP), Sessions(tables, GROUP)
    await sessions.register(A, "1.0")
    for shard in ("0001", "0003", "0004"):
        await leases.create(Lease(stream="stream.control", shard=shard))
    await leases.create(Lease(stream="stream.control", shard="0002", parents=frozenset({"0001"})))
    held = await leases.take_free(Lease(stream="stream.control", shard="0001"), A)
    assert held is not None
    await leases.checkpoint(held, POSITION, rate=120)
    await leases.take_free(Lease(stream="stream.control", shard="0004"), B)


async def two_workers(tables: Tables) -> None:
    """A newcomer beside one that holds everything."""
    leases, sessions = Leases(tables, GROUP), Sessions(tables, GROUP)
    for session in (A, B):
        await sessions.register(session, "1.0")
    for number in range(4):
        lease = Lease(stream="active", shard=f"{number:02d}")
        await leases.create(lease)
        await leases.take_free(lease, A)


ENGINE, RELAY = frozenset({"engine", "scheduler"}), frozenset({"relay"})
OF_ENGINES = ("stream.control", "shards.stream.joblog", "feed.control", "kinesis.joblog", "active", "replays.engine")
OF_RELAYS = ("stream.events", "shards.kinesis.events", "feed.events", "replays.relay")
OF_ALL = ("replays", "upkeep", "something.new", "stream.something")


async def two_roles(tables: Tables) -> None:
    """A worker for each role; one holds all there is of its own, and of the other's nothing is held."""
    leases, sessions = Leases(tables, GROUP), Sessions(tables, GROUP)
    await sessions.register(A, "1.0", ENGINE)
    await sessions.register(B, "1.0", RELAY)
    for stream in (*OF_ENGINES, "scheduler", *OF_RELAYS):
        for number in range(4):
            await leases.create(Lease(stream=stream, shard=f"{number:02d}"))
    for stream in OF_ENGINES:
        for number in range(4):
            await leases.take_free(Lease(stream=stream, shard=f"{number:02d}"), A)


async def nobody_relays(tables: Tables) -> None:
    leases, sessions = Leases(tables, GROUP), Sessions(tables, GROUP)
    await sessions.register(A, "1.0", ENGINE)
    for stream in ("stream.events", "upkeep"):
        lease = Lease(stream=stream, shard="0")
        await leases.create(lease)
        await leases.take_free(lease, B)


async def all_have_left(tables: Tables) -> None:
    await Leases(tables, GROUP).create(Lease(stream="upkeep", shard="0"))


def plans() -> dict[str, set[str]]:
    """What is said of the leases, by stream."""
    said: dict[str, set[str]] = {}
    for record in records(interlock("leases", "--json").stdout):
        if record["type"] == "lease":
            said.setdefault(record["stream"], set()).add(record["plan"])
    return said


@pytest.mark.usefixtures("here")
def test_each_lease_says_who_holds_it_how_far_it_is_and_what_becomes_of_it() -> None:
    in_store(split_stream)

    shown = interlock("leases", clock=ManualClock(TODAY + timedelta(microseconds=710386)))
    lines = {words[0]: line for line in shown.stdout.splitlines() if (words := line.split())}

    assert shown.exit_code == 0
    assert lines["host-a"] == "host-a  live, holds 1 lease"
    assert lines["0001"].endswith("stays")
    assert "(1m30s ago)" in lines["0001"]
    assert lines["0002"].endswith("waits for 0001")
    assert lines["0003"].endswith("no worker holds it: host-a has the least load and takes it")
    assert lines["0004"].endswith("its holder is gone: host-a has the least load and takes it")


@pytest.mark.usefixtures("here")
def test_a_move_is_explained_by_what_each_carries() -> None:
    in_store(two_workers)

    moving = [
        record for record in records(interlock("leases", "--json").stdout) if "moves to" in record.get("plan", "")
    ]

    assert [record["plan"] for record in moving] == ["moves to host-b, whose load is 0, not 4"]


@pytest.mark.usefixtures("here")
def test_records_are_for_programs() -> None:
    in_store(split_stream)

    session, first, second, *_ = records(interlock("leases", "stream.control", "--json").stdout)

    assert (session["type"], session["state"]) == ("session", "LIVE")
    assert (first["shard"], first["holder"], first["epoch"], first["rate"], first["weight"]) == ("0001", A, 1, 120, 9)
    assert first["doneUpTo"] == "2027-03-22T11:58:30Z"
    assert (second["parents"], second["holder"], second["checkpoint"]) == (["0001"], None, None)


@pytest.mark.usefixtures("here")
def test_a_store_without_workers_says_so_by_its_exit_code() -> None:
    interlock("store", "init")

    shown = interlock("leases")

    assert (shown.exit_code, shown.stdout) == (
        1,
        "No worker is running on this store. Start one with `interlock run`.\n",
    )


@pytest.mark.usefixtures("here")
def test_workers_that_are_all_dead_are_not_there() -> None:
    async def killed(tables: Tables) -> None:
        await split_stream(tables)
        [session] = await Sessions(tables, GROUP).list()
        await Sessions(tables, GROUP).kill(session, TODAY)

    in_store(killed)

    shown = interlock("leases")

    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[:2] == [
        "host-a  dead, holds 1 lease",
        "No worker is running on this store. Start one with `interlock run`.",
    ]


@pytest.mark.usefixtures("here")
def test_a_worker_that_was_not_heard_of_for_long_is_shown_with_that_and_not_taken_for_one() -> None:
    async def killed(tables: Tables) -> None:
        await Sessions(tables, GROUP).register(A, "1.0", at=TODAY - timedelta(minutes=12))

    in_store(killed)
    shown, [record] = interlock("leases"), records(interlock("leases", "--json").stdout)

    assert shown.exit_code == 1
    assert shown.stdout.splitlines() == [
        "host-a  live, last heartbeat 12m ago, holds 0 leases",
        "No worker has sent a heartbeat for 12m. Start one with `interlock run`.",
    ]
    assert record["heardAt"] == "2027-03-22T11:48:00Z"


@pytest.mark.usefixtures("here")
def test_of_one_stream_its_leases_are_shown_and_what_each_worker_holds_in_all() -> None:
    in_store(split_stream)
    in_store(lambda tables: Leases(tables, GROUP).create(Lease(stream="scheduler", shard="0")))

    lines = interlock("leases", "scheduler").stdout.splitlines()

    assert lines[0] == "host-a  live, holds 1 lease"
    assert lines[2] == "scheduler"
    assert not any("0001" in line for line in lines)


@pytest.mark.usefixtures("here")
def test_a_stream_that_has_no_lease_is_refused_with_those_that_have() -> None:
    in_store(split_stream)

    refused = interlock("leases", "stream.contrl")

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "there is no lease of 'stream.contrl'" in refused.stderr
    assert "did you mean `stream.control`? there are leases of: stream.control" in refused.stderr


@pytest.mark.usefixtures("here")
def test_where_workers_have_different_roles_a_lease_stays_with_those_that_have_its_own() -> None:
    in_store(two_roles)

    taken = {f"no worker holds it: {worker} has the least load and takes it" for worker in (A, B)}
    assert plans() == {
        **{stream: {"stays"} for stream in OF_ENGINES},
        **{stream: {said for said in taken if B in said} for stream in OF_RELAYS},
        "scheduler": {said for said in taken if A in said},
    }


@pytest.mark.usefixtures("here")
def test_a_lease_that_no_worker_has_the_role_for_is_said_to_wait_for_one() -> None:
    in_store(nobody_relays)

    assert plans() == {
        "stream.events": {"its holder is gone: no worker with the role relay is running"},
        "upkeep": {"its holder is gone: host-a has the least load and takes it"},
    }


@pytest.mark.usefixtures("here")
def test_a_lease_in_a_store_without_workers_is_said_to_be_nobodys() -> None:
    in_store(all_have_left)

    assert plans() == {"upkeep": {"no worker holds it: no worker is running"}}


@pytest.mark.parametrize(
    ("role", "streams"),
    [("engine", OF_ENGINES), ("scheduler", ["cron", "scheduler"]), ("relay", OF_RELAYS), ("", OF_ALL)],
)
def test_the_role_of_a_lease_follows_from_its_stream(role: str, streams: Sequence[str]) -> None:
    assert {role_of(stream) for stream in streams} == {role}
