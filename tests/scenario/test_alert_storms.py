"""A storm of alerts on several workers: a few messages at one pace, nothing lost, and no other alert kept waiting."""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import pytest

from consumers.alerts.groups import COUNTED_MAX, Groups
from consumers.alerts.pace import APART_MAX
from consumers.alerts.routing import Channels, Routing
from consumers.alerts.threads import ChatAlerts
from consumers.outbox.severities import Severity
from consumers.queues.consumer import QueueConsumer
from tests.scenario.test_alerts_queue import QueuedAlerts
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.remote_store import RandomFaults
from tests.support.fakes.slack import UNAVAILABLE, FakeSlack, Trouble, refusal
from tests.support.worlds.alerts import HOUR, AlertsWorld, an_event
from tests.support.worlds.queue import assert_accounts_balance
from worker.core.model.events import Event, EventType
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts

WORKERS = 4
STORM = 1_000
GROUPED = re.compile(r"\*(\w+)\* \| (\d+) more since")


def a_failure(number: int, event_type: str = EventType.RETRY_EXHAUSTED) -> Event:
    period = f"2026-03-03T{number:04}"
    return an_event(f"e{number}", event_type, version=1, pipeline=f"p{number % 7}", period=period)


def told(slack: FakeSlack, event_type: str = EventType.RETRY_EXHAUSTED) -> int:
    """How many events of a type people were told of, alone or in groups."""
    groups = [GROUPED.search(said.text) for said in slack.messages]
    apart = sum(
        group is None and said.texts[0].split("\n")[1].startswith(event_type)
        for said, group in zip(slack.messages, groups, strict=True)
    )
    return apart + sum(int(group[2]) for group in groups if group is not None and group[1] == event_type)


@asynccontextmanager
async def workers_on(alerts: QueuedAlerts) -> AsyncGenerator[list[QueueConsumer]]:
    """Workers that take from one queue and tell what waits in groups."""
    consumers: list[QueueConsumer] = []
    async with asyncio.TaskGroup() as tasks:
        groups: list[asyncio.Task[None]] = []
        for _ in range(WORKERS):
            telling = alerts.world.telling()
            consumers.append(alerts.consumer(ChatAlerts(telling).deliver))
            tasks.create_task(consumers[-1].run())
            groups.append(tasks.create_task(Groups(telling).run()))
        yield consumers
        for consumer in consumers:
            consumer.stop()
        for group in groups:
            group.cancel()


async def waits_in_groups(world: AlertsWorld) -> bool:
    return bool(await GroupedAlerts(world.tables).groups())


async def until_told(alerts: QueuedAlerts, consumers: list[QueueConsumer]) -> None:
    while len(alerts.queue) or await waits_in_groups(alerts.world):
        for consumer in consumers:
            assert_accounts_balance(consumer)
        await alerts.world.clock.sleep(1)


@on_virtual_time
async def test_a_thousand_failures_at_once_are_a_few_messages_and_hold_up_no_other_alert() -> None:
    alerts = QueuedAlerts()
    clock, slack = alerts.world.clock, alerts.world.slack
    for number in range(STORM):
        alerts.send(a_failure(number))
    async with workers_on(alerts) as consumers:
        await clock.sleep(2)  # in the middle of it
        sent_at = clock.monotonic()
        alerts.send(an_event("other", EventType.SLA_BREACH, version=1, pipeline="payments"))
        await until_told(alerts, consumers)

    assert told(slack) == STORM, "each is told once"
    assert len(slack.messages) <= APART_MAX + 4
    other = next(said for said in slack.messages if "payments" in said.text)
    assert other.at - sent_at < 15
    assert clock.monotonic() < 90
    assert slack.refused_for_pace == 0, "all workers keep one pace"
    assert min(later.at - earlier.at for earlier, later in pairwise(slack.messages)) >= 0.999
    assert min(consumer.counts.done for consumer in consumers) > 0, "they share it"
    assert await alerts.letters_kept() == 0


@pytest.mark.parametrize("seed", range(5))
def test_a_storm_on_a_slow_and_faulty_store_loses_nothing(seed: int) -> None:
    async def scenario() -> None:
        alerts, random = QueuedAlerts(), Random(seed)
        count = random.randint(20, 300)
        alerts.world.tables.choose = RandomFaults(random=random, delay_max_s=0.3)
        async with workers_on(alerts) as consumers:
            for number in range(count):
                alerts.send(a_failure(number))
                await alerts.world.clock.sleep(random.choice([0, 0, 0.05, 1]))
            await until_told(alerts, consumers)

        assert told(alerts.world.slack) >= count
        assert await alerts.letters_kept() == 0

    run(scenario())


@on_virtual_time
async def test_a_storm_on_one_machine_is_told_in_groups_although_its_events_come_one_after_another() -> None:
    """The relay hands a pipeline's events over in order, each when the one before is done."""
    world = AlertsWorld()
    telling = world.telling()
    alerts = ChatAlerts(telling)

    async with asyncio.TaskGroup() as tasks:
        groups = tasks.create_task(Groups(telling).run())
        for number in range(STORM):
            await alerts.deliver(a_failure(number))
        took_s = world.clock.monotonic()
        while await waits_in_groups(world):
            await world.clock.sleep(1)
        groups.cancel()

    assert took_s < 15
    assert told(world.slack) == STORM
    assert len(world.slack.messages) <= APART_MAX + 3


@on_virtual_time
async def test_a_few_failures_are_told_one_by_one_and_at_once() -> None:
    world = AlertsWorld()
    worker = world.worker()

    for number in range(APART_MAX):
        await worker.deliver(a_failure(number))

    assert len(world.slack.threads) == APART_MAX
    assert world.clock.monotonic() < APART_MAX + 1


@on_virtual_time
async def test_an_event_that_waits_in_a_group_and_comes_again_is_counted_once() -> None:
    world = AlertsWorld()
    events = [a_failure(number) for number in range(APART_MAX + 6)]

    for worker in (world.worker(), world.worker()):
        for event in events:
            await worker.deliver(event)
    await Groups(world.telling()).tell_waiting()
    for event in events:
        await world.worker().deliver(event)

    assert told(world.slack) == len(events)
    assert not await waits_in_groups(world)


@on_virtual_time
async def test_a_group_names_its_runs_their_causes_and_how_to_list_them() -> None:
    world = AlertsWorld()
    worker = world.worker()
    for number in range(APART_MAX + 40):
        await worker.deliver(a_failure(number))
    await Groups(world.telling()).tell_waiting()

    group = world.slack.messages[-1].text
    assert group.startswith(":red_circle: *RETRY_EXHAUSTED* | 40 more since 2026-03-03 12:00:00 UTC\n")
    assert "40 times: exit code 3" in group
    assert "by pipeline: p5 6, p6 6" in group
    assert re.search(r"the first: p\d/daily/2026-03-03T00\d\d, p", group)
    assert "and 20 more" in group
    assert "`interlock events --type RETRY_EXHAUSTED --since 2026-03-03T12:00:00Z`" in group


@on_virtual_time
async def test_a_run_that_was_told_in_a_group_gets_a_thread_when_it_needs_one() -> None:
    world = AlertsWorld()
    worker = world.worker()
    for number in range(APART_MAX + 1):
        await worker.deliver(a_failure(number))
    grouped = a_failure(APART_MAX)

    await worker.deliver(
        an_event("b1", EventType.SLA_BREACH, version=2, pipeline=grouped.pipeline, period=grouped.period)
    )

    thread = world.slack.threads[-1]
    assert len(world.slack.threads) == APART_MAX + 1
    assert grouped.period in thread.text
    assert "SLA_BREACH" in thread.text


@on_virtual_time
async def test_what_a_worker_left_to_a_group_is_told_by_another_when_it_is_gone() -> None:
    world = AlertsWorld()
    gone = world.worker()
    for number in range(APART_MAX + 3):
        await gone.deliver(a_failure(number))

    other = asyncio.create_task(Groups(world.telling()).run())
    await world.clock.sleep(90)
    other.cancel()
    await asyncio.wait([other])

    assert told(world.slack) == APART_MAX + 3


@on_virtual_time
async def test_a_group_waits_out_an_outage_and_is_posted_once() -> None:
    world = AlertsWorld()
    worker = world.worker()
    for number in range(APART_MAX + 3):
        await worker.deliver(a_failure(number))
    world.slack.trouble = lambda _m, _p: UNAVAILABLE
    tasks = [asyncio.create_task(Groups(world.telling()).run()) for _ in range(3)]
    await world.clock.sleep(HOUR)

    world.slack.trouble = lambda _m, _p: None
    await world.clock.sleep(300)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)

    assert told(world.slack) == APART_MAX + 3


@on_virtual_time
async def test_a_group_that_slack_refuses_waits_until_that_is_mended() -> None:
    world = AlertsWorld()
    telling = world.telling()
    alerts, groups = ChatAlerts(telling), Groups(telling)
    for number in range(APART_MAX + 3):
        await alerts.deliver(a_failure(number))
    world.slack.trouble = lambda _m, _p: refusal("invalid_blocks")

    await groups.tell_waiting()
    assert await waits_in_groups(world)
    world.slack.trouble = lambda _m, _p: None
    await world.clock.sleep(61)
    await groups.tell_waiting()

    assert told(world.slack) == APART_MAX + 3


@on_virtual_time
async def test_a_group_is_told_in_the_channel_that_is_meant_and_one_that_is_gone_is_replaced() -> None:
    routing = Routing(everyone=Channels("#usual", {Severity.ALERT: "#oncall"}))
    world = AlertsWorld(routing=routing)
    telling = world.telling()
    for number in range(APART_MAX + 3):
        await ChatAlerts(telling).deliver(a_failure(number))
    world.slack.channels = {"#usual"}

    await Groups(telling).tell_waiting()

    assert [said.channel for said in world.slack.messages] == ["C-oncall"] * APART_MAX + ["C-usual"]


@on_virtual_time
async def test_more_than_one_message_counts_is_told_with_the_next() -> None:
    world = AlertsWorld()
    telling = world.telling()
    for number in range(COUNTED_MAX + 50):
        await ChatAlerts(telling).deliver(a_failure(number))
    groups = Groups(telling)

    await groups.tell_waiting()
    await world.clock.sleep(61)
    await groups.tell_waiting()

    assert told(world.slack) == COUNTED_MAX + 50


# --- the pace -------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_what_slack_asks_of_one_worker_all_of_them_do() -> None:
    world = AlertsWorld()
    left = [Trouble(status=429, error="ratelimited", retry_after_s=40)]
    world.slack.trouble = lambda _m, _p: left.pop() if left else None

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(world.worker().deliver(a_failure(number)))

    assert [said.at >= 40 for said in world.slack.messages] == [True] * 3
    assert world.slack.refused_for_pace == 0


@on_virtual_time
async def test_workers_whose_clocks_differ_wait_for_no_turn_that_is_far_away() -> None:
    """One whose clock is an hour ahead must not keep the others from posting for an hour."""
    world = AlertsWorld()
    ahead = world.telling(off_by_s=3_600)
    await ChatAlerts(ahead).deliver(a_failure(0))
    await world.clock.sleep(2)

    await world.worker().deliver(a_failure(1))
    await ChatAlerts(ahead).deliver(a_failure(2))

    assert len(world.slack.threads) == 3
    assert world.clock.monotonic() < 70
