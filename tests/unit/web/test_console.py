"""The console's pages: what each shows, how hostile text is shown, and how much each may read."""

import gzip
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path

import httpx
import pytest

from tests.support.builders.cli_runs import key_of, version_hash
from tests.support.worlds.console import MORNING, YESTERDAY, ConsoleWorld, a_console_world, fill_store
from tests.support.worlds.web import OPERATOR
from worker.core.model.events import Event, EventType
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Outcome, Run, State
from worker.operations.runs.history import HistoryEntry, HistorySource
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.repos.events import event_write
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs, run_key
from worker.store.repos.sensors import Sensors
from worker.store.table import Equals, Put, TableName
from worker.web.console import console as console_module
from worker.web.console.links import Links, is_own_path, is_web_address
from worker.web.console.run_page import without_doubles

TEMPLATES = Path(console_module.__file__).parent / "templates"
WAITING = f"/runs/orders-daily/stream/{YESTERDAY}"
FAILED = f"/runs/ledger-close/stream/{YESTERDAY}"
HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\u202eevil\u2066" + "x" * 100_000


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=4)
        yield made


def text_of(response: httpx.Response) -> str:
    """The page as a reader sees it: without tags, and with one space between words."""
    body = re.sub(r"<(style|title)[^>]*>.*?</\1>", " ", response.text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


async def page(world: ConsoleWorld, path: str, token: str | None = None) -> str:
    response = await world.get(path, token)
    assert response.status_code == 200, response.text
    return text_of(response)


# --- the run page -----------------------------------------------------------------------------------------------------


async def test_a_waiting_run_says_why_it_waits_and_what_makes_it_run(world: ConsoleWorld) -> None:
    text = await page(world, WAITING)

    assert "waiting for 1h 12m" in text
    assert "late 1h 10m" in text
    assert "due 06:00 CET" in text
    assert "Blocked by rules: 0 of 2 conditions hold" in text
    assert "orders-export.rows 950 at least 1000 orders-export#2027-03-22 05:58 CET" in text
    assert "rows=VALUE --period 2027-03-22" in text
    assert "interlock sensor put orders-daily customer-snapshot updatedAt=VALUE" in text
    assert "SLA_BREACH breached its deadline at 06:00 CET event" in text


async def test_a_failed_run_shows_its_three_attempts(world: ConsoleWorld) -> None:
    response = await world.get(FAILED)
    text = text_of(response)

    assert "failed 8m 00s ago" in text
    assert "interlock rerun ledger-close 2027-03-22" in text
    assert [f'id="a{number}"' in response.text for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert response.text.count('class="bar running bad"') == 3
    assert "exit code 75: the exchange rates cannot be had at the moment" in text
    assert "exit code 1: KeyError 'fx'" in text


async def test_a_run_page_says_each_thing_once(world: ConsoleWorld) -> None:
    text = await page(world, FAILED)

    assert text.count("interlock rerun ledger-close 2027-03-22") == 1
    assert re.findall(r"failed: exit code \S+ .*?event", text)
    assert "breached its deadline at 06:00 CET" in await page(world, WAITING)
    assert "breached sla" not in await page(world, WAITING)


def test_a_history_leaves_out_what_an_event_says() -> None:
    def entry(source: HistorySource, what: str, message: str = "", status: str | None = None) -> HistoryEntry:
        return HistoryEntry(at=MORNING, source=source, what=what, message=message, status=status)

    key = key_of(YESTERDAY, "ledger-close")
    failed = entry(HistorySource.EVENT, "RETRY_EXHAUSTED", f"{key}: failed: exit code 1")
    breached = entry(HistorySource.EVENT, "RELATIVE_SLA_BREACH", "breached its deadline")
    doubles = [
        entry(HistorySource.RUN, "FAILED_FINAL", "exit code 1", "failed"),
        entry(HistorySource.SLA, "breached"),
    ]
    others = [
        entry(HistorySource.RUN, "FAILED_FINAL", "another reason", "failed"),
        replace(doubles[0], at=MORNING - timedelta(seconds=2)),
        entry(HistorySource.SLA, "warned"),
        entry(HistorySource.RUN, "created", "run 7"),
    ]

    assert list(without_doubles([failed, breached, *doubles, *others], key)) == [failed, breached, *others]
    assert list(without_doubles(doubles, key)) == doubles


async def test_the_header_and_the_title_name_the_installation() -> None:
    async with a_console_world(installation="prod <eu>") as named:
        shown = (await named.get("/")).text

    assert '<span class="installation">prod &lt;eu&gt;</span>' in shown
    assert "· prod &lt;eu&gt;</title>" in shown


async def test_a_completed_run_says_so(world: ConsoleWorld) -> None:
    text = await page(world, "/runs/orders-daily/stream/2027-03-21")

    assert "✓ completed" in text
    assert "✓ deadline met" in text
    assert "To make it run" not in text


async def test_a_completed_run_whose_results_are_monitored_says_until_when(world: ConsoleWorld) -> None:
    run = await Runs(world.tables).load(key_of("2027-03-21", "orders-daily"))
    assert isinstance(run, Run)
    assert run.state is State.COMPLETED
    await Runs(world.tables).save(replace(run, window_ends_at=MORNING + timedelta(hours=2)))

    assert "monitoring for 2h 00m until 09:10 CET" in await page(world, "/runs/orders-daily/stream/2027-03-21")
    assert "✓ completed ◉ monitoring for 2h 00m" in await page(world, "/pipelines/orders-daily")


async def test_a_run_that_does_not_exist_yet_is_explained(world: ConsoleWorld) -> None:
    text = await page(world, "/runs/orders-daily/stream/2027-03-23")

    assert "no run yet" in text
    assert "write orders-export.status" in text
    assert "interlock sensor put orders-daily orders-export rows=VALUE status=VALUE --period 2027-03-23" in text


async def test_the_commands_for_a_run_that_does_not_exist_yet_write_its_trigger_too(world: ConsoleWorld) -> None:
    text = DRY.replace("id: dry", "id: new").replace(
        "dryRun: true", "validation: {rules: [{key: count, field: rows, check: gte, value: 1}]}"
    )
    await Pipelines(world.tables).put(PipelineId("new"), text)

    shown = await page(world, "/runs/new/stream/2027-03-23")

    assert "interlock sensor put new ready" in shown
    assert "interlock sensor put new count" in shown


async def test_a_run_whose_row_cannot_be_read_shows_the_problem(world: ConsoleWorld) -> None:
    key = key_of("2027-03-21", "orders-daily")
    row = await world.tables.get(TableName.CONTROL, run_key(key))
    assert row is not None
    broken = {**row, "createdAt": "last week"}
    await world.tables.commit(Put(TableName.CONTROL, broken, Equals("version", 1)))

    text = await page(world, "/runs/orders-daily/stream/2027-03-21")

    assert "? unreadable" in text
    assert "'createdAt'" in text
    assert "unreadable" in await page(world, "/pipelines/orders-daily")


NOWHERE = [
    f"/runs/nobody/stream/{YESTERDAY}",
    f"/runs/orders-daily/nightly/{YESTERDAY}",
    "/runs/orders-daily/stream/yesterday",
    f"/runs/..%2F/stream/{YESTERDAY}",
    "/pipelines/nobody",
    "/pipelines/orders-daily?schedule=nightly",
    "/nowhere",
    "/static/0/console.css",
]


async def test_what_does_not_exist_is_a_page_that_says_so(world: ConsoleWorld) -> None:
    for path in NOWHERE:
        response = await world.get(path)

        assert response.status_code == 404, path
        assert response.headers["content-type"] == "text/html; charset=utf-8"
        assert "To the overview" in response.text


async def test_the_page_of_an_unknown_schedule_names_those_that_there_are(world: ConsoleWorld) -> None:
    response = await world.get(f"/runs/orders-daily/nightly/{YESTERDAY}")

    assert "pipeline orders-daily has no schedule nightly; it has stream" in response.text
    assert "did you mean" not in response.text


async def test_a_program_gets_a_problem_document_where_a_browser_gets_a_page(world: ConsoleWorld) -> None:
    async with world.browser(Accept="application/json") as client:
        response = await client.get("/nowhere")

    assert response.headers["content-type"] == "application/problem+json"


async def test_a_pipeline_whose_configuration_cannot_be_used_shows_its_problems(world: ConsoleWorld) -> None:
    await Pipelines(world.tables).put(PipelineId("broken"), "pipeline: {id: broken}\nschedule: 7\n")

    assert "The deployed configuration is invalid" in await page(world, "/pipelines/broken")
    assert "the deployed configuration is invalid" in await page(world, f"/runs/broken/stream/{YESTERDAY}")
    assert "bad configuration" in await page(world, "/pipelines")


DRY = """\
pipeline: {id: dry}
dryRun: true
schedule: {trigger: {key: ready, check: exists}}
job: {type: command, config: {command: load}}
"""


async def test_a_pipeline_in_dry_run_says_why_it_has_no_periods(world: ConsoleWorld) -> None:
    await Pipelines(world.tables).put(PipelineId("dry"), DRY)

    assert "A pipeline in dry run starts nothing" in await page(world, "/pipelines/dry")


async def test_an_active_run_is_renewed_and_an_ended_one_is_not(world: ConsoleWorld) -> None:
    assert 'http-equiv="refresh"' in (await world.get(WAITING)).text
    assert 'http-equiv="refresh"' not in (await world.get(FAILED)).text


# --- pipelines and overview -------------------------------------------------------------------------------------------


async def test_a_pipeline_shows_its_runs_and_what_comes_next(world: ConsoleWorld) -> None:
    response = await world.get("/pipelines/orders-daily")
    text = text_of(response)

    assert "commerce-data glue job" in text
    assert response.text.count('class="cell ') == 4
    assert 'aria-label="4 runs: ' in response.text
    assert "2027-03-23 when its sensor arrives 2027-03-24 06:00 CET" in text
    assert "orders-export#2027-03-22" in text


async def test_the_list_of_pipelines_has_pages(world: ConsoleWorld) -> None:
    for number in range(160):
        await Pipelines(world.tables).put(PipelineId(f"many-{number:03}"), f"pipeline: {{id: many-{number:03}}}\n")

    first = await world.get("/pipelines")
    [following] = re.findall(r'href="(/pipelines\?cursor=[^"]+)"', first.text)
    second = await world.get(unescape(following))

    names = re.findall(r'href="/pipelines/([^"?]+)"', first.text + second.text)
    assert len(names) == 166
    assert len(set(names)) == 166
    assert "Next 100" not in second.text
    assert "166 of 166; 101 to 166" in text_of(second)


async def test_the_overview_lists_each_run_once_in_the_first_section_that_fits(world: ConsoleWorld) -> None:
    response = await world.get("/")
    text = text_of(response)

    sections = ["Breached, not completed", "Failed in", "Missed in", "Stuck", "Due in"]
    places = [text.index(each) for each in sections]
    assert places == sorted(places)
    named = re.findall(r'href="/runs/([^/]+)/', response.text)
    assert named == ["orders-daily", "ledger-close", "fraud.scores", "customer-snapshot", "stock-levels"]
    assert "4 need attention" in text
    assert "orders-export.rows is 950, which is not at least 1000, and 1 more" in text


async def test_an_empty_store_has_nothing_that_needs_attention() -> None:
    async with a_console_world() as world:
        text = await page(world, "/")

        assert "Nothing needs attention" in text
        assert "No worker is running" in text
        assert "There is no pipeline in the store" in await page(world, "/pipelines")


async def test_a_breach_of_a_run_that_completed_since_needs_nobody(world: ConsoleWorld) -> None:
    run = await Runs(world.tables).load(key_of(YESTERDAY, "orders-daily"))
    assert isinstance(run, Run)
    await Runs(world.tables).save(
        replace(run, state=State.COMPLETED, outcome=Outcome.SUCCEEDED, since=MORNING, window_ends_at=None)
    )

    assert "Breached" not in await page(world, "/")


# --- events, workers and dead letters ---------------------------------------------------------------------------------


async def test_events_are_listed_newest_first_and_by_kind(world: ConsoleWorld) -> None:
    response = await world.get("/events")
    times = re.findall(r'<time datetime="([^"]+)">2027-03-23 0', response.text)
    assert times[:-1] == sorted(times[:-1], reverse=True)  # the last is the page's own
    assert "RETRY_EXHAUSTED" in response.text

    deadlines = (await world.get("/events?show=deadlines")).text
    assert ">SLA_BREACH</span>" in deadlines
    assert ">JOB_FAILED</span>" not in deadlines
    assert (await world.get("/events?show=nonsense")).status_code == 404


@pytest.mark.parametrize("path", ["/events", "/alerts", "/pipelines/ledger-close"])
async def test_a_message_does_not_repeat_the_run_that_its_row_names(world: ConsoleWorld, path: str) -> None:
    event = Event(
        id="last",
        type=EventType.RETRY_EXHAUSTED,
        at=world.clock.now(),
        pipeline="ledger-close",
        schedule="stream",
        period=f"{YESTERDAY}",
        message=f"ledger-close/stream/{YESTERDAY}: failed for good",
    )
    await world.tables.commit(event_write(event))

    text = await page(world, path)

    assert "failed for good" in text
    assert "ledger-close/stream/" not in text


@pytest.mark.parametrize("path", ["/events", "/alerts", "/pipelines/ledger-close"])
async def test_a_run_is_named_with_its_schedule_if_that_has_a_name(world: ConsoleWorld, path: str) -> None:
    def failed(schedule: str, day: int) -> Event:
        return Event(
            id=schedule,
            type=EventType.RETRY_EXHAUSTED,
            at=world.clock.now(),
            pipeline="ledger-close",
            schedule=schedule,
            period=f"2027-02-{day:02}",
            message="failed for good",
        )

    await world.tables.commit(event_write(failed("evening", 14)), event_write(failed("cron", 15)))

    text = await page(world, path)

    assert "2027-02-14 evening" in text
    assert "2027-02-15 cron" not in text


async def test_an_alert_names_its_run_if_that_is_not_the_run_of_its_line(world: ConsoleWorld) -> None:
    cause = {"pipeline": "orders-daily", "schedule": "stream", "period": "2027-02-14", "status": "failed"}
    event = Event(
        id="breach",
        type=EventType.SLA_BREACH,
        at=world.clock.now(),
        pipeline="ledger-close",
        schedule="stream",
        period="2027-02-15",
        message="ledger-close/stream/2027-02-15 breached its deadline",
        detail={"rootCause": cause},
    )
    await world.tables.commit(event_write(event))

    shown = await page(world, "/alerts")

    assert re.search(r"orders-daily 2027-02-14 .{0,80} ledger-close/2027-02-15 breached its deadline", shown)


async def test_workers_show_who_is_alive_and_who_is_silent(world: ConsoleWorld) -> None:
    assert "worker-1 ✓ alive" in await page(world, "/workers")

    world.clock.advance(timedelta(minutes=5))
    assert "worker-1 ! silent 5m 00s ago" in await page(world, "/workers")
    async with a_console_world() as empty:
        assert (await page(empty, "/workers")).count("No worker is running") == 1
        await page(empty, "/")  # reads the lists, so that the banner of every page knows it too
        assert (await page(empty, "/workers")).count("No worker is running") == 1


async def test_dead_letters_show_their_reason_and_how_to_replay_them(world: ConsoleWorld) -> None:
    assert "There is no dead letter" in await page(world, "/deadletters")
    letter = DeadLetter(
        id="7", source="feed.control", at=MORNING, reason=HOSTILE, history=("first", "second"), lane="orders"
    )
    await DeadLetters(world.tables).put(letter, b"{}", now=MORNING)

    text = await page(world, "/deadletters")

    assert "feed.control 1" in text
    assert "2 tries first second" in text
    assert "interlock dlq replay feed.control" in text
    assert "1 dead letter waits for a decision." in await page(world, "/")


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_secrets_in_a_sensor_are_on_no_page_and_in_no_command(world: ConsoleWorld) -> None:
    data = {"status": "complete", "rows": 950, "password": "hunter2-and-more"}
    await Sensors(world.tables).put(PipelineId("orders-daily"), f"orders-export#{YESTERDAY}", data)

    shown = [await page(world, path) for path in (WAITING, "/pipelines/orders-daily")]

    assert [text for text in shown if "hunter2" in text] == []
    assert "interlock sensor put orders-daily orders-export" not in shown[0]


async def test_a_sensor_without_a_time_says_that_none_was_reported(world: ConsoleWorld) -> None:
    sensor, data = f"orders-export#{YESTERDAY}", {"status": "complete", "rows": 1200}
    await Sensors(world.tables).put(PipelineId("orders-daily"), sensor, data)

    assert "not reported" in await page(world, "/pipelines/orders-daily")
    run = await page(world, f"/runs/orders-daily/stream/{YESTERDAY}")
    assert f"orders-export.rows 1200 at least 1000 orders-export#{YESTERDAY} not reported" in run


# --- hostile text -----------------------------------------------------------------------------------------------------


async def _hostile(world: ConsoleWorld) -> None:
    """Text of others at every place where a page shows some."""
    key, version = key_of("2027-03-20", "fraud.scores"), await version_hash(world.tables, "fraud.scores")
    known = await Runs(world.tables).load(key)
    assert isinstance(known, Run)
    job = {"id": HOSTILE[:500], "url": "javascript:alert(1)"}
    state = {"state": State.FAILED_FINAL, "outcome": Outcome.FAILED}
    await Runs(world.tables).save(replace(known, reason=HOSTILE, job=job, job_type=HOSTILE[:50], **state))  # pyright: ignore[reportArgumentType]
    waiting = Run(
        key=key_of(YESTERDAY, "fraud.scores"),
        run_id="hostile",
        config_hash=version,
        created_at=MORNING,
        since=MORNING,
        timeout_at=MORNING.replace(hour=20),
        reason=HOSTILE,
    )
    await Runs(world.tables).save(waiting)
    letter = DeadLetter(id=HOSTILE[:40], source="feed", at=MORNING, reason=HOSTILE, history=(HOSTILE,), lane="x")
    await DeadLetters(world.tables).put(letter, b"{}", now=MORNING)
    await Sensors(world.tables).put(PipelineId("fraud.scores"), "ready", {"status": HOSTILE, HOSTILE[:90]: 1})
    for period in ("2027-03-20", YESTERDAY):
        event = Event(
            id=f"e{period}",
            type=EventType.SLA_BREACH,
            at=MORNING,
            pipeline="fraud.scores",
            schedule="stream",
            period=period,
            message=HOSTILE,
        )
        await world.tables.commit(event_write(event))


PAGES = [
    "/",
    "/pipelines",
    "/runs?state=failed",
    "/runs/rerun?state=failed",
    "/events",
    "/events?show=deadlines",
    "/deadletters",
    "/workers",
    "/pipelines/fraud.scores",
    "/runs/fraud.scores/stream/2027-03-20",
    f"/runs/fraud.scores/stream/{YESTERDAY}",
    WAITING,
    FAILED,
    "/nowhere",
    "/pipelines/%3Cimg%20src=x%20onerror=alert(1)%3E",
]


async def test_hostile_text_is_shown_as_text(world: ConsoleWorld) -> None:
    await _hostile(world)

    for path in PAGES:
        response = await world.get(path, OPERATOR)
        assert "<img" not in response.text, path
        assert re.findall(r"<script[^>]*>[^<]*", response.text) == re.findall(
            r'<script defer src="/static/[0-9a-f]{16}/[a-z.]+\.js">', response.text
        )
        assert response.text.count("<script") == 2, path
        assert response.text.count("</script") == 2, path
        assert 'href="javascript:' not in response.text, path
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200e\u200f]", response.text), path
        assert len(response.text) < 200_000, path


async def test_a_long_text_is_cut_and_says_so(world: ConsoleWorld) -> None:
    await _hostile(world)

    text = await page(world, "/runs/fraud.scores/stream/2027-03-20")

    assert "<img src=x onerror=alert(1)></script>" in text
    assert "[U+202E]evil" in text
    assert "more characters)" in text


def test_no_template_turns_off_escaping() -> None:
    texts = {each.name: each.read_text() for each in TEMPLATES.iterdir()}

    assert len(texts) > 5
    for name, text in texts.items():
        assert not re.search(r"\|\s*safe\b|autoescape|Markup", text), name
        assert not re.search(r"\sstyle=|\son\w+=|<script(?! defer src=)|javascript:|hx-on", text), name


# --- headers, access and links ----------------------------------------------------------------------------------------


async def test_every_page_has_the_strict_policy_and_is_not_kept(world: ConsoleWorld) -> None:
    for path in PAGES:
        response = await world.get(path, OPERATOR)

        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'"), path
        assert "unsafe" not in policy
        assert response.headers["cache-control"] == "private, no-store"
        assert response.headers["x-content-type-options"] == "nosniff"


async def test_every_link_leads_somewhere(world: ConsoleWorld) -> None:
    links: set[str] = set()
    for path in PAGES[:-2]:
        response = await world.get(path, OPERATOR)
        links |= {unescape(each) for each in re.findall(r'href="([^"#]+)', response.text)}

    assert len(links) > 30
    for link in sorted(links):
        found = await world.get(link, OPERATOR)
        assert found.status_code in {200, 303}, link


async def test_static_files_are_kept_for_good_under_their_hash(world: ConsoleWorld) -> None:
    response = await world.get("/")
    [link] = re.findall(r'rel="stylesheet" href="([^"]+)"', response.text)

    file = await world.get(link)

    assert re.fullmatch(r"/static/[0-9a-f]{16}/console.css", link)
    assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert file.headers["content-type"] == "text/css; charset=utf-8"
    assert len(file.content) < 20_000
    assert len(gzip.compress(file.content)) < 8_000


async def test_links_are_below_the_path_of_the_public_address() -> None:
    async with a_console_world(base="/interlock") as world:
        await fill_store(world.tables, days=2)
        response = await world.get(WAITING)

    links = re.findall(r'(?:href|action)="([^"#]+)', response.text)
    assert links
    assert all(link.startswith("/interlock/") for link in links), links


def test_only_own_paths_and_web_addresses_become_links() -> None:
    assert is_own_path("/runs/a/b/2027-03-22")
    assert not is_own_path("//evil.example")
    assert is_web_address("https://eu-west-1.console.aws.amazon.com/glue")
    assert not is_web_address("javascript:alert(1)")
    assert not is_web_address("data:text/html,x")
    assert Links("/x").to("pipelines", "a/b c", q="1&2") == "/x/pipelines/a%2Fb%20c?q=1%262"


# --- reads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "requests_max", "rows_max"),
    [
        (WAITING, 40, 60),
        (FAILED, 40, 60),
        (f"/runs/stock-levels/stream/{YESTERDAY}", 41, 91),
        ("/pipelines/orders-daily", 16, 110),
        ("/pipelines/orders-daily?to=2027-03-20", 17, 110),
        ("/pipelines", 32, 480),
        ("/", 220, 520),
        ("/events", 64, 140),
        ("/runs", 135, 160),
        ("/runs?pipeline=orders-daily", 20, 120),
        ("/workers", 12, 40),
        ("/deadletters", 4, 10),
    ],
)
async def test_a_page_reads_no_more_than_its_bound(
    world: ConsoleWorld, path: str, requests_max: int, rows_max: int
) -> None:
    await world.get(path)  # parsed configurations are kept
    world.clock.advance(timedelta(seconds=30))  # what viewers share is read again
    world.tables.requests = 0
    world.tables.rows.clear()

    await world.get(path)

    assert 0 < world.tables.requests <= requests_max
    assert world.tables.rows["read"] <= rows_max
    assert world.tables.rows["written"] == 0


async def test_any_number_of_viewers_cost_one_reading_of_the_overview(world: ConsoleWorld) -> None:
    await world.get("/")
    before = world.tables.requests

    for _ in range(5):
        await world.get("/")

    assert world.tables.requests == before


async def test_a_section_of_the_overview_says_how_many_it_does_not_show(world: ConsoleWorld) -> None:
    for number in range(300):
        run = Run(
            key=key_of("2027-03-23", f"busy-{number}"),
            run_id=f"busy-{number}",
            config_hash="deleted",
            created_at=MORNING,
            since=MORNING,
            timeout_at=MORNING.replace(hour=20),
        )
        await Runs(world.tables).save(run)

    text = await page(world, "/")

    assert "303 active runs" in text
    assert "Waiting longest 10 of 300 all" in text
    assert 'href="/runs?state=waiting"' in (await world.get("/")).text
