"""Links to the console are a contract: their shapes, from alerts and the bus through sign-in, below a path."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from consumers.alerts import text
from consumers.outbox.bus import entry_of
from consumers.outbox.envelopes import INFRASTRUCTURE
from consumers.outbox.routes import envelope, event_in
from consumers.outbox.severities import Severity
from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import MORNING, YESTERDAY, a_console_world, fill_store
from tests.support.worlds.web import VIEWER, rules
from worker.core.model.events import Event, EventType
from worker.operations.page_links import PublicPages, page_path, pipeline_page, run_page, run_path
from worker.runtime.json_bytes import from_json
from worker.store.repos.delivery.threads import ThreadHeader, ThreadKey
from worker.web.access import AccessMode
from worker.web.console.pages.application import PAGES

PUBLIC = "https://data.example.com/interlock/"

# Released links. A change that breaks one breaks the links that people keep in chats and tickets.
RELEASED = {
    "/pipelines/orders-daily": pipeline_page("orders-daily"),
    "/pipelines/fraud.scores": pipeline_page("fraud.scores"),
    "/runs/orders-daily/stream/2027-03-22": run_path("orders-daily", "stream", "2027-03-22"),
    "/runs/fraud.scores/cron/2027-03-22T05": run_path("fraud.scores", "cron", "2027-03-22T05"),
    "/runs/a%2Fb/c%20d/2027-03-22T0530": run_path("a/b", "c d", "2027-03-22T0530"),
    "/runs/orders/stream/2027-03-22": run_page(key_of("2027-03-22", "orders")),
    "/events": page_path("events"),
    "/deadletters": page_path("deadletters"),
    "/workers": page_path("workers"),
    "/pipelines?q=a+b": page_path("pipelines", query={"q": "a b", "owner": ""}),
}


def an_event(*, pipeline: str = "orders-daily", schedule: str = "stream", period: str = YESTERDAY) -> Event:
    return Event(
        id="e1",
        type=EventType.JOB_FAILED,
        at=datetime(2027, 3, 23, tzinfo=UTC),
        pipeline=pipeline,
        schedule=schedule,
        period=period,
        message="failed",
    )


def links_in(message: text.ChatMessage) -> list[str]:
    return re.findall(r"<([^|>]+)\|open>", str(message.blocks))


def test_the_shapes_of_links_stay() -> None:
    assert list(RELEASED.values()) == list(RELEASED)
    assert {"/pipelines", "/pipelines/{pipeline}", "/lineage/{pipeline}"} <= set(PAGES)
    assert {"/events", "/deadletters", "/workers"} <= set(PAGES)
    assert "/runs/{pipeline}/{schedule}/{period}" in PAGES


def test_an_alert_and_the_header_of_its_thread_link_to_the_run() -> None:
    pages = PublicPages(PUBLIC)
    wanted = [f"https://data.example.com/interlock/runs/orders-daily/stream/{YESTERDAY}"]
    header = ThreadHeader(standing="failed", first="it failed", latest="")

    assert links_in(text.alert(an_event(), pages)) == wanted
    assert links_in(text.elsewhere(an_event(), pages)) == wanted
    assert links_in(text.first_message(ThreadKey("orders-daily", "stream", YESTERDAY), header, pages)) == wanted


def test_an_event_without_a_run_links_to_its_pipeline_or_to_nothing() -> None:
    pages = PublicPages(PUBLIC)

    assert links_in(text.alert(an_event(schedule="", period=""), pages)) == [
        "https://data.example.com/interlock/pipelines/orders-daily"
    ]
    assert links_in(text.alert(an_event(pipeline="", schedule="", period=""), pages)) == []
    assert links_in(text.alert(an_event(pipeline=INFRASTRUCTURE, schedule="", period=""), pages)) == []


@pytest.mark.parametrize("url", ["", "javascript:alert(1)", "data.example.com"])
def test_without_a_public_address_there_is_no_link(url: str) -> None:
    assert links_in(text.alert(an_event(), PublicPages(url))) == []
    assert "links" not in from_json(entry_of(an_event(), "bus", PublicPages(url))["Detail"])  # pyright: ignore[reportOperatorIssue]


def test_a_group_of_events_links_to_the_list_of_its_runs_or_of_its_events() -> None:
    first = an_event()
    exhausted = [replace(first, type=EventType.RETRY_EXHAUSTED, at=first.at.replace(microsecond=5_000))] * 3
    base, since = "https://data.example.com/interlock", "since=2027-03-23T00%3A00%3A00Z"

    assert links_in(text.group(Severity.ALERT, [first], PublicPages(PUBLIC))) == [
        f"{base}/events?type=JOB_FAILED&amp;{since}"
    ]
    assert links_in(text.group(Severity.ALERT, exhausted, PublicPages(PUBLIC))) == [
        f"{base}/runs?state=failed&amp;{since}"
    ]
    assert links_in(text.group(Severity.ALERT, [first])) == []
    assert links_in(text.group(Severity.ALERT, [replace(first, type="OF_ANOTHER_SYSTEM")], PublicPages(PUBLIC))) == []


async def test_the_link_of_a_group_opens_its_list() -> None:
    async with a_console_world() as world:
        await fill_store(world.tables, days=2)
        for event_type, shown in ((EventType.RETRY_EXHAUSTED, "ledger-close"), (EventType.SLA_BREACH, "orders-daily")):
            path = PublicPages("https://x.example").about_many(event_type, MORNING - timedelta(hours=3))
            opened = await world.get(path.removeprefix("https://x.example"))
            assert opened.status_code == 200, path
            assert f'/{shown}/stream/{YESTERDAY}"' in opened.text, path


def test_a_name_cannot_end_the_link_or_add_one() -> None:
    hostile = an_event(pipeline="x|evil>", schedule="<!channel>", period="a b")

    [link] = links_in(text.alert(hostile, PublicPages(PUBLIC)))

    assert link == "https://data.example.com/interlock/runs/x%7Cevil%3E/%3C%21channel%3E/a%20b"


def test_a_link_that_does_not_fit_is_left_out_whole() -> None:
    long = text.alert(an_event(pipeline="p" * 2_880), PublicPages(PUBLIC))

    assert links_in(long) == []
    assert "https" not in str(long.blocks)


def test_an_event_on_the_bus_has_the_address_and_reads_as_before() -> None:
    carried = envelope(an_event(), "https://x.example/runs/1")

    assert carried["detail"]["links"] == {"page": "https://x.example/runs/1"}  # pyright: ignore[reportArgumentType, reportCallIssue, reportIndexIssue, reportOptionalSubscript]
    assert event_in(carried) == an_event()


async def test_a_link_from_an_alert_opens_the_run_through_sign_in_below_a_path() -> None:
    """The proxy in front removes the path; without a token the browser is asked for one, and the target stays."""
    access = rules(mode=AccessMode.TOKEN, public_url="https://data.example.com/interlock")
    [link] = links_in(text.alert(an_event(), PublicPages(PUBLIC)))
    path = link.removeprefix("https://data.example.com/interlock")
    async with a_console_world(base="/interlock", access=access) as world:
        await fill_store(world.tables, days=3)

        asked = await world.get(path)
        opened = await world.get(path, VIEWER)
        signed_in = await world.get(f"/signin?to={path}", VIEWER)

    assert asked.status_code == 401
    assert f'name="to" value="{path}"' in asked.text
    assert 'action="/interlock/signin"' in asked.text
    assert opened.status_code == 200
    assert 'href="/interlock/pipelines/orders-daily"' in opened.text
    assert signed_in.headers["location"] == f"/interlock{path}"
