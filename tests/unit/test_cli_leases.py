"""`interlock leases`: who holds what, how far it got, and what the plan makes of it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from tests.commandline import TODAY, interlock, records
from tests.manualclock import ManualClock
from worker.core.keys import SessionId
from worker.settings import GROUP
from worker.store.leases import Lease, Leases
from worker.store.sessions import Sessions
from worker.store.sqlite import SqliteTables
from worker.store.table import Tables

A, B = SessionId("host-a"), SessionId("host-b")
POSITION = f"{'7':0>40}@{int(TODAY.timestamp() - 90) * 1000:013d}"


def in_store(work: Callable[[Tables], Awaitable[object]]) -> None:
    async def run() -> None:
        tables = SqliteTables(Path("interlock.db"), ManualClock(TODAY))
        await tables.start()
        await work(tables)
        await tables.stop()

    interlock("store", "init")
    asyncio.run(run())


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
    assert lines["0003"].endswith("nobody holds it: host-a carries least and takes it")
    assert lines["0004"].endswith("its holder is gone: host-a carries least and takes it")


@pytest.mark.usefixtures("here")
def test_a_move_is_explained_by_what_each_carries() -> None:
    in_store(two_workers)

    moving = [
        record for record in records(interlock("leases", "--json").stdout) if "moves to" in record.get("plan", "")
    ]

    assert [record["plan"] for record in moving] == ["moves to host-b, which carries 0 against 4"]


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

    assert (shown.exit_code, shown.stdout) == (1, "no worker is there: start one with `interlock run`\n")


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
        "no worker is there: start one with `interlock run`",
    ]


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
