"""Alerts of real workers to servers that behave as the vendors do: limits, error codes, broken connections, kill -9."""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.alert_targets import (
    KEY,
    LOST,
    LOST_AFTER,
    SECRET,
    FakeEndpoint,
    FakePagerDuty,
    FakeReceiver,
    FakeTeams,
    Ordered,
)
from tests.support.fakes.slack import RESET_AFTER, TOKEN, FakeSlack, Trouble
from tests.support.worlds.alerts import an_event
from tests.support.worlds.live_worker import LiveWorker
from tests.support.worlds.observer import wait_until
from worker.core.model.events import Event, EventType
from worker.runtime.clock import SystemClock
from worker.store.repos.delivery.dead_letters import DeadLetters
from worker.store.repos.delivery.target_alerts import TargetAlerts
from worker.store.repos.events import event_write
from worker.store.sqlite.tables import SqliteTables

PATIENCE_S = 150.0
CLOCK = SystemClock()
SUBJECT = "interlock/orders/daily/2026-03-03"
IS_LONG = bool(os.environ.get("CHAOS_ROUNDS"))

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(400)]


@dataclass
class Vendors:
    """All targets on loopback, and the store through which workers get events."""

    pagerduty: FakePagerDuty
    teams: FakeTeams
    receiver: FakeReceiver
    slack: FakeSlack
    tables: SqliteTables
    variables: Mapping[str, str]

    @property
    def endpoints(self) -> list[FakeEndpoint]:
        return [self.pagerduty, self.teams, self.receiver]

    async def tell(self, event: Event) -> None:
        """Store an event, as the engine does; the relay of a worker takes it from there."""
        await self.tables.commit(event_write(event))

    async def are_settled(self) -> bool:
        """Whether nothing waits for any target."""
        alerts = TargetAlerts(self.tables)
        return not [lane for lane in ("webhook", "pagerduty", "teams", "slack") if await alerts.first(lane, 1)]

    async def until(self, has_come: Callable[[], bool], *workers: LiveWorker) -> None:
        async def look() -> bool:
            await asyncio.sleep(0)
            return has_come() and await self.are_settled()

        await wait_until(look, within_s=PATIENCE_S, workers=list(workers))


@asynccontextmanager
async def vendors(at: Path) -> AsyncGenerator[Vendors]:
    pagerduty, teams, receiver, slack = FakePagerDuty(CLOCK), FakeTeams(CLOCK), FakeReceiver(CLOCK), FakeSlack(CLOCK)
    async with AsyncExitStack() as stack:
        variables = {
            "INTERLOCK_PAGERDUTY_KEY": KEY,
            "INTERLOCK_PAGERDUTY_API": await stack.enter_async_context(pagerduty.on_loopback("/v2/enqueue")),
            "INTERLOCK_TEAMS_URL": await stack.enter_async_context(teams.on_loopback("/hidden-path?sig=good")),
            "INTERLOCK_WEBHOOK_URL": await stack.enter_async_context(receiver.on_loopback("/hidden-path")),
            "INTERLOCK_WEBHOOK_SECRET": SECRET,
            "INTERLOCK_SLACK_TOKEN": TOKEN,
            "INTERLOCK_SLACK_CHANNEL": "#alerts",
            "INTERLOCK_SLACK_API": await stack.enter_async_context(slack.on_loopback()),
            "INTERLOCK_HTTP_ALLOW": "127.0.0.0/8",
        }
        tables = SqliteTables(at / "interlock.db", CLOCK)
        await tables.start()
        stack.push_async_callback(tables.stop)
        yield Vendors(pagerduty, teams, receiver, slack, tables, variables)


@asynccontextmanager
async def a_worker(at: Path, by: Vendors, name: str = "worker") -> AsyncGenerator[LiveWorker]:
    """A worker beside the test, which serves the vendors while the worker begins."""
    worker = LiveWorker(at, name, **by.variables)
    try:
        await asyncio.to_thread(worker.until_it_works)
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.kill()


def a_failure(event_id: str = "e1", **changes: str) -> Event:
    return replace(an_event(event_id, EventType.RETRY_EXHAUSTED, version=4, **changes), at=CLOCK.now())


def once(ordered: Ordered) -> Callable[[Mapping[str, Any]], Ordered | None]:
    left = [ordered]
    return lambda _body: left.pop() if left else None


async def test_a_real_worker_keeps_to_what_the_vendors_ask_and_loses_nothing(tmp_path: Path) -> None:
    async with vendors(tmp_path) as by:
        by.pagerduty.trouble = once(Ordered(status=429, headers={"Retry-After": "1"}))
        by.teams.trouble = once(LOST)
        by.receiver.trouble = once(LOST_AFTER)
        slow_down = [Trouble(status=429, error="ratelimited", retry_after_s=1)]
        by.slack.trouble = lambda method, _: slow_down.pop() if method == "chat.postMessage" and slow_down else None
        async with a_worker(tmp_path, by) as worker:
            await by.tell(a_failure())
            await by.until(lambda: bool(by.pagerduty.alerts and by.teams.requests and by.slack.messages), worker)

        log = worker.log.read_text() + worker.output.read_text()

    assert by.pagerduty.alerts == {SUBJECT: "triggered"}
    assert (list(by.receiver.events), by.receiver.repeats) == (["e1"], 1)
    assert (len(by.teams.requests), len(by.slack.threads)) == (1, 1)
    assert not [text for text in ("hidden-path", KEY, SECRET, TOKEN, "sig=") if text in log], "no secret is shown"


@pytest.mark.skipif(not IS_LONG, reason="takes minutes: with CHAOS_ROUNDS")
async def test_a_key_that_is_wrong_makes_alerts_wait_and_a_card_that_is_too_large_becomes_a_dead_letter(
    tmp_path: Path,
) -> None:
    async with vendors(tmp_path) as by:
        by.pagerduty.keys = set()
        by.teams.trouble = lambda body: Ordered(status=413) if "orders" in json.dumps(body) else None
        async with a_worker(tmp_path, by) as worker:
            await by.tell(a_failure())
            await by.tell(a_failure("e2", pipeline="invoices"))

            async def is_refused() -> bool:
                return bool(by.pagerduty.paths) and bool(await DeadLetters(by.tables).list("target.teams"))

            await wait_until(is_refused, within_s=PATIENCE_S, workers=[worker])
            by.pagerduty.keys = {KEY}
            await by.until(lambda: len(by.pagerduty.alerts) == 2, worker)
        [letter] = await DeadLetters(by.tables).list("target.teams")

    assert letter.id == "e1"
    assert "413" in letter.reason
    assert len(by.teams.requests) == 1
    assert len(by.pagerduty.notified) == 2


KILLED_AT = ("pagerduty", "teams", "webhook", "slack")


@pytest.mark.skipif(not IS_LONG, reason="waits a minute for each claim: with CHAOS_ROUNDS")
@pytest.mark.parametrize("target", KILLED_AT)
async def test_a_sender_that_is_killed_after_the_vendor_accepted_loses_nothing(tmp_path: Path, target: str) -> None:
    async with vendors(tmp_path) as by:
        killed: list[LiveWorker] = []

        def kill() -> None:
            worker = workers.pop()
            worker.kill()
            killed.append(worker)

        def die(_: Mapping[str, Any]) -> Ordered | None:
            if not workers:
                return None
            kill()
            return LOST_AFTER

        def die_in_slack(method: str, _: Mapping[str, Any]) -> Trouble | None:
            if method != "chat.postMessage" or not workers:
                return None
            kill()
            return RESET_AFTER

        fakes: dict[str, FakeEndpoint] = {"pagerduty": by.pagerduty, "teams": by.teams, "webhook": by.receiver}
        if target == "slack":
            by.slack.trouble = die_in_slack
        else:
            fakes[target].trouble = die
        workers: list[LiveWorker] = []
        async with a_worker(tmp_path, by, "first") as first:
            workers.append(first)
            await by.tell(a_failure())
            await wait_until(lambda: _said(bool(killed)), within_s=PATIENCE_S, workers=[first])
        began = CLOCK.monotonic()
        async with a_worker(tmp_path, by, "second") as second:
            everywhere = lambda: bool(  # noqa: E731 - read where it is used
                by.pagerduty.alerts and by.teams.requests and by.receiver.events and by.slack.messages
            )
            await by.until(everywhere, second)
        print(f"killed at {target}: everything arrived {CLOCK.monotonic() - began:.0f} s later")

    cards, threads = len(by.teams.requests), len(by.slack.threads)
    assert len(by.pagerduty.notified) == 1, "PagerDuty recognises the repeat by its key"
    assert list(by.receiver.events) == ["e1"], "a receiver recognises the repeat by the event's id"
    assert cards == (2 if target == "teams" else 1), "Teams cannot recognise a repeat"
    assert threads == (2 if target == "slack" else 1), "Slack cannot recognise a repeat"
    assert by.receiver.repeats == (1 if target == "webhook" else 0)


async def _said(is_so: bool) -> bool:
    await asyncio.sleep(0)
    return is_so
