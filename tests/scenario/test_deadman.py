"""The dead man's switch: each part of the way that alerts take is broken in turn, and the others say so in time."""

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from scheduler.watchdog.checks.table import Watched
from scheduler.watchdog.dead_mans_switch import ARRIVES_WITHIN, HEARTBEAT_EVERY, PROBE_EVERY
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.worlds.alert_path import BUS_LETTERS, AlertWay, Part
from tests.support.worlds.engine import World, a_world
from tests.support.worlds.watchdog import told, told_of_ourselves, watch
from worker.core.model.events import EventType
from worker.store.repos.delivery.alert_probe import AlertPath

MINUTE = timedelta(minutes=1)
# As docs/watchdog.md says it: the next probe, its time to arrive, and a pass to notice.
NOTICED_WITHIN = PROBE_EVERY + ARRIVES_WITHIN + 2 * MINUTE


def watched(way: AlertWay) -> Watched:
    return Watched(relay_lags=way.lags(), probes_alerts=True, ping=way.ping)


async def degraded(world: World) -> set[str]:
    """The names of what is told to be degraded and not yet to be over."""
    names: set[str] = set()
    for event_type, detail in await told_of_ourselves(world):
        checks = detail["checks"]
        assert isinstance(checks, list)
        names = names | set(map(str, checks)) if event_type == "WATCHDOG_DEGRADED" else names - set(map(str, checks))
    return names


@pytest.mark.parametrize("part", Part)
def test_whatever_part_breaks_the_others_report_it_in_time_and_its_recovery(part: Part) -> None:
    async def play() -> None:
        world = await a_world()
        way = AlertWay(world)
        async with way.open(), world.worker() as worker:
            held = watch(world, worker, watched(way))
            await held.until(NOON + 20 * MINUTE, MINUTE)
            assert await degraded(world) == set()
            assert len(way.pings) == 20

            way.broken.add(part)
            broken_at = world.clock.now()
            with capture_logs() as lines:
                await held.until(broken_at + NOTICED_WITHIN, MINUTE)
            errors = [line for line in lines if line["log_level"] == "error"]

            # By the events table, by the log, and by the silence of the heartbeat.
            assert "alert-path" in await degraded(world)
            assert any(line["event"] == "watchdog.degraded" and line["check"] == "alert-path" for line in errors)
            pings = len(way.pings)
            await held.until(world.clock.now() + 10 * MINUTE, MINUTE)
            assert len(way.pings) == pings

            way.broken.clear()
            await held.until(world.clock.now() + PROBE_EVERY + 5 * MINUTE, MINUTE)
            assert "alert-path" not in await degraded(world)
            assert len(way.pings) > pings

    run(play())


@on_virtual_time
async def test_a_probe_that_was_sent_by_a_clock_far_ahead_hides_no_broken_way() -> None:
    world, month = await a_world(), timedelta(days=30)
    way = AlertWay(world)
    async with way.open(), world.worker() as worker:
        held = watch(world, worker, watched(way))
        world.clock.step(month)
        await held.until(NOON + month + MINUTE, MINUTE)
        world.clock.step(-month)
        way.broken.add(Part.CHAT)
        await held.until(NOON + MINUTE + NOTICED_WITHIN, MINUTE)

        assert "alert-path" in await degraded(world)


@on_virtual_time
async def test_a_relay_that_stands_still_is_told_as_such_too() -> None:
    world = await a_world()
    way = AlertWay(world)
    async with way.open(), world.worker() as worker:
        held = watch(world, worker, watched(way))
        await held.until(NOON + 5 * MINUTE, MINUTE)
        way.broken.add(Part.RELAY)
        await held.until(world.clock.now() + HEARTBEAT_EVERY + 8 * MINUTE, MINUTE)

        assert "relay-lag feed.events" in await degraded(world)


@on_virtual_time
async def test_a_bus_that_is_away_for_long_shows_in_the_dead_letters_too() -> None:
    world = await a_world()
    way = AlertWay(world)
    async with way.open(), world.worker() as worker:
        held = watch(world, worker, watched(way))
        await held.go()
        way.broken.add(Part.BUS)
        await held.until(NOON + PROBE_EVERY + 5 * MINUTE, MINUTE)

        assert f"dead-letters {BUS_LETTERS}" in await degraded(world)


@on_virtual_time
async def test_probes_are_answered_and_never_shown_to_people() -> None:
    world = await a_world()
    way = AlertWay(world)
    async with way.open(), world.worker() as worker:
        held = watch(world, worker, watched(way))
        await held.until(NOON + timedelta(hours=2), MINUTE)

        probes = [each for each in await told(world, "") if each.event.type == EventType.ALERT_PATH_CHECK]
        assert len(probes) == 8
        assert way.posted == []
        assert (await AlertPath(world.tables).load()).is_answered


@on_virtual_time
async def test_a_successor_neither_repeats_a_probe_nor_forgets_that_one_is_missing() -> None:
    world = await a_world()
    way = AlertWay(world, broken={Part.QUEUE})
    async with way.open():
        async with world.worker("w1") as worker:
            await watch(world, worker, watched(way)).until(NOON + 10 * MINUTE, MINUTE)
        async with world.worker("w2") as worker:
            await watch(world, worker, watched(way)).until(NOON + ARRIVES_WITHIN + 3 * MINUTE, MINUTE)

        assert "alert-path" in await degraded(world)
        probes = [each for each in await told(world, "") if each.event.type == EventType.ALERT_PATH_CHECK]
        assert len(probes) == 2


@on_virtual_time
async def test_the_heartbeat_event_comes_once_for_each_stretch_whoever_holds_the_duty() -> None:
    world = await a_world()
    for name in ("w1", "w2", "w3"):
        async with world.worker(name) as worker:
            await watch(world, worker).until(world.clock.now() + 20 * MINUTE, MINUTE)

    beats = [each.event.at for each in await told(world, "") if each.event.type == EventType.WATCHDOG_HEARTBEAT]
    assert beats == [NOON + number * HEARTBEAT_EVERY for number in range(4)]


@on_virtual_time
async def test_an_address_that_cannot_be_asked_for_is_logged_and_stops_nothing() -> None:
    world = await a_world()

    async def refused() -> str | None:
        return "connection refused"

    async with world.worker() as worker:
        with capture_logs() as lines:
            await watch(world, worker, Watched(ping=refused)).until(NOON + 3 * MINUTE, MINUTE)

    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["heartbeat.failed"] * 3


@on_virtual_time
async def test_after_all_workers_were_away_the_way_is_not_called_broken_before_it_could_catch_up() -> None:
    world = await a_world()
    away = AlertWay(world, broken=set(Part))
    async with away.open(), world.worker("w1") as worker:
        await watch(world, worker, watched(away)).go()
    await world.wait(hours=5)

    way = AlertWay(world)
    async with way.open(), world.worker("w2") as worker:
        held = watch(world, worker, watched(way))
        await held.until(world.clock.now() + 30 * MINUTE, MINUTE)

        assert await told_of_ourselves(world) == []
        assert len(way.pings) == 30
