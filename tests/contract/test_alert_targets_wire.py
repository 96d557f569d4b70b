"""Alert targets on the wire: the guarded HTTP client, real sockets, and servers that answer as the real ones do."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from consumers.alerts.targets.pagerduty import KEY_MAX, SUMMARY_MAX, PagerDutyTarget, dedup_key
from consumers.alerts.targets.target import (
    Action,
    AlertTarget,
    AlertTargetBusy,
    AlertTargetDown,
    AlertTargetRefused,
    GroupNotice,
    TargetNotice,
)
from consumers.alerts.targets.teams import TeamsTarget
from consumers.alerts.targets.webhook import WebhookTarget, signature
from consumers.outbox.severities import Severity
from tests.support.builders.command_line import interlock
from tests.support.clock.manual import NOON
from tests.support.fakes.alert_targets import KEY, SECRET, FakeEndpoint, FakePagerDuty, FakeReceiver, FakeTeams, Ordered
from tests.support.worlds.alert_targets import kept
from tests.support.worlds.alerts import an_event
from worker.core.model.events import Event, EventType
from worker.net.address_policy import AddressPolicy
from worker.net.http_client import HttpClient
from worker.operations.page_links import PublicPages
from worker.runtime.clock import SystemClock

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "alert-targets.md"
HOSTILE = "<script> **bold** [link](https://evil.example) \u202e\x00" + 'é😀"\\' * 3_000
LINES = "\n".join("line" for _ in range(5_000))


def a_notice(event: Event, action: Action = Action.TRIGGER) -> TargetNotice:
    return TargetNotice(
        event=event, severity=Severity.ALERT, action=action, subject="interlock/orders/daily/2026-03-03"
    )


def an_alert(message: str = "exit code 3") -> Event:
    return an_event("e1", EventType.RETRY_EXHAUSTED, version=1, message=message)


@pytest.fixture
async def http() -> AsyncGenerator[HttpClient]:
    async with HttpClient(AddressPolicy.parse(["127.0.0.0/8"])) as client:
        yield client


CLOCK = SystemClock()
MAKERS: dict[str, tuple[Callable[[], FakeEndpoint], Callable[[HttpClient, str], AlertTarget]]] = {
    "webhook": (
        lambda: FakeReceiver(CLOCK),
        lambda http, url: WebhookTarget(http, kept(f"{url}hidden"), kept(SECRET), CLOCK),
    ),
    "pagerduty": (lambda: FakePagerDuty(CLOCK), lambda http, url: PagerDutyTarget(http, kept(KEY), api=url)),
    "teams": (
        lambda: FakeTeams(CLOCK, per_second=100),
        lambda http, url: TeamsTarget(http, kept(f"{url}hidden?sig=good")),
    ),
}
each_target = pytest.mark.parametrize("name", MAKERS)


@each_target
async def test_a_target_accepts_alerts_whatever_text_they_hold(http: HttpClient, name: str) -> None:
    make_fake, make_target = MAKERS[name]
    fake = make_fake()
    async with fake.on_loopback() as url:
        target = make_target(http, url)
        for text in ("exit code 3", HOSTILE, LINES):
            await target.send([a_notice(an_alert(text))])
        await target.send([a_notice(an_alert(), Action.RESOLVE)])
        events = [an_event(f"g{n}", EventType.RETRY_EXHAUSTED, version=1, pipeline=f"p{n}") for n in range(60)]
        await target.send_group(GroupNotice(events=events, severity=Severity.ALERT, subject="interlock/group/x"))
        await target.send_test("2026-03-03 12:00")

    assert len(fake.requests) >= 6
    assert "\u202e" not in json.dumps([body for _, body in fake.requests], ensure_ascii=False) or name == "webhook"


async def test_a_group_links_to_the_list_of_its_runs(http: HttpClient) -> None:
    pages = PublicPages("https://data.example.com")
    events = [an_event(f"g{n}", EventType.RETRY_EXHAUSTED, version=1, pipeline=f"p{n}") for n in range(3)]
    group = GroupNotice(events=events, severity=Severity.ALERT, subject="interlock/group/x")
    page = pages.about_many(EventType.RETRY_EXHAUSTED, events[0].at)
    assert page.startswith("https://data.example.com/runs?state=failed&since=")
    pager, teams = FakePagerDuty(CLOCK), FakeTeams(CLOCK, per_second=100)
    async with pager.on_loopback() as pager_url, teams.on_loopback() as teams_url:
        await PagerDutyTarget(http, kept(KEY), api=pager_url, pages=pages).send_group(group)
        await TeamsTarget(http, kept(f"{teams_url}hidden?sig=good"), pages=pages).send_group(group)

    [(_, said)], [(_, posted)] = pager.requests, teams.requests
    assert json.loads(json.dumps(said))["links"] == [{"href": page, "text": "open the list"}]
    assert page in json.dumps(posted)


OWN_SECRETS = {"webhook": SECRET + " {url}hidden", "pagerduty": KEY, "teams": "{url}hidden?sig=good"}
ANSWERS = {
    429: AlertTargetBusy,
    500: AlertTargetDown,
    503: AlertTargetDown,
    408: AlertTargetDown,
    401: AlertTargetDown,
    404: AlertTargetDown,
    302: AlertTargetRefused,
    400: AlertTargetRefused,
    422: AlertTargetRefused,
}


@each_target
async def test_an_answer_says_whether_to_wait_to_try_again_or_to_give_up(http: HttpClient, name: str) -> None:
    make_fake, make_target = MAKERS[name]
    fake = make_fake()
    async with fake.on_loopback() as url:
        for status, error in ANSWERS.items():
            said = f"cannot take {OWN_SECRETS[name].format(url=url)}"
            ordered = Ordered(status=status, headers={"Retry-After": "7", "Location": "http://127.0.0.1:1/"}, body=said)
            fake.trouble = lambda _body, ordered=ordered: ordered
            with pytest.raises(error) as raised:
                await make_target(http, url).send([a_notice(an_alert())])
            assert not re.search(f"hidden|{KEY}|{SECRET}", str(raised.value)), "no secret is shown"
            if isinstance(raised.value, AlertTargetBusy):
                assert raised.value.wait_s == 7

    assert len(fake.paths) == len(ANSWERS), "each is sent once, and no redirect is followed"


@each_target
async def test_an_address_inside_our_network_is_refused_before_anything_is_sent(name: str) -> None:
    make_fake, make_target = MAKERS[name]
    fake = make_fake()
    async with HttpClient(AddressPolicy()) as guarded, fake.on_loopback() as url:
        with pytest.raises(AlertTargetDown, match="INTERLOCK_HTTP_ALLOW"):
            await make_target(guarded, url).send([a_notice(an_alert())])

    assert fake.paths == []


async def test_a_connection_that_breaks_is_tried_again(http: HttpClient) -> None:
    fake = FakeTeams(CLOCK, trouble=lambda _body: Ordered(is_lost=True))
    async with fake.on_loopback() as url:
        with pytest.raises(AlertTargetDown, match="gave no answer"):
            await TeamsTarget(http, kept(f"{url}?sig=good")).send([a_notice(an_alert())])


async def test_what_pagerduty_limits_is_cut_and_stays_distinct(http: HttpClient) -> None:
    fake = FakePagerDuty(CLOCK)
    long = an_event("e1", EventType.RETRY_EXHAUSTED, version=1, pipeline="p" * 2_000)
    async with fake.on_loopback() as url:
        await PagerDutyTarget(http, kept(KEY), api=url).send([a_notice(long)])

    assert len(fake.notified[0]) <= SUMMARY_MAX
    keys = {dedup_key(f"interlock/{'p' * 300}/{n}") for n in range(3)}
    assert len(keys) == 3
    assert max(map(len, keys)) <= KEY_MAX


def test_the_page_shows_how_to_verify_a_signature() -> None:
    [code] = re.findall(r"<!-- file: verify.py -->\n```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    verify, body, now = names["is_from_interlock"], b'{"events": []}', int(NOON.timestamp())
    header = signature(SECRET, now, body)

    assert verify(SECRET, header, body, now + 10)
    assert not verify("another", header, body, now)
    assert not verify(SECRET, header, body + b" ", now)
    assert not verify(SECRET, header, body, (NOON + timedelta(minutes=6)).timestamp())
    assert not verify(SECRET, "t=,v1=", body, now)
    assert not verify(SECRET, "", body, now)


async def test_the_command_tries_each_target_and_says_which_did_not_accept_it(monkeypatch: pytest.MonkeyPatch) -> None:
    receiver, teams = FakeReceiver(CLOCK), FakeTeams(CLOCK)
    async with receiver.on_loopback() as hook, teams.on_loopback() as workflow:
        environment = {
            "INTERLOCK_WEBHOOK_URL": hook,
            "INTERLOCK_WEBHOOK_SECRET": SECRET,
            "INTERLOCK_TEAMS_URL": f"{workflow}?sig=hidden",
            "INTERLOCK_HTTP_ALLOW": "127.0.0.0/8",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        done = await asyncio.to_thread(interlock, "alerts", "test", "--json", clock=CLOCK)

    assert done.exit_code == 1
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["target"], each["accepted"]) for each in records] == [("webhook", True), ("teams", False)]
    assert "INTERLOCK_TEAMS_URL" in records[1]["reason"]
    assert "hidden" not in done.stdout
    assert len(receiver.requests) == 1
