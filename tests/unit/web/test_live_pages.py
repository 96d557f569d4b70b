"""Pages on the mirror: sections, search, timeline, alerts, banners, static files; and that a view reads no store."""

import gzip
import hashlib
import random
import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import MORNING, YESTERDAY, ConsoleWorld, a_console_world, fill_store
from worker.config.store_setting import GROUP
from worker.core.model.events import Event, EventType
from worker.core.model.ids import PipelineId
from worker.core.model.keys import SessionId
from worker.core.run.state import Pause, Run, State
from worker.core.sla.state import Verdict
from worker.store.repos.delivery.alert_probe import AlertPath, AlertProbe, sent_write
from worker.store.repos.events import event_write
from worker.store.repos.pauses import Pauses
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sessions import Sessions
from worker.store.repos.sla_watches import SlaWatches
from worker.web.console import static_files as static_module
from worker.web.console.static_files import BUNDLES, VENDORED, StaticFiles
from worker.web.live.catalogue import read_entry
from worker.web.live.facts import ATTEMPTS_MAX, ActiveRun, ActiveWatch, FinishedRun, ToldEvent, run_of
from worker.web.live.mirror import Mirror
from worker.web.live.sections import AttentionFinder
from worker.web.live.sparkline import HEIGHT, sparkline
from worker.web.live.timeline import LANE_RUNS_MAX, TimeWindow, lane_of

STATIC = Path(static_module.__file__).parent / "static"


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=12)
        yield made


async def text(world: ConsoleWorld, path: str) -> str:
    response = await world.get(path)
    assert response.status_code == 200, response.text
    body = re.sub(r"<(script|title)[^>]*>.*?</\1>", " ", response.text, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", body)).split())


async def names(world: ConsoleWorld, query: str) -> list[str]:
    response = await world.get(f"/pipelines{query}")
    assert response.status_code == 200, response.text
    return re.findall(r'<tr id="p:([^"]+)"', response.text)


# --- views ------------------------------------------------------------------------------------------------------------


async def test_a_view_of_a_list_reads_no_store(world: ConsoleWorld) -> None:
    views = ("/", "/pipelines", "/pipelines?q=a&sort=owner", "/timeline", "/timeline?lanes=1", "/frag/overview")
    for path in views:
        await world.get(path)
    world.tables.requests = 0

    for path in views:
        assert (await world.get(path)).status_code == 200

    assert world.tables.requests == 0


async def test_a_search_looks_at_names_owners_descriptions_and_sensors(world: ConsoleWorld) -> None:
    assert await names(world, "?q=ORDERS-D") == ["orders-daily"]
    assert await names(world, "?q=finance") == ["ledger-close"]
    assert await names(world, "?q=warehouse") == ["orders-daily", "stock-levels"]
    assert await names(world, "?q=orders-export") == ["orders-daily"]
    assert await names(world, "?q=*-s*") == ["customer-snapshot", "web-sessions"]
    assert await names(world, "?q=nothing") == []
    assert "No pipeline fits" in await text(world, "/pipelines?q=nothing")


async def test_filters_and_orders_of_pipelines(world: ConsoleWorld) -> None:
    await Pauses(world.tables).put(PipelineId("web-sessions"), Pause("why"))
    assert await names(world, "?state=waiting") == ["orders-daily"]
    assert await names(world, "?state=failed") == ["ledger-close"]
    assert await names(world, "?state=paused") == ["web-sessions"]
    assert await names(world, "?owner=crm&job=command") == ["customer-snapshot"]
    urgent = ["customer-snapshot", "fraud.scores", "ledger-close", "orders-daily"]
    assert await names(world, "?attention=1") == urgent
    assert (await names(world, "?sort=owner"))[:2] == ["orders-daily", "customer-snapshot"]
    assert (await names(world, "?sort=deadline"))[0] == "orders-daily"
    assert (await world.get("/pipelines?sort=colour")).status_code == 400


async def test_rows_can_be_fetched_by_name(world: ConsoleWorld) -> None:
    await world.get("/")
    response = await world.get("/frag/pipelines?ids=orders-daily,nobody,ledger-close")

    assert re.findall(r'<tr id="p:([^"]+)"', response.text) == ["orders-daily", "ledger-close"]
    assert "<html" not in response.text


async def test_a_strip_has_older_runs_than_the_mirror_keeps(world: ConsoleWorld) -> None:
    [strip] = re.findall(r'aria-label="(\d+ runs: [^"]+)"', (await world.get("/frag/pipelines?q=orders-d")).text)

    assert strip.startswith("11 runs: ")


async def test_the_timeline_has_owners_and_lanes_and_says_the_same_in_a_table(world: ConsoleWorld) -> None:
    owners = await text(world, "/timeline")
    assert "6 owners" in owners
    assert "finance 1 1 0 1 1" in owners

    response = await world.get("/timeline?owner=finance")
    lane = await text(world, "/timeline?owner=finance")
    assert "1 of 1 pipelines" in lane
    assert "ledger-close 2027-03-22 ✕ failed 2027-03-23 04:00:00 UTC 2027-03-23 06:02:00 UTC 2h 02m" in lane
    assert 'data-at="' in response.text
    assert (await world.get("/timeline?from=yesterday")).status_code == 400
    assert "holds runs that ended within the last 7 days" in await text(world, "/timeline?from=2027-01-01T00:00:00Z")


async def test_alerts_have_one_line_for_each_run(world: ConsoleWorld) -> None:
    path = AlertPath(world.tables)
    probe = AlertProbe(id="p1", sent_at=MORNING, waiting_since=MORNING)
    await world.tables.commit(sent_write(await path.load(), probe))

    shown = await text(world, "/alerts")
    assert "! not answered yet : the last check was sent 06:10 UTC" in shown
    assert "orders-daily 2027-03-22 ◆ breached 04:15 UTC SLA_WARNING 05:00 UTC breached its deadline" in shown
    assert "2 alerts" in shown

    await path.acknowledge("p1", MORNING)
    assert "✓ works" in await text(world, "/alerts")


async def test_every_page_says_what_is_wrong_with_the_installation(world: ConsoleWorld) -> None:
    for number, (event_type, what) in enumerate(
        [
            (EventType.WATCHDOG_DEGRADED, "does not work: rollups"),
            (EventType.WATCHDOG_RECOVERED, "works again: rollups"),
        ]
    ):
        at = MORNING + timedelta(minutes=number)
        event = Event(id=f"w{number}", type=event_type, at=at, message=what, detail={"checks": ["rollups"]})
        await world.tables.commit(event_write(event))
        world.clock.advance(timedelta(minutes=number + 2))
        await world.get("/")
        shown = "The watchdog is degraded: does not work: rollups" in await text(world, "/events")
        assert shown is (number == 0)


# --- the mirror's own rules -------------------------------------------------------------------------------------------


def _random_mirror(chance: random.Random, now: float) -> Mirror:
    mirror = Mirror()
    for number in range(120):
        pipeline = f"p{number % 12}"
        at = (f"{pipeline}/stream/d{number}", pipeline, "stream", f"d{number}")
        ago = now - chance.choice((10, 200, 400, 4_000, 90_000, 200_000, 700_000))
        if chance.random() < 0.5:
            states = [state.value for state in State if state not in {State.COMPLETED, State.FAILED_FINAL}]
            due = chance.choice((None, ago, now + 60))
            mirror.see_run(ActiveRun(*at, state=chance.choice(states), since=ago, owner="w1", due_at=due))
        elif chance.random() < 0.8:
            mirror.see_run(FinishedRun(*at, word=chance.choice(("completed", "failed", "cancelled")), at=ago))
        if chance.random() < 0.4:
            mirror.see_watch(ActiveWatch(*at, breach_at=now + chance.choice((-60, 600, 90_000))))
        if chance.random() < 0.3:
            kind = chance.choice((EventType.SLA_BREACH, EventType.SCHEDULE_MISSED))
            mirror.see_event(ToldEvent(*at, type=kind.value, at=ago, message="said"))
    return mirror


@pytest.mark.parametrize("seed", range(20))
async def test_a_run_is_in_one_section_and_is_counted_there(seed: int) -> None:
    async with a_console_world() as world:
        mirror = _random_mirror(random.Random(seed), world.clock.now().timestamp())

        found = await AttentionFinder(world.clock).find(mirror)

        shown = [item.name.key for items in found.sections.values() for item in items]
        assert len(shown) == len(set(shown))
        assert all(len(items) == min(10, found.totals[kind]) for kind, items in found.sections.items())
        assert found.needs_attention == len(found.urgent)


@pytest.mark.parametrize("seed", range(5))
def test_any_history_stays_in_its_box(seed: int) -> None:
    chance, now = random.Random(seed), MORNING.timestamp()
    mirror = _random_mirror(chance, now)
    window = TimeWindow(now - 86_400, now + 3_600)
    for pipeline in [f"p{number}" for number in range(12)]:
        history = list(mirror.ended_of(pipeline).values())
        drawn = sparkline(history, set[str]())
        for x, y in re.findall(r"M(\d+) (\d+)", "".join(each.path for each in drawn.paths)):
            assert 0 <= int(x) < drawn.width
            assert 0 <= int(y) < HEIGHT
        lane = lane_of(mirror, pipeline, window, now)
        assert len(lane.runs) <= LANE_RUNS_MAX
        assert all(each.begin <= each.end for each in lane.runs)


def test_the_mirror_keeps_so_many_ended_runs_and_no_older_ones() -> None:
    mirror, now = Mirror(ended_max=50), MORNING.timestamp()
    for number in range(80):
        run = FinishedRun(f"p/s/{number:03}", "p", "s", f"{number:03}", word="completed", at=now - number)
        mirror.see_run(run)
        mirror.see_run(replace_at(run, run.at - 0.5))
    mirror.expire(now)

    assert len(mirror.ended) == 50
    assert not mirror.ended_is_whole
    assert sum(mirror.hours.values()) == 50
    mirror.expire(now + 8 * 86_400)
    assert mirror.ended == {}
    assert +mirror.hours == {}


def replace_at(run: FinishedRun, at: float) -> FinishedRun:
    return FinishedRun(run.key, run.pipeline, run.schedule, run.period, word=run.word, at=at)


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "[",
        "7",
        "- a",
        "pipeline: 7",
        "schedule: [1]",
        "validation: {rules: {rules: 1}}",
        "a: &a [*a]",
    ],
)
def test_a_pipeline_is_listed_whatever_its_text_holds(given: str | None) -> None:
    entry = read_entry("p", given)

    assert entry.id == "p"
    assert "p" in entry.searched


async def test_a_list_shows_who_was_removed_and_who_is_new() -> None:
    async with a_console_world() as world:
        await Pipelines(world.tables).put(PipelineId("first"), "pipeline: {id: first, owner: ann}\n")
        assert await names(world, "") == ["first"]
        assert "1 of 1" in await text(world, "/pipelines")


# --- static files -----------------------------------------------------------------------------------------------------


def test_vendored_files_are_those_of_the_list() -> None:
    own = {part for parts in BUNDLES.values() for part in parts} | {"icon.svg"}
    found = {each.name for each in STATIC.iterdir() if each.is_file()} - own

    assert found == set(VENDORED)
    for name, vendored in VENDORED.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == vendored.sha256
        assert vendored.version
        assert vendored.licence


def test_scripts_and_styles_stay_small() -> None:
    static = StaticFiles()

    assert static.compressed_bytes(".js") <= 24_000
    assert static.compressed_bytes(".css") <= 8_000


async def test_a_static_file_is_compressed_and_never_changes(world: ConsoleWorld) -> None:
    [path] = re.findall(r'src="(/static/[^"]+/console\.js)"', (await world.get("/")).text)
    response = await world.get(path)

    assert response.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert response.headers["content-encoding"] == "gzip"
    assert response.headers["vary"] == "Accept-Encoding"
    assert "EventSource" in response.text
    async with world.browser(**{"Accept-Encoding": "identity"}) as client:
        plain = await client.get(path)
        page = await client.get("/")
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in page.headers
    assert gzip.compress(plain.content, 9, mtime=0)


def test_no_script_needs_to_evaluate_text() -> None:
    for name in (part for parts in BUNDLES.values() for part in parts if part.endswith(".js")):
        source = (STATIC / name).read_text()
        assert not re.search(r"\beval\b|new Function|\.style\b|setAttribute\(.style", source), name


async def test_a_run_that_ended_since_leaves_its_section(world: ConsoleWorld) -> None:
    assert "Breached, not completed" in await text(world, "/")
    mirror = world.live.mirror
    key = str(key_of(YESTERDAY, "orders-daily"))
    run = mirror.active[key]

    mirror.see_run(FinishedRun(key, run.pipeline, run.schedule, run.period, word="completed", at=MORNING.timestamp()))
    world.clock.advance(timedelta(seconds=1))

    assert "Breached, not completed" not in await text(world, "/")


async def test_a_run_that_gets_stuck_because_nothing_happens_is_news(world: ConsoleWorld) -> None:
    starting = Run(
        key=key_of("2027-03-23", "web-sessions"),
        run_id="starts",
        state=State.TRIGGERING,
        config_hash="deleted",
        created_at=MORNING,
        since=MORNING,
        timeout_at=MORNING + timedelta(hours=4),
    )
    await Runs(world.tables).save(starting)
    world.live.fanout.subscribe("ann")
    sessions = Sessions(world.tables, GROUP)

    async def later(turn: int, by: timedelta) -> str:
        world.clock.advance(by)
        await sessions.beat(SessionId("worker-1"), turn, at=world.clock.now())
        await world.live.fresh()
        return world.live.fanout.last_id

    await later(1, timedelta(seconds=30))
    before = await later(2, timedelta(seconds=30))

    assert await later(3, timedelta(seconds=30)) == before
    assert await later(4, timedelta(minutes=4)) != before


async def test_what_time_changes_counts_on_in_the_page(world: ConsoleWorld) -> None:
    overview = (await world.get("/")).text
    run = (await world.get(f"/runs/orders-daily/stream/{YESTERDAY}")).text

    for text in (overview, run):
        assert 'late <span data-since="2027-03-23T05:00:00+00:00">1h 10m</span>' in text
    assert 'deadline in <span data-until="2027-03-23T08:00:00+00:00">1h 50m</span>' in overview
    assert 'for <span data-since="2027-03-23T04:58:00+00:00">1h 12m</span>' in run
    assert 'id="as-of"' in (await world.get("/frag/banners")).text
    for path in ("/workers", "/deadletters"):
        assert f'data-frag="{path}" data-live="page"' in (await world.get(path)).text


async def test_the_timeline_draws_each_attempt_with_its_outcome_as_a_link(world: ConsoleWorld) -> None:
    response = await world.get("/timeline?q=ledger-close")

    bars = re.findall(
        rf'<a href="/runs/ledger-close/stream/{YESTERDAY}(#a\d)" tabindex="-1"><rect class="([a-z ]+)"[^>]*>'
        r"<title>ledger-close ([^<]+)</title>",
        response.text,
    )
    assert [(anchor, tone) for anchor, tone, _ in bars] == [
        ("#a1", "failed waits"),
        ("#a1", "failed"),
        ("#a2", "failed waits"),
        ("#a2", "failed"),
        ("#a3", "failed waits"),
        ("#a3", "failed"),
    ]
    assert bars[1][2] == f"{YESTERDAY}, attempt 1: failed, 29m"
    assert bars[2][2] == f"{YESTERDAY}, attempt 2: waiting, 11m"


async def test_a_deadline_stays_on_the_timeline_after_its_verdict(world: ConsoleWorld) -> None:
    def lines(page: str) -> list[str]:
        return re.findall(r'<line class="(deadline[a-z ]*)" x1="([\d.]+)%', page)

    breached = lines((await world.get("/timeline?q=orders-daily")).text)
    assert "deadline breached" in [kind for kind, _ in breached]
    [(kind, place)] = lines((await world.get("/timeline?q=stock-levels")).text)
    assert kind == "deadline"
    key = key_of(YESTERDAY, "stock-levels")
    [watch] = await SlaWatches(world.tables).of_schedule(key.pipeline, key.schedule, 1)
    await SlaWatches(world.tables).save(replace(watch, verdict=Verdict.MET))

    assert (kind, place) in lines((await world.get("/timeline?q=stock-levels")).text)


def test_a_stored_run_keeps_few_of_its_attempts() -> None:
    attempts = [{"attempt": number, "endedAt": MORNING.isoformat(), "outcome": "failed"} for number in range(1, 40)]
    row = {"PK": "PIPELINE#p", "SK": "TRIGGER#s#2027-03-22", "state": "COMPLETED", "since": MORNING.isoformat()}

    run = run_of({**row, "attempt": 40, "attempts": [*attempts, {"endedAt": 7}, "odd"]})

    assert isinstance(run, FinishedRun)
    assert 0 < len(run.earlier) <= ATTEMPTS_MAX
