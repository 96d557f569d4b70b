"""Alerts in a chat: one thread for each run, its first message up to date, nothing lost and nothing told twice."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from consumers.alerts import ChatAlerts
from consumers.alerts_chat import Chat, ChatRefused, Posted, Saying
from consumers.alerts_routing import Channels, Routing
from consumers.alerts_text import thread_of
from consumers.severities import Severity
from tests.alertsworld import FAILED, AlertsWorld, an_event
from tests.fakeslack import ERROR, RESET, RESET_AFTER, UNAVAILABLE, Trouble, refusal
from tests.faults import DROP_AFTER, DROP_BEFORE, NO_FAULT, Fault, Operation, always
from tests.virtualtime import on_virtual_time
from worker.core.errors import RetryLater
from worker.core.eventtypes import EventType
from worker.store.events import told_write

HOUR = 3600.0


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

    async def update(self, message: Posted, saying: Saying) -> None:
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
async def test_an_event_about_no_run_goes_to_the_common_thread() -> None:
    world = AlertsWorld()
    event = an_event("w1", EventType.WATCHDOG_DEGRADED, pipeline="", schedule="", period="")

    await world.worker().deliver(event)

    assert world.slack.threads[0].text.startswith(":red_circle: *interlock*\nWATCHDOG_DEGRADED")


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
        return faults.pop() if faults and operation is Operation.COMMIT else NO_FAULT

    world.tables.choose = once

    await worker.deliver(an_event("e2", EventType.SLA_BREACH, version=5))

    [thread] = world.slack.threads
    assert len(world.slack.answers_in(thread)) == 1


# --- Slack in trouble -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        UNAVAILABLE,
        ERROR,
        RESET,
        refusal("internal_error"),
        refusal("invalid_auth"),
        Trouble(body="ok", content_type="text/plain"),
    ],
    ids=["503", "500", "reset", "internal_error", "invalid_auth", "plain-text"],
)
def test_whatever_is_wrong_with_slack_delays_an_alert_and_loses_none(trouble: Trouble) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = AlertsWorld()
        left = [trouble] * 5
        world.slack.trouble = lambda _m, _p: left.pop() if left else None

        await world.worker().deliver(FAILED)

        assert len(world.slack.messages) == 1
        assert 2 + 4 + 8 + 16 < world.clock.monotonic() < 90

    scenario()


@on_virtual_time
async def test_while_slack_is_down_one_try_at_a_time_is_made_however_many_wait_in_however_many_channels() -> None:
    async def owner_of(pipeline: str) -> str:
        return pipeline

    owners = {f"p{number}": Channels(f"#c{number}") for number in range(10)}
    world = AlertsWorld(routing=Routing(everyone=Channels("#usual"), owners=owners), owner_of=owner_of)
    world.slack.trouble = lambda _m, _p: UNAVAILABLE
    worker = world.worker()

    async with asyncio.TaskGroup() as tasks:
        for number in range(50):
            event = an_event(f"e{number}", EventType.JOB_FAILED, pipeline=f"p{number % 10}", period=f"{number}")
            tasks.create_task(worker.deliver(event))
        await world.clock.sleep(HOUR)
        assert world.slack.calls < 100
        world.slack.trouble = lambda _m, _p: None

    assert len(world.slack.threads) == 50


@on_virtual_time
async def test_a_lost_answer_may_double_a_message_and_the_sdk_does_not_by_itself() -> None:
    world = AlertsWorld()
    left = [RESET_AFTER]
    world.slack.trouble = lambda _m, _p: left.pop() if left else None

    await world.worker().deliver(FAILED)

    assert world.slack.calls == 2
    assert len(world.slack.messages) == 2, "Slack cannot recognise a repeat: at least once"
    found = await world.threads.find(thread_of(FAILED))
    assert found is not None
    assert found.timestamp == world.slack.messages[-1].ts


@on_virtual_time
async def test_retry_after_is_respected_and_only_its_channel_waits() -> None:
    routing = Routing(everyone=Channels("#usual", {Severity.ALERT: "#oncall"}))
    world = AlertsWorld(routing=routing)
    left = [Trouble(status=429, error="ratelimited", retry_after_s=40)]

    def trouble(_method: str, payload: Mapping[str, Any]) -> Trouble | None:
        return left.pop() if left and payload["channel"] == "#oncall" else None

    world.slack.trouble = trouble
    worker = world.worker()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.deliver(an_event("e1", EventType.SLA_BREACH, version=1)))
        tasks.create_task(worker.deliver(an_event("e2", EventType.SLA_WARNING, version=1, period="other")))

    usual, oncall = world.slack.messages
    assert (usual.channel, oncall.channel) == ("C-usual", "C-oncall")
    assert usual.at < 1
    assert 40 <= oncall.at < 42


@on_virtual_time
async def test_whoever_looks_sees_that_the_line_waits_for_the_chat_and_when_it_no_longer_does() -> None:
    world = AlertsWorld()
    left = [Trouble(status=429, error="ratelimited", retry_after_s=300)]
    world.slack.trouble = lambda _m, _p: left.pop() if left else None
    telling = world.telling()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ChatAlerts(telling).deliver(FAILED))
        await world.clock.sleep(200)
        assert telling.line.is_waiting()
        await world.clock.sleep(200)
        assert not telling.line.is_waiting()

    assert len(world.slack.messages) == 1


@on_virtual_time
async def test_a_token_that_is_changed_while_slack_does_not_know_it_is_read_again() -> None:
    world = AlertsWorld(token="xoxb-old")

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(world.worker().deliver(FAILED))
        await world.clock.sleep(HOUR)
        assert world.slack.messages == []
        world.token = "xoxb-test"

    assert len(world.slack.messages) == 1


@on_virtual_time
async def test_a_channel_that_is_not_there_is_replaced_by_the_usual_one() -> None:
    routing = Routing(everyone=Channels("#usual", {Severity.ALERT: "#typo"}))
    world = AlertsWorld(routing=routing)
    world.slack.channels = {"#usual"}

    await world.worker().deliver(an_event("e1", EventType.SLA_BREACH, version=1))

    assert [said.channel for said in world.slack.messages] == ["C-usual"]


@on_virtual_time
async def test_what_slack_can_never_take_is_refused() -> None:
    world = AlertsWorld()
    world.slack.trouble = lambda _m, _p: refusal("invalid_blocks")

    with pytest.raises(ChatRefused, match="invalid_blocks"):
        await world.worker().deliver(FAILED)


@on_virtual_time
async def test_tries_that_failed_are_counted_and_being_asked_to_wait_is_no_failure() -> None:
    world = AlertsWorld()
    telling = world.telling()
    troubles = [UNAVAILABLE, UNAVAILABLE, refusal("ratelimited"), None]
    world.slack.trouble = lambda _m, _p: troubles.pop(0) if troubles else refusal("invalid_blocks")

    await ChatAlerts(telling).deliver(FAILED)
    assert telling.line.failed_tries == 2
    with pytest.raises(ChatRefused):
        await ChatAlerts(telling).deliver(an_event("e2", EventType.SLA_BREACH, version=5))

    assert telling.line.failed_tries == 3


@on_virtual_time
async def test_a_first_message_that_somebody_deleted_hinders_nothing() -> None:
    world = AlertsWorld()
    worker = world.worker()
    await worker.deliver(FAILED)
    world.slack.messages[0].ts = "gone"

    await worker.deliver(an_event("e2", EventType.SLA_BREACH, version=5))

    assert len(world.slack.messages) == 2


@on_virtual_time
async def test_a_store_that_is_away_is_the_callers_to_wait_for() -> None:
    world = AlertsWorld()
    world.tables.choose = always(DROP_BEFORE)

    with pytest.raises(RetryLater):
        await world.worker().deliver(FAILED)
    assert world.slack.calls == 0


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
        await world.tables.commit(told_write(event))
    worker = world.worker()

    for event in (completed, failed):
        await worker.deliver(event)

    [thread] = world.slack.threads
    assert shown(thread.text) == "recovered"
    [answer] = world.slack.answers_in(thread)
    assert "JOB_COMPLETED" in answer
