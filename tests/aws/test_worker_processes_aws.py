"""Two real workers on an emulator, of which one is frozen or asked to leave, or whose server refuses all: each sensor
still leads to one run, which is started once, and others go on in time.

CHAOS_ROUNDS asks for more rounds than the one below, and at the pace of production.
"""

import asyncio
import json
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from consumers.outbox.routes import envelope
from tests.support.aws.wire import Fault
from tests.support.worlds.alerts import an_event
from tests.support.worlds.aws_load import SAY_EVERY_S, goes_on, under_load
from tests.support.worlds.aws_workers import PATIENCE_S, Crew, Departures, created_at, crew, lines
from tests.support.worlds.observer import session_of, wait_until
from worker.core.model import keys

CHAOS_ROUNDS: Final = int(os.environ.get("CHAOS_ROUNDS", "0"))
ROUNDS: Final = max(1, CHAOS_ROUNDS // 50)
TIMING: Final = "default" if CHAOS_ROUNDS else "fast"
FROZEN_S: Final = 20.0 if CHAOS_ROUNDS else 10.0
THROTTLED_S: Final = 10.0

# Alone on a machine, a takeover takes 5 s and a handover 2 s. In `make test`, three other processes compute meanwhile.
TAKEN_OVER_WITHIN_S: Final = 10.0 if CHAOS_ROUNDS else 25.0
HANDED_OVER_WITHIN_S: Final = 5.0  # with CHAOS_ROUNDS: else it could not be told from a takeover
STOPPED_WITHIN_S: Final = 25.0
FAILING: Final = 0.12  # of all requests, for so long
FAILING_S: Final = 30.0
ALERTS: Final = 300
LEAD_ALERTS: Final = 30

# Real processes share the machine with everything else; the bounds above say what is promised.
pytestmark = [pytest.mark.xdist_group("aws-workers"), pytest.mark.timeout(300)]
each_round = pytest.mark.parametrize("number", range(ROUNDS))


@each_round
async def test_a_worker_that_was_frozen_finds_itself_replaced_and_doubles_nothing(tmp_path: Path, number: int) -> None:
    async with crew(tmp_path, "first", "second", timing=TIMING) as group:
        reader, other = await group.reader_and_other()
        before = session_of(reader)
        async with under_load(group) as load:
            frozen_at = datetime.now(UTC)
            reader.process.send_signal(signal.SIGSTOP)
            took = await goes_on([other], frozen_at)
            await asyncio.sleep(max(0.0, FROZEN_S - (datetime.now(UTC) - frozen_at).total_seconds()))
            reader.process.send_signal(signal.SIGCONT)

            async def has_begun_anew() -> bool:
                return session_of(reader) != before

            await wait_until(has_begun_anew, within_s=PATIENCE_S, workers=[reader])

        await group.complete(load.said)
        print(f"round {number}: frozen, taken over in {took.total_seconds():.1f} s, {len(load.said)} runs")
        await group.assert_each_ran_once(load.said)
        assert before in {line["session"] for line in lines(reader, "session.ended")}
        assert took.total_seconds() < TAKEN_OVER_WITHIN_S + load.late_s


@each_round
async def test_a_worker_asked_to_stop_under_load_hands_over_at_once_and_leaves_nothing_in_its_hands(
    tmp_path: Path, number: int
) -> None:
    alerts = [an_event(f"alert-{count}", "JOB_FAILED") for count in range(ALERTS)]
    bodies = [json.dumps({**envelope(event), "id": f"bus-{event.id}"}) for event in alerts]
    departures = Departures()
    async with crew(tmp_path, "first", "second", timing=TIMING, observe=departures.observe) as group:
        leaver, other = await group.reader_and_other()
        async with under_load(group) as load:
            await group.send_alerts(bodies[:LEAD_ALERTS])
            left = session_of(leaver)
            departures.released.clear()
            held = {keys.lease_sk(each.stream, each.shard) for each in await group.leases() if each.owner == left}
            asked_at = datetime.now(UTC)
            leaver.process.send_signal(signal.SIGTERM)
            await goes_on([other], asked_at)
        sent = LEAD_ALERTS
        # Messages end the polls under way, which would else take their 20 s.
        while leaver.process.poll() is None and sent < len(bodies):
            await group.send_alerts(bodies[sent : sent + 1])
            sent += 1
        code = await asyncio.to_thread(leaver.process.wait, PATIENCE_S)
        stopped_in_s = (datetime.now(UTC) - asked_at).total_seconds()

        await group.complete(load.said)
        await wait_until(lambda: _is_emptied(group), within_s=PATIENCE_S, workers=[other])
        created = created_at(*group.workers)
        gap = max(later - earlier for earlier, later in pairwise(created))
        print(
            f"round {number}: stopped in {stopped_in_s:.1f} s, longest pause between two runs "
            f"{gap.total_seconds():.1f} s, {len(load.said)} runs, {sent} messages"
        )
        assert code == 0
        assert stopped_in_s < STOPPED_WITHIN_S + load.late_s
        assert left not in {lease.owner for lease in await group.leases()}
        assert left not in {session.id for session in await group.sessions()}
        await group.assert_each_ran_once(load.said)
        told = Counter(line["event_id"] for worker in group.workers for line in lines(worker, "alert.told"))
        assert {event.id: told[event.id] for event in alerts[:sent]} == {event.id: 1 for event in alerts[:sent]}
        assert set(group.receipts.count.values()) == {1}, "a message was delivered again"
        assert held
        assert held <= departures.released_before_its_end(left), "others had to wait for the end of its session"
        assert not CHAOS_ROUNDS or gap.total_seconds() < SAY_EVERY_S + HANDED_OVER_WITHIN_S + load.late_s


@each_round
async def test_a_server_that_throttles_everything_for_a_while_delays_and_loses_nothing(
    tmp_path: Path, number: int
) -> None:
    async with crew(tmp_path, "first", "second", timing=TIMING) as group:
        await group.reader_and_other()
        async with under_load(group) as load:
            group.wire.is_throttling = True
            await asyncio.sleep(THROTTLED_S)
            group.wire.is_throttling = False
            over_at = datetime.now(UTC)
            took = await goes_on(group.workers, over_at)

        await group.complete(load.said)
        print(f"round {number}: throttled, went on in {took.total_seconds():.1f} s, {len(load.said)} runs")
        await group.assert_each_ran_once(load.said)
        assert took.total_seconds() < TAKEN_OVER_WITHIN_S + load.late_s


@pytest.mark.skipif(not CHAOS_ROUNDS, reason="one round takes a minute")
@each_round
async def test_requests_that_fail_in_every_way_delay_and_double_nothing(tmp_path: Path, number: int) -> None:
    draw, faults = random.Random(number), [fault for fault in Fault if fault is not Fault.LATE]
    async with crew(tmp_path, "first", "second", timing=TIMING) as group:
        await group.reader_and_other()
        async with under_load(group) as load:
            group.wire.mishap = lambda: draw.choice(faults) if draw.random() < FAILING else None
            await asyncio.sleep(FAILING_S)
            group.wire.mishap = lambda: None

        await group.complete(load.said)
        print(f"round {number}: failing requests, {len(load.said)} runs")
        await group.assert_each_ran_once(load.said)
        assert {worker.process.poll() for worker in group.workers} == {None}
        assert not any(lines(worker, "mistake.met") for worker in group.workers)


async def _is_emptied(group: Crew) -> bool:
    return await group.alerts_left() == 0
