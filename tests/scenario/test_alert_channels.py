"""Which channel hears of what, and what one channel's trouble means for the others and for the end of an outage."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from structlog.testing import capture_logs

from consumers.alerts.digest import Digests
from consumers.alerts.routing import Channels, Routing
from consumers.alerts.threads import ChatAlerts
from consumers.outbox.severities import Severity
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.slack import UNAVAILABLE, Trouble
from tests.support.worlds.alerts import FAILED, AlertsWorld, an_event
from worker.core.model.events import Event, EventType
from worker.store.repos.events import event_write

ONCALL = Routing(everyone=Channels("#usual", {Severity.ALERT: "#oncall"}))
DIGEST_S = 15 * 60.0


@on_virtual_time
async def test_only_an_alert_is_told_beside_its_thread() -> None:
    world = AlertsWorld(routing=ONCALL)
    worker = world.worker()

    await worker.deliver(an_event("e1", EventType.SLA_BREACH, version=1))
    await worker.deliver(an_event("e2", EventType.SLA_WARNING, version=2))
    await worker.deliver(an_event("e3", EventType.JOB_COMPLETED, version=3))

    assert [said.channel for said in world.slack.messages] == ["C-oncall"] * 3


# --- digests ----------------------------------------------------------------------------------------------------------


async def team(pipeline: str) -> str:
    return f"team-{pipeline}"


async def completed(world: AlertsWorld, count: int, pipeline: str) -> None:
    for number in range(count):
        event = Event(id=f"{pipeline}-{number}", type="JOB_COMPLETED", at=world.clock.now(), pipeline=pipeline)
        await world.tables.commit(event_write(event))


@on_virtual_time
async def test_each_owner_has_a_digest_of_its_own_pipelines() -> None:
    routing = Routing(everyone=Channels("#usual"), owners={"team-stock": Channels("#stock")})
    world = AlertsWorld(routing=routing, owner_of=team)
    for count, pipeline in ((2, "stock"), (3, "orders"), (1, "sales")):
        await completed(world, count, pipeline)

    running = asyncio.create_task(Digests(world.telling()).run())
    await world.clock.sleep(DIGEST_S + 180)
    running.cancel()
    await asyncio.wait([running])

    told = {said.channel: said.text.rpartition("\n")[2] for said in world.slack.messages}
    assert told == {"C-stock": "stock 2", "C-usual": "orders 3, sales 1"}


@on_virtual_time
async def test_a_digest_whose_teller_ended_before_it_was_posted_is_posted_by_another() -> None:
    world = AlertsWorld()
    await completed(world, 4, "orders")
    await world.clock.sleep(DIGEST_S + 60)
    world.slack.trouble = lambda _m, _p: UNAVAILABLE
    ending = asyncio.create_task(Digests(world.telling()).run())
    await world.clock.sleep(5)  # it has claimed the digest
    other = asyncio.create_task(Digests(world.telling()).run())
    await world.clock.sleep(5)
    ending.cancel()
    world.slack.trouble = lambda _m, _p: None
    await world.clock.sleep(180)
    other.cancel()
    await asyncio.wait([ending, other])

    [said] = world.slack.messages
    assert "4 JOB_COMPLETED" in said.text


# --- trouble ----------------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_the_line_waits_while_any_channel_does() -> None:
    world = AlertsWorld(routing=ONCALL)
    left = [Trouble(status=429, error="ratelimited", retry_after_s=300)]

    def trouble(_method: str, payload: Mapping[str, Any]) -> Trouble | None:
        return left.pop() if left and payload["channel"] == "#oncall" else None

    world.slack.trouble = trouble
    telling = world.telling()
    alerts = ChatAlerts(telling)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(alerts.deliver(an_event("e1", EventType.SLA_BREACH, version=1)))
        await alerts.deliver(an_event("e2", EventType.SLA_WARNING, version=1, period="other"))
        await world.clock.sleep(60)
        assert telling.line.is_waiting()

    await world.clock.sleep(5)
    assert not telling.line.is_waiting()


@on_virtual_time
async def test_once_slack_is_back_that_is_said_nothing_waits_and_the_next_outage_begins_anew() -> None:
    world = AlertsWorld()
    telling = world.telling()
    alerts = ChatAlerts(telling)

    with capture_logs() as lines:
        for number in range(2):
            left = [UNAVAILABLE] * 4
            world.slack.trouble = lambda _m, _p, left=left: left.pop() if left else None
            began = world.clock.monotonic()
            await alerts.deliver(replace(FAILED, id=f"e{number}"))
            assert 2 + 4 + 8 <= world.clock.monotonic() - began < 40, "its pauses begin with the shortest"
            assert not telling.line.is_down
            await world.clock.sleep(60)
            assert not telling.line.is_waiting()

    assert [line["event"] for line in lines if line["event"].startswith("chat.")] == ["chat.down", "chat.back"] * 2
