"""Slack in trouble: an alert waits, with patience and one try at a time, and is not lost."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from consumers.alerts.chat import ChatRefused
from consumers.alerts.routing import Channels, Routing
from consumers.alerts.text import thread_of
from consumers.alerts.threads import ChatAlerts
from consumers.outbox.severities import Severity
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.remote_store import DROP_BEFORE, always
from tests.support.fakes.slack import ERROR, RESET, RESET_AFTER, UNAVAILABLE, Trouble, refusal
from tests.support.worlds.alerts import FAILED, HOUR, AlertsWorld, an_event
from worker.core.errors import RetryLater
from worker.core.model.events import EventType


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
