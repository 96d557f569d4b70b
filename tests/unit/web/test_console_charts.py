"""The pipeline page's grid, charts, cadence and versions: what they show, and that any history stays in its box."""

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import MORNING, a_console_world, fill_store
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Outcome, Run, State
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.statistics.usual_range import usual_range
from worker.core.time.periods import Period
from worker.operations.records import DeadlineRecord
from worker.operations.sensors.cadence import cadence_of
from worker.store.repos.pipelines import Pipelines
from worker.web.charts.period_grid import period_columns
from worker.web.charts.run_charts import HEIGHT, duration_chart, ended_runs, ready_chart
from worker.web.console.pipeline_page import clock_offset
from worker.web.console.wording import deadline_badge, prose, took_of

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
BERLIN = ZoneInfo("Europe/Berlin")


def a_run(period: str, waited_s: int = 600, worked_s: int = 1_800, *, failed: bool = False) -> Run:
    begun = datetime.fromisoformat(period[:10]).replace(tzinfo=UTC) + DAY
    started = begun + timedelta(seconds=waited_s)
    return Run(
        key=key_of(period, "orders"),
        run_id=period,
        state=State.FAILED_FINAL if failed else State.COMPLETED,
        outcome=Outcome.FAILED if failed else Outcome.SUCCEEDED,
        config_hash="x",
        created_at=begun,
        started_at=started,
        since=started + timedelta(seconds=worked_s),
        timeout_at=begun + DAY,
    )


def a_watch(run: Run, after: timedelta) -> SlaWatch:
    due = run.since + after
    verdict = Verdict.MET if after >= timedelta() else Verdict.BREACHED
    return SlaWatch(key=run.key, config_hash="x", since=run.since, breach_at=due, verdict=verdict)


def a_week() -> list[tuple[str, Run | None, SlaWatch | None]]:
    periods = [f"2027-03-{day:02d}" for day in range(1, 8)]
    runs = [a_run(period) for period in periods]
    return [(period, run, a_watch(run, HOUR)) for period, run in zip(periods, runs, strict=True)]


# --- the grid ---------------------------------------------------------------------------------------------------------


def test_a_column_names_its_month_only_where_it_changes() -> None:
    columns = period_columns([(period, None, None) for period in ("2027-02-28", "2027-03-01", "2027-03-02")])

    assert [(each.above, each.label) for each in columns] == [("2027-02", "28"), ("2027-03", "01"), ("", "02")]


def test_columns_of_hours_name_their_day() -> None:
    columns = period_columns([(period, None, None) for period in ("2027-03-01T23", "2027-03-02T00", "2027-03-02T0130")])

    assert [(each.above, each.label) for each in columns] == [("03-01", "23"), ("03-02", "00"), ("", "01:30")]


def test_a_column_knows_how_late_its_run_was() -> None:
    run = a_run("2027-03-01")

    [late, in_time, unreadable] = period_columns(
        [("2027-03-01", run, a_watch(run, -20 * MINUTE)), ("2027-03-01", run, a_watch(run, HOUR)), ("", None, None)]
    )

    assert (late.late, in_time.late, in_time.verdict) == (20 * MINUTE, None, Verdict.MET)
    assert (unreadable.label, unreadable.attempts) == ("?", 0)


# --- charts -----------------------------------------------------------------------------------------------------------


def test_without_an_ended_run_there_is_no_chart() -> None:
    assert ready_chart([], UTC) is None
    assert duration_chart([], None) is None


def test_what_is_usual_needs_five_successes() -> None:
    assert usual_range([MINUTE] * 4) is None
    assert usual_range([each * MINUTE for each in range(1, 12)]) == (2 * MINUTE, 10 * MINUTE)


def test_a_chart_of_a_week_has_its_deadline_and_its_usual_range() -> None:
    ended = ended_runs(a_week())

    ready, durations = ready_chart(ended, UTC), duration_chart(ended, HOUR)

    assert ready is not None
    assert durations is not None
    assert len(ready.points) == len(durations.bars) == 7
    assert ready.usual is not None
    assert (clock_offset(ready.usual.low), ready.late) == ("00:40", 0)
    assert [(begin, end) for begin, end, _ in ready.deadlines] == [(0, 100)]
    assert durations.expected is not None
    assert durations.usual is not None
    assert durations.usual.low == 30 * MINUTE


LONG = st.integers(0, 40 * 86_400)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(LONG, LONG, st.integers(-(10**6), 10**6), st.booleans()), min_size=1, max_size=60),
    st.sampled_from([UTC, BERLIN, ZoneInfo("Asia/Tokyo")]),
    st.none() | st.integers(1, 10**6),
)
def test_any_history_stays_in_its_box(
    given_runs: list[tuple[int, int, int, bool]], zone: ZoneInfo, expected_s: int | None
) -> None:
    runs: list[tuple[str, Run | None, SlaWatch | None]] = []
    for number, (waited, worked, margin, failed) in enumerate(given_runs):
        period = f"{(datetime(2027, 3, 1) + number * DAY).date()}"  # noqa: DTZ001  a date
        run = a_run(period, waited, worked, failed=failed)
        runs.append((period, run, a_watch(run, timedelta(seconds=margin))))
    ended = ended_runs(runs)

    ready = ready_chart(ended, zone)
    durations = duration_chart(ended, timedelta(seconds=expected_s) if expected_s else None)

    assert ready is not None
    assert durations is not None
    heights = [point.y for point in ready.points] + [line.y for line in (*ready.lines, *durations.lines)]
    heights += [y for _, _, y in ready.deadlines]
    for bar in durations.bars:
        heights += [bar.work_y, bar.wait_y]
        assert bar.work_height >= 0
        assert bar.wait_height >= 0
        assert bar.work_y + bar.work_height <= HEIGHT + 0.1
        assert 0 <= bar.x <= bar.x + bar.width <= 100.1
    assert all(0 <= each <= HEIGHT for each in heights)
    assert all(0 <= point.x <= 100 for point in ready.points)
    assert len(ready.lines) <= 12
    assert len(durations.lines) <= 12


def test_a_clock_shows_the_next_day_without_a_note_and_later_ones_with() -> None:
    assert [clock_offset(each) for each in (6 * HOUR, 30 * HOUR, 54 * HOUR, -2 * HOUR)] == [
        "06:00",
        "06:00",
        "06:00 +2d",
        "22:00 -1d",
    ]


# --- cadence, deadline ------------------------------------------------------------------------------------------------


def test_cadence_is_by_the_clock_of_the_zone_also_when_it_changes() -> None:
    """The clocks of Berlin go forward on 28 March 2027: 05:40 there is 04:40 UTC before, and 03:40 after."""
    found = [
        (Period(datetime(2027, 3, day, tzinfo=UTC).date()), datetime(2027, 3, day, 5, 40, tzinfo=BERLIN) + DAY)
        for day in range(22, 30)
    ]

    cadence = cadence_of(found, BERLIN, datetime(2027, 3, 31, 10, tzinfo=UTC))

    assert cadence is not None
    assert f"{cadence.early.astimezone(BERLIN):%H:%M}" == f"{cadence.late.astimezone(BERLIN):%H:%M}" == "05:40"
    assert cadence.late_since == datetime(2027, 3, 31, 3, 40, tzinfo=UTC)
    assert cadence_of(found[:4], BERLIN, MORNING) is None


def test_a_sensor_that_arrived_without_its_time_is_not_the_next_one_that_is_late() -> None:
    found = [
        (Period(datetime(2027, 3, day, tzinfo=UTC).date()), datetime(2027, 3, day, 5, 40, tzinfo=UTC))
        for day in range(10, 20)
    ]
    noon = datetime(2027, 3, 20, 12, tzinfo=UTC)

    cadence = cadence_of(found, UTC, noon, newest=noon.date())

    assert cadence is not None
    assert cadence.late_since is None


def test_a_late_run_says_by_how_much() -> None:
    missed = DeadlineRecord(warning_at=None, breach_at=MORNING, verdict="breached")

    ended = deadline_badge(missed, MORNING + DAY, ended_at=MORNING + 20 * MINUTE)
    open_still = deadline_badge(missed, MORNING + DAY)

    assert ended is not None
    assert open_still is not None
    assert (ended.word, open_still.word) == ("20m late", "deadline breached")


# --- the page ---------------------------------------------------------------------------------------------------------


async def test_the_page_compares_versions() -> None:
    async with a_console_world() as world:
        await fill_store(world.tables, days=6)
        before = await Pipelines(world.tables).get(PipelineId("orders-daily"))
        assert before is not None
        assert before.text is not None
        await Pipelines(world.tables).put(before.pipeline, before.text.replace("value: 1000", "value: 1200"))

        page = (await world.get("/pipelines/orders-daily")).text
        [other] = re.findall(r'href="(/pipelines/orders-daily\?diff=[0-9a-f]{64})#configuration"', page)
        compared = (await world.get(other)).text

        assert re.search(r'<span class="removed">-.*1000</span>', compared)
        assert re.search(r'<span class="added">\+.*1200</span>', compared)
        assert "no expected run changes" in compared
        assert f'data-frag="{other}"' in (await world.get(other)).text  # a live update keeps the comparison
        assert (await world.get("/pipelines/orders-daily?diff=nothing")).status_code == 404


async def test_the_page_shows_what_a_version_changes_in_the_plan() -> None:
    async with a_console_world() as world:
        await fill_store(world.tables, days=6)
        before = await Pipelines(world.tables).get(PipelineId("orders-daily"))
        assert before is not None
        assert before.text is not None
        earlier = before.text.replace('"06:00"', '"07:30"').replace("06:00", "07:30")
        assert earlier != before.text
        await Pipelines(world.tables).keep_version(before.pipeline, "a" * 64, earlier, world.clock.now())

        page = (await world.get(f"/pipelines/orders-daily?diff={'a' * 64}")).text

        assert "Effect on the next 14 days" in page
        assert "runs with new deadlines: 14" in page
        assert "The first 10 of 14." in page
        assert re.search(r"due 07:30 \w+ -&gt; .*due 06:00", page)


async def test_the_page_shows_charts_and_when_sensors_usually_arrive() -> None:
    async with a_console_world() as world:
        await fill_store(world.tables, days=12)

        page = (await world.get("/pipelines/orders-daily")).text

        assert page.count('<circle class="point') + page.count('<text class="point bad"') >= 11
        assert "the job usually takes" in page
        assert "<code>customer-snapshot</code>" in page


# --- the theme --------------------------------------------------------------------------------------------------------


async def test_a_chosen_theme_is_kept_and_leads_back() -> None:
    async with a_console_world(base="/lock") as world, world.browser() as browser:
        chosen = await browser.get("/theme?set=dark&to=/pipelines?q=x")
        page = await browser.get("/", headers={"Cookie": "interlock-theme=dark"})
        odd = await browser.get("/", headers={"Cookie": 'interlock-theme="><script>'})
        missing = await browser.get("/nowhere", headers={"Cookie": "interlock-theme=light"})

        assert (chosen.status_code, chosen.headers["location"]) == (303, "/lock/pipelines?q=x")
        assert "interlock-theme=dark" in chosen.headers["set-cookie"]
        assert "Path=/lock/" in chosen.headers["set-cookie"]
        assert 'data-theme="dark"' in page.text
        assert "data-theme" not in odd.text
        assert 'data-theme="light"' in missing.text
        assert (await browser.get("/theme?set=pink")).status_code == 404
        assert (await browser.get("/theme?set=dark&to=//evil.example")).headers["location"] == "/lock/"


@pytest.mark.parametrize(("seconds", "shown"), [(0.353, "0.4s"), (9.96, "10s"), (12.9, "12s"), (185, "3m 05s")])
def test_how_long_a_job_took_is_not_nothing_if_it_was_short(seconds: float, shown: str) -> None:
    assert took_of(seconds) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("failed at 2027-03-23 11:24 CET: x", "2027-03-23T10:24:00+00:00"),
        ("late since 2027-10-31 02:30 CEST", "2027-10-31T00:30:00+00:00"),
        ("late since 2027-10-31 02:30 CET", "2027-10-31T01:30:00+00:00"),  # the second one of that night
        ("kept 2027-03-23 11:24:05 UTC.", "2027-03-23T11:24:05+00:00"),
        ("breached its deadline at 06:00 CET", "2027-03-23T05:00:00+00:00"),
        ("breached its deadline at 23:50 CET", "2027-03-22T22:50:00+00:00"),  # the nearest one
        ("breached its deadline at 06:00 JST", None),  # Berlin writes no such time
        ("2027-02-30 11:24 CET", None),
        ("2027-03-28 02:30 CET", None),  # the clocks skip it
        ("updatedAt 2027-03-23T11:24:00Z", None),
        ("`--at 2027-03-23 11:24 CET` <b>", None),
    ],
)
def test_times_in_sentences_follow_the_switch_of_the_zone(text: str, shown: str | None) -> None:
    html = prose(text, BERLIN, near=datetime(2027, 3, 23, 5, tzinfo=UTC))

    assert re.findall(r'<time datetime="([^"]+)">', html) == ([shown] if shown else [])
    assert unescape(re.sub(r"</?(time|code)[^>]*>", "", html)) == text.replace("`", "")
