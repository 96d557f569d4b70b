"""The relay's way to the bus: events of the outbox, read from the change feed, to a bus that answers after 20 ms.

Everything but the bus is what a worker runs: the feed of a SQLite file, the reader with its lanes and checkpoints, the
relay, the client of EventBridge. `before` is one request under way at a time, as the relay had it, with 64 lanes. The
raw limit is the same client with the same requests made in advance and as many under way. The bus is another process
and takes every event. Run it with `python -m bench relay`.
"""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Final

from bench.localserver import Answer, Answering, Request, local_server
from consumers.delivery.retry import RetryPolicy
from consumers.outbox.bus import ENTRIES_MAX, REQUESTS_MAX, EventBus, entry_of
from consumers.outbox.eventbridge import open_bus
from consumers.outbox.patterns import parse_pattern
from consumers.outbox.relay import Relay
from consumers.outbox.routes import SOURCE, Route
from consumers.streams.consumer import SHARD, ReadPace, StreamConsumer
from consumers.streams.embedded.feed import TableFeed, feed_name
from consumers.streams.parking import Parking
from worker.core.membership.liveness import Timing
from worker.core.model.events import Event, EventType
from worker.core.model.keys import SessionId
from worker.membership.fence import Fence
from worker.membership.held_lease import HeldLease
from worker.net.aws_client import ClientSettings
from worker.runtime.clock import SystemClock
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.parked_keys import ParkedKeys
from worker.store.repos.events import Events, event_write
from worker.store.repos.leases import Lease, Leases
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import WRITES_MAX, TableName

PIPELINES: Final = 1_000
EVENTS: Final = 6_000
ROUND_TRIP_S: Final = 0.02
TARGET: Final = 3_000  # a second
BEFORE: Final = (1, 64)  # requests under way, lanes
NOW: Final = (REQUESTS_MAX, REQUESTS_MAX * ENTRIES_MAX)
GROUP: Final = "bench"
UNFENCED: Final = Timing(beat_s=1.0, fence_s=1e7, kill_s=2e7)
BEGAN: Final = datetime(2026, 3, 3, tzinfo=UTC)


def bus(_url: str) -> Answering:
    """Takes every entry of a request, one round trip later."""

    def answer(request: Request) -> Answer:
        taken = b",".join([b'{"EventId":"1"}'] * request.body.count(b'"DetailType"'))
        return Answer(b'{"FailedEntryCount":0,"Entries":[' + taken + b"]}", ROUND_TRIP_S)

    return answer


def event(number: int) -> Event:
    return Event(
        id=f"e{number}",
        type=EventType.JOB_COMPLETED,
        at=BEGAN + timedelta(milliseconds=number),
        pipeline=f"p{number % PIPELINES}",
        schedule="default",
        period="2026-03-03",
        message=f"p{number % PIPELINES}: the job of attempt 1 succeeded",
        detail={"attempt": 1, "outcome": "SUCCEEDED", "version": number},
    )


async def relayed(url: str, directory: Path, requests_max: int, lanes: int) -> tuple[float, float]:
    """Give the seconds, and the processor seconds, that the outbox took to be empty."""
    clock = SystemClock()
    tables = SqliteTables(directory / f"{requests_max}.db", clock)
    await tables.start()
    try:
        for first in range(0, EVENTS, WRITES_MAX):
            await tables.commit(*(event_write(event(number)) for number in range(first, first + WRITES_MAX)))
        leases, name = Leases(tables, GROUP), feed_name(TableName.EVENTS)
        await leases.create(Lease(stream=name, shard=SHARD))
        seen = await leases.get(name, SHARD)
        assert seen is not None
        taken = await leases.take_free(seen, SessionId("bench"))
        assert taken is not None
        fence = Fence(SessionId("bench"), clock, UNFENCED, registered_at=clock.monotonic())
        held = HeldLease(taken, leases, fence, clock)
        tries, letters = RetryPolicy(clock, tables.ping), DeadLetters(tables)
        async with open_bus(ClientSettings(region="eu-west-1", endpoint=url)) as put, asyncio.TaskGroup() as tasks:
            sender = EventBus(put, "bench", clock, requests_max=requests_max)
            route = Route("bus", parse_pattern({"source": [SOURCE]}), sender.deliver, sender.is_waiting)
            relay = Relay([route], events=Events(tables), letters=letters, tries=tries, clock=clock)
            consumer = StreamConsumer(
                source=TableFeed(tables, TableName.EVENTS, clock),
                subscription=relay.subscription(),
                parking=Parking(stream=name, letters=letters, keys=ParkedKeys(tables, GROUP), clock=clock),
                tries=tries,
                clock=clock,
                pace=ReadPace(lanes=lanes),
            )
            publishing = tasks.create_task(sender.run())
            began, worked = perf_counter(), process_time()
            tasks.create_task(consumer.hold(held))
            while consumer.counts.done < EVENTS:  # noqa: ASYNC110  as a meter would see it
                await asyncio.sleep(0.005)
            took = perf_counter() - began, process_time() - worked
            held.stop(next_owner=None)
            publishing.cancel()
    finally:
        await tables.stop()
    return took


async def raw(url: str) -> tuple[float, float]:
    """Give the time of the same requests, made in advance, with as many under way."""
    entries = [entry_of(event(number), "bench") for number in range(EVENTS)]
    batches = [entries[first : first + ENTRIES_MAX] for first in range(0, EVENTS, ENTRIES_MAX)]

    async with open_bus(ClientSettings(region="eu-west-1", endpoint=url)) as put:

        async def send() -> None:
            while batches:
                await put(batches.pop())

        began, worked = perf_counter(), process_time()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(REQUESTS_MAX):
                tasks.create_task(send())
        return perf_counter() - began, process_time() - worked


def main() -> None:
    os.environ.update(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_EC2_METADATA_DISABLED="true")
    figures: dict[str, tuple[float, float]] = {}
    with local_server(bus) as url, TemporaryDirectory() as directory:
        figures["before: one request at a time"] = asyncio.run(relayed(url, Path(directory), *BEFORE))
        figures[f"now: {REQUESTS_MAX} requests at once"] = asyncio.run(relayed(url, Path(directory), *NOW))
        figures["raw: the client alone"] = asyncio.run(raw(url))
    print(f"{EVENTS:,} events of {PIPELINES:,} pipelines; the bus answers after {ROUND_TRIP_S * 1000:.0f} ms")
    print(f"{'':32}{'events/s':>10}{'events/s per core':>20}   (target: at least {TARGET:,} events/s)")
    for name, (took_s, worked_s) in figures.items():
        print(f"{name:32}{EVENTS / took_s:>10,.0f}{EVENTS / worked_s:>20,.0f}")
    (before_s, _), (now_s, _), (raw_s, _) = figures.values()
    print(f"{before_s / now_s:.1f} times as fast as before; {raw_s / now_s:.0%} of the raw limit")


if __name__ == "__main__":
    main()
