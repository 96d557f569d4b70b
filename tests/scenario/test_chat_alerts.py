"""Alerts in a chat: one thread for each run, its first message up to date, in the right channel and told once."""

import asyncio
from dataclasses import replace

from consumers.alerts.chat import Chat, ChatMessage, Posted
from consumers.alerts.routing import Channels, Routing
from consumers.alerts.threads import ChatAlerts
from consumers.outbox.severities import Severity
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_AFTER, NO_FAULT, Fault, Operation
from tests.support.fakes.slack import UNAVAILABLE
from tests.support.worlds.alerts import FAILED, HOUR, AlertsWorld, an_event
from worker.core.model.events import EventType
from worker.store.repos.events import event_write

# --- threads ----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_first_alert_of_a_run_opens_a_thread_and_the_next_ones_answer_in_it() -> None:
    world = AlertsWorld()
    worker = world.worker()

    await worker.deliver(FAILED)
    await worker.deliver(an_event("e2", EventType.RETRY_EXHAUSTED, version=5))
    await worker.deliver(an_event("e3", EventType.SLA_BREACH, version=5, period="2026-03-04"))

    first, second = world.slack.threads
    assert "*orders | daily | 2026-03-03*" in first.texts[0]
    assert "JOB_FAILED: exit code 3" in first.texts[0]
    [answer] = world.slack.answers_in(first)
    assert answer == (
        ":red_circle: *RETRY_EXHAUSTED* | orders | daily | 2026-03-03\nexit code 3\n→ look at the job's log"
    )
    assert "2026-03-04" in second.text


@on_virtual_time
async def test_the_first_message_shows_how_the_run_stands_now() -> None:
    world = AlertsWorld()
    worker = world.worker()

    for number, (event_type, version) in enumerate(
        [
            (EventType.SLA_WARNING, 2),
            (EventType.SLA_BREACH, 3),
            (EventType.JOB_COMPLETED, 4),
        ]
    ):
        await worker.deliver(an_event(f"e{number}", event_type, version))

    [thread] = world.slack.threads
    assert [shown(text) for text in thread.texts] == ["running", "breached", "recovered"]
    assert "SLA_WARNING" in thread.text, "how it began is kept"
    assert "now: JOB_COMPLETED" in thread.text


def shown(text: str) -> str:
    return next((word for word in ("running", "breached", "recovered", "done", "failed") if f"*{word}*" in text), "")


@on_virtual_time
async def test_the_first_message_never_goes_back_to_an_older_version() -> None:
    world = AlertsWorld()
    worker = world.worker()
    await worker.deliver(an_event("e1", EventType.SLA_BREACH, version=3))
    await worker.deliver(an_event("e3", EventType.JOB_COMPLETED, version=7))

    await worker.deliver(an_event("e2", EventType.JOB_FAILED, version=5))

    [thread] = world.slack.threads
    assert shown(thread.text) == "recovered"
    assert len(world.slack.answers_in(thread)) == 2, "it is told all the same"


@on_virtual_time
async def test_a_worker_that_is_late_shows_the_latest_again() -> None:
    """A slow update with old news that overtakes a newer one must not stay."""
    world = AlertsWorld()
    late = LateOnce(world.chat())
    quick, slow = world.worker(), ChatAlerts(world.telling(late))
    await quick.deliver(an_event("e1", EventType.SLA_BREACH, version=3))

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(slow.deliver(an_event("e2", EventType.JOB_FAILED, version=4)))
        await late.is_held.wait()
        await quick.deliver(an_event("e3", EventType.JOB_COMPLETED, version=9))
        late.may_go.set()

    [thread] = world.slack.threads
    assert [shown(text) for text in thread.texts[-3:]] == ["recovered", "breached", "recovered"]


class LateOnce:
    """A chat whose first update arrives late."""

    def __init__(self, chat: Chat) -> None:
        self._chat, self.post = chat, chat.post
        self.is_held, self.may_go = asyncio.Event(), asyncio.Event()

    async def update(self, message: Posted, saying: ChatMessage) -> None:
        if not self.is_held.is_set():
            self.is_held.set()
            await self.may_go.wait()
        await self._chat.update(message, saying)


@on_virtual_time
async def test_two_workers_racing_on_the_first_alert_open_one_thread() -> None:
    world = AlertsWorld()
    workers = [world.worker() for _ in range(2)]

    async with asyncio.TaskGroup() as tasks:
        for number, worker in enumerate(workers):
            event = an_event(f"e{number}", EventType.JOB_FAILED, version=number + 1)
            tasks.create_task(worker.deliver(event))

    [thread] = world.slack.threads
    assert len(world.slack.answers_in(thread)) == 1


@on_virtual_time
async def test_an_outage_longer_than_a_claim_opens_one_thread_all_the_same() -> None:
    world = AlertsWorld()
    world.slack.trouble = lambda _m, _p: UNAVAILABLE

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(world.worker().deliver(an_event(f"e{number}", EventType.JOB_FAILED, version=number + 1)))
        await world.clock.sleep(HOUR)
        world.slack.trouble = lambda _m, _p: None

    [thread] = world.slack.threads
    assert len(world.slack.answers_in(thread)) == 2


@on_virtual_time
async def test_a_thread_that_its_opener_did_not_live_to_save_is_opened_by_another() -> None:
    world = AlertsWorld()
    opener = asyncio.create_task(world.worker().deliver(FAILED))
    await world.clock.sleep(0.04)  # claimed, and the post is on its way
    opener.cancel()
    await asyncio.wait([opener])

    await world.worker().deliver(an_event("e2", EventType.RETRY_EXHAUSTED, version=5))

    assert len(world.slack.threads) == 1
    assert world.clock.monotonic() > 60


@on_virtual_time
async def test_an_event_about_no_run_goes_to_the_thread_of_its_incident() -> None:
    world = AlertsWorld()
    event = an_event("w1", EventType.WATCHDOG_DEGRADED, pipeline="", schedule="", period="")

    await world.worker().deliver(replace(event, detail={"checks": ["relay-lag"]}))

    assert world.slack.threads[0].text.startswith(":red_circle: *interlock | relay-lag*: *ongoing*\nWATCHDOG_DEGRADED")


# --- repeats ----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_an_event_that_comes_again_is_told_once_by_whichever_worker() -> None:
    world = AlertsWorld()
    worker = world.worker()
    await worker.deliver(FAILED)
    await worker.deliver(an_event("e2", EventType.SLA_BREACH, version=5))

    for again in (worker, world.worker()):
        await again.deliver(FAILED)
        await again.deliver(an_event("e2", EventType.SLA_BREACH, version=5))

    assert len(world.slack.messages) == 2


@on_virtual_time
async def test_an_event_that_comes_again_after_many_others_is_told_once() -> None:
    """A queue may bring it days later, and there is a thread in which all alarms are told."""
    world = AlertsWorld()
    worker = world.worker()
    for number in range(100):
        await worker.deliver(an_event(f"e{number}", EventType.SLA_BREACH, version=number + 1))

    await world.worker().deliver(an_event("e0", EventType.SLA_BREACH, version=1))

    assert len(world.slack.messages) == 100


@on_virtual_time
async def test_a_store_that_is_in_doubt_after_the_post_does_not_double_it() -> None:
    world = AlertsWorld()
    worker = world.worker()
    await worker.deliver(FAILED)
    faults = [DROP_AFTER]

    def once(operation: Operation) -> Fault:
        is_posted = len(world.slack.messages) == 2
        return faults.pop() if faults and is_posted and operation is Operation.COMMIT else NO_FAULT

    world.tables.choose = once

    await worker.deliver(an_event("e2", EventType.SLA_BREACH, version=5))

    [thread] = world.slack.threads
    assert len(world.slack.answers_in(thread)) == 1
    assert faults == []


# --- routing ----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_severity_and_owner_decide_the_channel() -> None:
    async def owner_of(pipeline: str) -> str:
        return {"payments": "team-pay"}.get(pipeline, "")

    routing = Routing(
        everyone=Channels("#usual", {Severity.ALERT: "#oncall"}), owners={"team-pay": Channels("#payments")}
    )
    world = AlertsWorld(routing=routing, owner_of=owner_of)
    worker = world.worker()

    for number, (event_type, pipeline) in enumerate(
        [
            (EventType.SLA_BREACH, "orders"),
            (EventType.SLA_WARNING, "stock"),
            (EventType.SLA_BREACH, "payments"),
        ]
    ):
        await worker.deliver(an_event(f"e{number}", event_type, version=1, pipeline=pipeline))

    assert [said.channel for said in world.slack.messages] == ["C-oncall", "C-usual", "C-payments"]


@on_virtual_time
async def test_an_alert_also_reaches_its_own_channel_when_its_thread_was_opened_elsewhere() -> None:
    routing = Routing(everyone=Channels("#usual", {Severity.ALERT: "#oncall"}))
    world = AlertsWorld(routing=routing)
    breach = an_event("e2", EventType.SLA_BREACH, version=2)

    for worker in (world.worker(), world.worker()):
        await worker.deliver(an_event("e1", EventType.SLA_WARNING, version=1))
        await worker.deliver(breach)

    assert [said.channel for said in world.slack.messages] == ["C-usual", "C-usual", "C-oncall"]
    assert world.slack.messages[1].thread_ts == world.slack.messages[0].ts
    assert "its thread is in another channel" in world.slack.messages[2].text


# --- successes --------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_success_that_nobody_waits_for_is_left_to_the_digest() -> None:
    world = AlertsWorld()

    await world.worker().deliver(an_event("e1", EventType.JOB_COMPLETED, version=3))

    assert world.slack.calls == 0


@on_virtual_time
async def test_each_success_is_told_where_that_is_wanted() -> None:
    world = AlertsWorld(routing=Routing(everyone=Channels("#alerts"), digest_every=None))

    await world.worker().deliver(an_event("e1", EventType.JOB_COMPLETED, version=3))

    [thread] = world.slack.threads
    assert shown(thread.text) == "done"


@on_virtual_time
async def test_an_alert_that_comes_after_its_runs_success_shows_it_recovered() -> None:
    """Out of a queue events come in any order, most of all after an outage."""
    world = AlertsWorld()
    failed = an_event("e1", EventType.JOB_FAILED, version=4)
    completed = an_event("e2", EventType.JOB_COMPLETED, version=6)
    earlier = an_event("e0", EventType.JOB_COMPLETED, version=2)
    other = an_event("e3", EventType.JOB_COMPLETED, version=9, period="2026-03-04")
    for event in (earlier, failed, completed, other):
        await world.tables.commit(event_write(event))
    worker = world.worker()

    for event in (completed, failed):
        await worker.deliver(event)

    [thread] = world.slack.threads
    assert shown(thread.text) == "recovered"
    [answer] = world.slack.answers_in(thread)
    assert "JOB_COMPLETED" in answer
