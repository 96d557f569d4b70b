"""Checks of the watchdog that fail, hang or find something impaired: the others go on, and people are told."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from consumers.outbox.routes import envelope
from consumers.outbox.severities import Severity, severity_of, told_to_people
from scheduler.watchdog.check import Finding, Impaired, WatchdogCheck
from scheduler.watchdog.checks.health import CronSliceCheck
from scheduler.watchdog.degraded import AT_ONCE_MAX, Degraded, Trouble
from scheduler.watchdog.watchdog import PassEnd, Watchdog
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.worlds.engine import World, a_world
from tests.support.worlds.watchdog import DAILY, on_watch, one_pass, told_of_ourselves, types_told
from worker.core.errors import RetryLater
from worker.core.model.events import Event, EventType


def of_checks(world: World, checks: Sequence[WatchdogCheck]) -> Watchdog:
    async def no_end(_: PassEnd) -> None:
        return

    degraded = Degraded(world.tables, world.clock)
    return Watchdog(checks, degraded, world.clock, end=no_end, may_act=lambda: True)


@pytest.mark.parametrize("problem", [RetryLater("throttled"), KeyError("a mistake"), TimeoutError()])
def test_a_failing_check_stops_no_other_is_told_once_and_told_when_it_is_over(problem: Exception) -> None:
    looked: list[datetime] = []
    fails = [True]

    async def failing(_: datetime) -> Sequence[Finding]:
        if fails[0]:
            raise problem
        return ()

    async def working(now: datetime) -> Sequence[Finding]:
        looked.append(now)
        return ()

    @on_virtual_time
    async def play() -> None:
        world = await a_world()
        checks = [WatchdogCheck(name="broken", look=failing), WatchdogCheck(name="sound", look=working)]
        watchdog = of_checks(world, checks)
        await one_pass(watchdog)
        assert await told_of_ourselves(world) == []  # a store may be slow for a moment
        for _ in range(2):
            await one_pass(watchdog)
        assert len(looked) == 3
        [(event_type, detail)] = await told_of_ourselves(world)
        assert (event_type, detail["checks"]) == ("WATCHDOG_DEGRADED", ["broken"])

        fails[0] = False
        for _ in range(3):
            await one_pass(watchdog)
        [_, (event_type, detail)] = sorted(await told_of_ourselves(world))
        assert (event_type, detail["checks"]) == ("WATCHDOG_RECOVERED", ["broken"])

    play()


@on_virtual_time
async def test_a_check_that_hangs_is_given_up_after_a_minute_and_the_others_go_on() -> None:
    world = await a_world()
    looked: list[datetime] = []

    async def hanging(_: datetime) -> Sequence[Finding]:
        await world.clock.sleep(3600)
        return ()

    async def working(now: datetime) -> Sequence[Finding]:
        looked.append(now)
        return ()

    checks = [WatchdogCheck(name="stuck", look=hanging), WatchdogCheck(name="sound", look=working)]
    watchdog = of_checks(world, checks)
    reports = await watchdog.pass_over(NOON)

    assert reports[0].problems
    assert looked == [NOON]
    assert world.clock.now() - NOON <= timedelta(seconds=61)


@pytest.mark.parametrize("problem", [RetryLater("another was first"), KeyError("a mistake")])
def test_one_finding_that_cannot_be_dealt_with_does_not_hide_the_next(problem: Exception) -> None:
    run(one_of_two_findings(problem))


async def one_of_two_findings(problem: Exception) -> None:
    world = await a_world()
    done: list[str] = []

    async def refuse() -> None:
        raise problem

    async def do() -> None:
        done.append("second")

    async def found(_: datetime) -> Sequence[Finding]:
        return [Finding(about="a", sentence="a", act=refuse), Finding(about="b", sentence="b", act=do)]

    watchdog = of_checks(world, [WatchdogCheck(name="both", look=found)])
    [report] = await watchdog.pass_over(NOON)

    assert done == ["second"]
    assert len(report.problems) == 1


@on_virtual_time
async def test_a_part_that_is_impaired_is_told_at_once_and_each_part_by_its_name() -> None:
    world = await a_world()
    parts = [{"queue a": "stuck"}, {"queue a": "stuck", "queue b": "stuck"}, {"queue b": "stuck"}]

    async def look(_: datetime) -> Sequence[Finding]:
        raise Impaired(parts[0])

    watchdog = of_checks(world, [WatchdogCheck(name="queues", look=look)])
    seen: list[list[str]] = []
    while parts:
        await one_pass(watchdog)
        await world.clock.sleep(60)
        parts.pop(0)
        seen = [[event_type, *map(str, [detail["checks"]])] for event_type, detail in await told_of_ourselves(world)]

    assert seen == [
        ["WATCHDOG_DEGRADED", "['queue a']"],
        ["WATCHDOG_DEGRADED", "['queue b']"],
        ["WATCHDOG_RECOVERED", "['queue a']"],
    ]


@on_virtual_time
async def test_slices_of_cron_that_nobody_holds_are_told_in_the_second_pass_and_so_is_their_end() -> None:
    world = await a_world()
    unheld = ["03"]

    async def look() -> Sequence[str]:
        return unheld

    watchdog = of_checks(world, [WatchdogCheck(name="cron-slices", look=CronSliceCheck(look).look)])
    await one_pass(watchdog)
    assert await told_of_ourselves(world) == []
    unheld.append("07")
    await one_pass(watchdog)
    [(event_type, detail)] = await told_of_ourselves(world)
    assert event_type == "WATCHDOG_DEGRADED"
    assert "slices 03;" in str(detail["problems"])
    unheld.clear()
    await one_pass(watchdog)

    told = sorted(event_type for event_type, _ in await told_of_ourselves(world))
    assert told == ["WATCHDOG_DEGRADED", "WATCHDOG_RECOVERED"]


@on_virtual_time
async def test_a_check_that_does_not_run_is_told_and_withholds_the_heartbeat_if_it_is_vital() -> None:
    world = await a_world()
    sound: list[bool] = []

    async def working(_: datetime) -> Sequence[Finding]:
        return ()

    async def end(ended: PassEnd) -> None:
        sound.append(ended.is_sound)

    checks = [WatchdogCheck(name=name, look=working, is_vital=True) for name in ("stuck", "running")]
    watchdog = Watchdog(checks, Degraded(world.tables, world.clock), world.clock, end=end, may_act=lambda: True)
    await one_pass(watchdog)
    for _ in range(5):
        await world.clock.sleep(60)
        await watchdog.run_check(checks[1])
        await watchdog.commit()

    assert sound == [True, True, True, True, True, False]
    [(event_type, detail)] = await told_of_ourselves(world)
    assert (event_type, detail["checks"]) == ("WATCHDOG_DEGRADED", ["stuck"])


@on_virtual_time
async def test_parts_that_fail_at_once_are_told_one_by_one_so_that_each_can_end_by_itself() -> None:
    world = await a_world()
    degraded = Degraded(world.tables, world.clock)
    count = AT_ONCE_MAX + 5
    troubles = {f"part {number:02}": Trouble("stuck") for number in range(count)}

    for _ in range(3):
        await degraded.note(troubles)
    begun = [detail["checks"] for _, detail in await told_of_ourselves(world)]
    for _ in range(3):
        await degraded.note({"part 07": Trouble("stuck")})

    told = [(event_type, detail["checks"]) for event_type, detail in await told_of_ourselves(world)]
    assert sorted(map(str, begun)) == sorted(str([name]) for name in troubles)
    over = [checks for event_type, checks in told if event_type == "WATCHDOG_RECOVERED"]
    assert sorted(map(str, over)) == sorted(str([name]) for name in troubles if name != "part 07")


@on_virtual_time
async def test_who_lost_the_duty_does_nothing_any_more() -> None:
    world = await a_world()
    async with on_watch(world) as held:
        await world.deploy(DAILY)
        await held.until(NOON + timedelta(hours=1))
        held.duty[0] = False
        await held.until(NOON + timedelta(hours=3))

        assert await types_told(world) == []


def test_the_events_of_the_watchdog_reach_people() -> None:
    event = Event(id="1", type=EventType.WATCHDOG_DEGRADED, at=NOON)
    assert told_to_people().matches(envelope(event))
    assert severity_of(EventType.WATCHDOG_DEGRADED) is Severity.ALERT
    assert not told_to_people().matches(envelope(Event(id="1", type=EventType.WATCHDOG_HEARTBEAT, at=NOON)))
