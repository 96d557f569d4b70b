"""Targets besides Slack: each gets its alerts once, in its own terms, whatever is wrong with it or with another."""

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from consumers.alerts.groups import Groups
from consumers.alerts.routing import Channels, Routing
from consumers.alerts.targets.queued_chat import QueuedChat
from consumers.alerts.threads import ChatAlerts
from consumers.outbox.routes import event_in
from consumers.outbox.severities import Severity
from tests.scenario.test_alert_storms import told
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.alert_targets import LOST, LOST_AFTER, FakeEndpoint, Ordered
from tests.support.fakes.remote_store import RandomFaults
from tests.support.fakes.slack import UNAVAILABLE
from tests.support.worlds.alert_targets import TargetsWorld
from tests.support.worlds.alerts import AlertsWorld, an_event
from worker.app.alert_targets import AlertTargets
from worker.core.model.events import Event, EventType
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.grouped_alerts import GroupedAlerts
from worker.store.repos.events import event_write
from worker.store.row_codec import decode_row
from worker.store.rows import to_json_map

WORKERS = 4
STORM = 1_000 if os.environ.get("CHAOS_ROUNDS") else 250
SUBJECT = "interlock/orders/daily/2026-03-03"

FAILED = an_event("e1", EventType.RETRY_EXHAUSTED, version=4)
DONE = an_event("e9", EventType.JOB_COMPLETED, version=9)


def a_failure(number: int, event_type: str = EventType.RETRY_EXHAUSTED) -> Event:
    at = NOON + timedelta(seconds=60 * number / STORM)
    found = an_event(f"e{number}", event_type, version=1, pipeline=f"p{number % 7}", period=f"2026-03-03T{number:04}")
    return replace(found, at=at)


def an_alarm(event_id: str, minutes: float, *, is_over: bool = False) -> Event:
    return Event(
        id=event_id,
        type=EventType.WATCHDOG_RECOVERED if is_over else EventType.WATCHDOG_DEGRADED,
        at=NOON + timedelta(minutes=minutes),
        message="a check fails",
        detail={"checks": ["missed"]},
    )


# --- what each target is sent ---------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_failed_run_is_one_alert_at_each_target_and_its_success_ends_it() -> None:
    world = TargetsWorld()

    await world.deliver(FAILED, DONE)

    assert world.pagerduty.alerts == {SUBJECT: "resolved"}
    assert [body["event_action"] for _, body in world.pagerduty.requests] == ["trigger", "resolve"]
    trigger = world.pagerduty.requests[0][1]["payload"]
    assert (trigger["severity"], trigger["component"], trigger["source"]) == ("critical", "orders", "interlock")
    assert trigger["summary"] == "orders/daily/2026-03-03: RETRY_EXHAUSTED: exit code 3"
    assert [text.split("\n")[0] for text in world.teams.texts] == [
        "orders/daily/2026-03-03: RETRY_EXHAUSTED",
        "orders/daily/2026-03-03: JOB_COMPLETED",
    ]
    assert [item["action"] for item in world.receiver.events.values()] == ["trigger", "resolve"]
    assert await world.waiting() == 0


@on_virtual_time
async def test_a_target_gets_only_the_severities_it_should() -> None:
    world = TargetsWorld()
    world.routing = Routing(
        everyone=Channels(""), targets={"pagerduty": frozenset({Severity.WARNING}), "teams": frozenset()}
    )

    await world.deliver(
        FAILED,
        an_event("w1", EventType.SLA_WARNING, version=2),
        an_event("s1", EventType.JOB_COMPLETED, version=3, period="2026-03-01"),
        an_event("n1", EventType.JOB_FAILED, version=1, period="2026-03-01"),
    )

    [(_, sent)] = world.pagerduty.requests
    assert sent["payload"]["severity"] == "warning"
    assert world.teams.requests == []
    assert world.receiver.events.keys() == {"e1", "w1", "s1", "n1"}


@on_virtual_time
async def test_a_rerun_acknowledges_an_alert_and_its_failure_pages_again() -> None:
    world = TargetsWorld(names=["pagerduty"])

    await world.deliver(
        FAILED,
        an_event("r1", EventType.RERUN_ACCEPTED, version=5),
        an_event("e2", EventType.RETRY_EXHAUSTED, version=7),
        DONE,
    )

    actions = [(body["event_action"], body["dedup_key"]) for _, body in world.pagerduty.requests]
    assert actions == [
        ("trigger", SUBJECT),
        ("acknowledge", SUBJECT),
        ("resolve", SUBJECT),
        ("trigger", f"{SUBJECT}#1"),
        ("resolve", f"{SUBJECT}#1"),
    ]
    assert len(world.pagerduty.notified) == 2


@on_virtual_time
async def test_a_success_that_came_before_its_alert_resolves_it_and_is_not_waited_for() -> None:
    world = TargetsWorld(names=["pagerduty"])
    await world.tables.commit(event_write(DONE))

    await world.deliver(DONE, FAILED)

    assert world.pagerduty.alerts == {SUBJECT: "resolved"}


@on_virtual_time
async def test_a_deadline_that_is_reported_after_the_end_leaves_no_alert_open() -> None:
    world = TargetsWorld(names=["pagerduty"])

    await world.deliver(FAILED, DONE, an_event("b1", EventType.SLA_BREACH, version=9))

    assert set(world.pagerduty.alerts.values()) == {"resolved"}
    assert len(world.pagerduty.notified) == 2


@on_virtual_time
async def test_each_incident_is_an_alert_of_its_own_and_its_recovery_resolves_it() -> None:
    world = TargetsWorld(names=["pagerduty", "teams"])
    other = replace(an_alarm("o1", 1), detail={"checks": ["lag"]})

    await world.deliver(an_alarm("d1", 0), other, an_alarm("d2", 2), an_alarm("d3", 3, is_over=True))

    assert world.pagerduty.alerts == {
        "interlock/WATCHDOG#missed": "resolved",
        "interlock/WATCHDOG#lag": "triggered",
    }
    assert len(world.pagerduty.notified) == 2
    assert "WATCHDOG_RECOVERED" in world.teams.texts[-1]


@on_virtual_time
async def test_an_incident_after_a_quiet_time_pages_again_although_nobody_told_of_the_end() -> None:
    world = TargetsWorld(names=["pagerduty"])

    await world.deliver(an_alarm("d1", 0), an_alarm("d2", 13 * 60))

    assert world.pagerduty.alerts == {
        "interlock/WATCHDOG#missed": "resolved",
        "interlock/WATCHDOG#missed#1": "triggered",
    }


@on_virtual_time
async def test_an_owner_with_a_key_of_its_own_gets_its_alerts_there() -> None:
    async def owner_of(pipeline: str) -> str:
        return "payments" if pipeline == "invoices" else ""

    world = TargetsWorld(names=["pagerduty"], owner_of=owner_of)
    world.pagerduty_keys = {"": "R" * 32, "payments": "P" * 32}
    world.pagerduty.keys = {"R" * 32, "P" * 32}

    await world.deliver(FAILED, an_event("e2", EventType.RETRY_EXHAUSTED, version=1, pipeline="invoices"))

    keys = [(body["routing_key"][0], body["payload"]["component"]) for _, body in world.pagerduty.requests]
    assert sorted(keys) == [("P", "invoices"), ("R", "orders")]


# --- what goes wrong ------------------------------------------------------------------------------------------------


def endpoints(world: TargetsWorld) -> list[FakeEndpoint]:
    return [world.pagerduty, world.teams, world.receiver]


PASSING = {
    "500": Ordered(status=500),
    "503": Ordered(status=503, headers={"Retry-After": "5"}),
    "busy": Ordered(status=429, headers={"Retry-After": "40"}),
    "busy without a time": Ordered(status=429),
    "busy with a date": Ordered(status=429, headers={"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}),
    "locked out": Ordered(status=403),
    "moved away": Ordered(status=404),
    "slow": LOST,
}


@pytest.mark.parametrize("ordered", PASSING.values(), ids=PASSING)
def test_whatever_passes_delays_an_alert_and_loses_none(ordered: Ordered) -> None:
    async def scenario() -> None:
        world = TargetsWorld()
        for endpoint in endpoints(world):
            left = [ordered] * 5
            endpoint.trouble = lambda _body, left=left: left.pop() if left else None

        await world.deliver(FAILED, seconds=1_800)

        assert [len(endpoint.requests) for endpoint in endpoints(world)] == [1, 1, 1]
        assert await world.waiting() == 0

    run(scenario())


@pytest.mark.parametrize("status", [400, 405, 413, 422])
def test_what_a_target_can_never_accept_is_sent_once_and_becomes_a_dead_letter(status: int) -> None:
    async def scenario() -> None:
        world = TargetsWorld()
        for endpoint in endpoints(world):
            endpoint.trouble = lambda body: Ordered(status=status, body="bad") if "orders" in str(body) else None

        await world.deliver(FAILED, an_event("e2", EventType.RETRY_EXHAUSTED, version=1, pipeline="invoices"))

        for lane in ("webhook", "pagerduty", "teams"):
            [letter] = await world.letters(f"target.{lane}")
            assert letter.id == "e1"
            assert str(status) in letter.reason
            assert "hidden-path" not in letter.reason
        assert world.receiver.events.keys() == {"e2"}, "a refused batch is sent one by one"
        assert (len(world.pagerduty.requests), len(world.teams.requests)) == (1, 1)
        assert [len(endpoint.paths) for endpoint in endpoints(world)] == [2, 2, 3]
        assert await world.waiting() == 0

    run(scenario())


@on_virtual_time
async def test_a_dead_letter_that_is_replayed_is_sent_again() -> None:
    world = TargetsWorld(names=["pagerduty"])
    world.pagerduty.trouble = lambda _body: Ordered(status=400)
    await world.deliver(FAILED)
    world.pagerduty.trouble = lambda _body: None
    [letter] = await world.letters("target.pagerduty")
    body = await DeadLetters(world.tables).body(letter)
    assert body is not None

    async with world.running() as [worker]:
        await worker.dead_letter_handlers["target.pagerduty"](decode_row(body))
        await world.clock.sleep(60)

    assert event_in(to_json_map(decode_row(body))).id == "e1"
    assert world.pagerduty.alerts == {SUBJECT: "triggered"}


@on_virtual_time
async def test_a_wrong_key_makes_alerts_wait_until_it_is_corrected() -> None:
    world = TargetsWorld(names=["pagerduty"])
    world.pagerduty.keys = set()

    async with world.running() as [worker]:
        await worker.take(FAILED)
        await world.clock.sleep(600)
        assert await world.waiting() == 1
        assert worker.failures() > 1
        world.pagerduty.keys = {"R" * 32}
        await world.clock.sleep(120)

    assert world.pagerduty.alerts == {SUBJECT: "triggered"}
    assert await world.letters("target.pagerduty") == []


@on_virtual_time
async def test_an_answer_that_is_lost_repeats_what_targets_recognise() -> None:
    world = TargetsWorld()
    for endpoint in endpoints(world):
        left = [LOST_AFTER]
        endpoint.trouble = lambda _body, left=left: left.pop() if left else None

    await world.deliver(FAILED, seconds=300)

    assert len(world.pagerduty.notified) == 1
    assert len(world.receiver.events) == world.receiver.repeats == 1
    assert len(world.teams.requests) == 2, "Teams cannot recognise a repeat"


@on_virtual_time
async def test_an_event_that_comes_again_is_sent_once_by_whichever_worker() -> None:
    world = TargetsWorld()

    for _ in range(3):
        await world.deliver(FAILED, FAILED, DONE, DONE)

    assert [len(endpoint.requests) for endpoint in endpoints(world)][:2] == [2, 2]
    assert world.receiver.repeats == 0


@on_virtual_time
async def test_what_a_worker_took_and_did_not_send_is_sent_by_another() -> None:
    world = TargetsWorld()
    await world.worker().take(FAILED)

    await world.deliver(seconds=90)

    assert [len(endpoint.requests) for endpoint in endpoints(world)] == [1, 1, 1]


@on_virtual_time
async def test_a_worker_that_dies_after_a_target_accepted_loses_nothing_and_repeats_one_request() -> None:
    world = TargetsWorld()
    first = world.worker()
    await first.take(FAILED)
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(task()) for task in first.background_tasks.values()]

        def die(_: Mapping[str, object]) -> Ordered:
            for task in running:
                task.cancel()  # the process is gone before it can record anything
            return LOST_AFTER

        for endpoint in endpoints(world):
            endpoint.trouble = die
    for endpoint in endpoints(world):
        endpoint.trouble = lambda _body: None

    await world.deliver(seconds=200)

    assert len(world.pagerduty.notified) == 1
    assert list(world.receiver.events) == ["e1"]
    assert len(world.teams.requests) in {1, 2}
    assert await world.waiting() == 0


@on_virtual_time
async def test_a_target_that_is_down_delays_no_other() -> None:
    world = TargetsWorld()
    world.pagerduty.trouble = lambda _body: Ordered(status=500)

    await world.deliver(*(a_failure(number) for number in range(4)), seconds=30)

    assert len(world.teams.requests) == 4
    assert len(world.receiver.events) == 4
    assert await world.waiting() == 4


@on_virtual_time
async def test_an_outage_of_slack_delays_no_other_target_and_loses_nothing() -> None:
    chat, world = AlertsWorld(), TargetsWorld()
    chat.clock, world.tables = world.clock, chat.tables
    worker = world.worker()
    queued = worker.queued(chat.worker().deliver)
    chat.slack.trouble = lambda _method, _payload: UNAVAILABLE

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(task()) for task in (*worker.background_tasks.values(), queued.run)]
        for number in range(4):
            await worker.take(a_failure(number))
            await queued.take(a_failure(number))
        await world.clock.sleep(600)
        assert len(world.pagerduty.notified) == 4
        assert chat.slack.messages == []
        chat.slack.trouble = lambda _method, _payload: None
        await world.clock.sleep(120)
        for task in running:
            task.cancel()

    assert len(chat.slack.threads) == 4
    assert await world.waiting() == 0


# --- many at once ---------------------------------------------------------------------------------------------------


def counted(world: TargetsWorld) -> dict[str, int]:
    """How many failures of the storm each target was told of, alone or in groups."""
    bodies = [body for _, body in world.pagerduty.requests if body["event_action"] == "trigger"]
    details = [body["payload"]["custom_details"] for body in bodies if body["payload"]["class"] == "RETRY_EXHAUSTED"]
    titles = [text.split("\n")[0] for text in world.teams.texts if "RETRY_EXHAUSTED" in text]
    return {
        "pagerduty": sum(each.get("count", 1) for each in details),
        "teams": sum(int(each.split()[1]) if " more since " in each else 1 for each in titles),
        "webhook": sum(item["event"]["detail-type"] == "RETRY_EXHAUSTED" for item in world.receiver.events.values()),
    }


@on_virtual_time
async def test_a_minute_of_failures_on_four_workers_is_a_few_messages_and_holds_up_no_other_alert() -> None:
    world, chat = TargetsWorld(), AlertsWorld()
    chat.clock, chat.slack.clock = world.clock, world.clock
    world.tables, chat.tables = chat.tables, chat.tables
    other_at: dict[str, float] = {}
    sent_at = 0.0

    async with world.running(WORKERS) as workers, slack_from_queues(chat, workers) as chats:

        async def take(number: int, event: Event) -> None:
            await workers[number].take(event)
            await chats[number].take(event)

        for number in range(STORM):
            await take(number % WORKERS, a_failure(number))
            await world.clock.sleep(60 / STORM)
            if number == STORM // 2:
                sent_at = world.clock.monotonic()
                await take(0, an_event("other", EventType.SLA_BREACH, version=1, pipeline="payments"))
        await world.clock.sleep(120)

    for name, endpoint in (("pagerduty", world.pagerduty), ("teams", world.teams), ("webhook", world.receiver)):
        other_at[name] = next(at for at, body in endpoint.requests if "payments" in str(body)) - sent_at
    other_at["slack"] = next(said.at for said in chat.slack.messages if "payments" in said.text) - sent_at
    messages = {
        "pagerduty": len(world.pagerduty.requests),
        "teams": len(world.teams.requests),
        "webhook": len(world.receiver.requests),
        "slack": len(chat.slack.messages),
    }
    print(f"{STORM} failures: messages {messages}, the other alert after {other_at}")
    assert {**counted(world), "slack": told(chat.slack)} == dict.fromkeys(messages, STORM)
    assert max(messages["pagerduty"], messages["teams"], messages["slack"]) <= 16
    assert messages["webhook"] <= 70
    assert max(other_at.values()) < 10
    assert [endpoint.refused_for_pace for endpoint in (*endpoints(world), chat.slack)] == [0, 0, 0, 0]
    assert world.receiver.repeats == 0
    assert await world.waiting() == 0
    assert not await GroupedAlerts(world.tables, "GROUPEDALERTS#TARGETS").groups()
    assert not await GroupedAlerts(world.tables).groups()


@asynccontextmanager
async def slack_from_queues(chat: AlertsWorld, workers: list[AlertTargets]) -> AsyncGenerator[list[QueuedChat]]:
    """Slack on the same workers, as where there are other targets: from a queue in the store, and in groups."""
    chats: list[QueuedChat] = []
    async with asyncio.TaskGroup() as tasks:
        running: list[asyncio.Task[None]] = []
        for worker in workers:
            telling = chat.telling()
            chats.append(worker.queued(ChatAlerts(telling).deliver))
            running += [tasks.create_task(chats[-1].run()), tasks.create_task(Groups(telling).run())]
        yield chats
        for task in running:
            task.cancel()


@pytest.mark.parametrize("seed", range(3))
def test_a_storm_on_a_slow_and_faulty_store_loses_nothing(seed: int) -> None:
    async def scenario() -> None:
        world, random = TargetsWorld(), Random(seed)
        world.tables.choose = RandomFaults(random=random, delay_max_s=0.3)

        async with world.running(WORKERS) as workers, asyncio.TaskGroup() as tasks:
            for number in range(60):
                worker = random.choice(workers)
                tasks.create_task(
                    worker.services.tries.forever(lambda worker=worker, n=number: worker.take(a_failure(n)))
                )
                await world.clock.sleep(random.choice([0, 0, 0.05, 1]))
            await world.clock.sleep(400)

        assert min(counted(world).values()) >= 60
        assert await world.waiting() == 0

    run(scenario())
