"""What lists cost, as a shape and not as a time: work between two turns of the loop, rows rendered, reads at once."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from datetime import datetime, timedelta

import httpx
import pytest
from fastapi import routing
from markupsafe import Markup

from tests.support.builders.cli_runs import key_of
from tests.support.clock.manual import ManualClock
from tests.support.fakes.counting_tables import CountingTables
from tests.support.worlds.console import MORNING, ConsoleWorld, a_console_world
from tests.support.worlds.web import BASE, VIEWER, bearer, rules
from worker.app.web import NoWorker
from worker.core.model.ids import PipelineId
from worker.core.run.state import Outcome, Run, State
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import ACTIVE, LISTS, Between, Index, Page, Prefix, TableName
from worker.telemetry.meters import Meters
from worker.web.api.application import make_api, warm_up
from worker.web.console.rendering import CHARS_PER_STEP, PARTS_PER_STEP, page_response, rendered_text
from worker.web.console.row_texts import RowTexts
from worker.web.guard import Guard
from worker.web.health import HealthPages
from worker.web.live.fanout import NAMES_MAX, Fanout
from worker.web.live.mirror import Mirror, MirrorChanges
from worker.web.live.shared_results import SharedResults
from worker.web.live.slices import PORTION, Slices
from worker.web.live.source import LATER_READS_AT_ONCE, READS_AT_ONCE, ROWS_AT_ONCE, MirrorReader

PIPELINES = 130
CONFIG = """\
pipeline: {{id: {name}, owner: team}}
schedule: {{trigger: {{key: ready, check: exists}}}}
validation: {{rules: [{{key: ready, check: exists}}]}}
job: {{type: command, config: {{command: load}}}}
"""


class TickingClock(ManualClock):
    """A clock on which every look takes a millisecond: a slice is over after four or five looks."""

    def monotonic(self) -> float:
        self.advance(timedelta(milliseconds=1))
        return super().monotonic()


class Turns:
    """Counts how often the loop had a turn for others."""

    def __init__(self) -> None:
        self.count = 0

    async def watch(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@pytest.fixture
async def turns() -> AsyncGenerator[Turns]:
    made = Turns()
    watching = asyncio.create_task(made.watch())
    await asyncio.sleep(0)
    yield made
    watching.cancel()


# --- steps ------------------------------------------------------------------------------------------------------------


async def test_long_work_gives_others_their_turn_after_some_items(turns: Turns) -> None:
    slices, handled, most, last = Slices(TickingClock()), 0, 0, turns.count
    async for portion in slices.portions(range(10_000)):
        if turns.count != last:
            handled, last = 0, turns.count
        handled += len(portion)
        most = max(most, handled)

    assert most <= 5 * PORTION


async def test_a_page_is_rendered_and_compressed_in_steps(turns: Turns) -> None:
    at_turn: dict[int, int] = {}

    def parts() -> list[str]:
        return [f"<p>{number}</p>" for number in range(2_000)]

    def watched() -> Iterator[str]:
        for part in parts():
            at_turn[turns.count] = at_turn.get(turns.count, 0) + 1
            yield part

    text = await rendered_text(watched(), Slices(TickingClock()))
    assert text == "".join(parts())
    assert max(at_turn.values()) <= 5 * PARTS_PER_STEP

    before = turns.count
    response = await page_response(iter(["x" * CHARS_PER_STEP] * 40), 200, "gzip", Slices(TickingClock()))
    assert response.headers["content-encoding"] == "gzip"
    assert turns.count - before >= 40 // 5


# --- once for all viewers ---------------------------------------------------------------------------------------------


async def test_viewers_of_the_same_thing_share_its_making() -> None:
    shared: SharedResults[int] = SharedResults(2)
    begun = asyncio.Event()

    async def make() -> int:
        begun.set()
        await asyncio.sleep(0.01)
        return 7

    first = asyncio.create_task(shared.of("a", make))
    others = [asyncio.create_task(shared.of("a", make)) for _ in range(19)]
    await begun.wait()
    first.cancel()  # a viewer that goes away takes nothing from the others

    assert await asyncio.gather(*others) == [7] * 19
    assert shared.made == 1


async def test_a_failure_is_not_kept_and_few_results_are() -> None:
    shared: SharedResults[int] = SharedResults(2)

    async def fail() -> int:
        raise ValueError("no")

    async def make() -> int:
        return 1

    with pytest.raises(ValueError, match="no"):
        await shared.of("a", fail)
    assert await shared.of("a", make) == 1
    for key in ("b", "c", "a"):
        await shared.of(key, make)
    assert shared.made == 5  # the failure, a, b, c, and a again: only two are kept


def test_few_rows_are_kept() -> None:
    texts = RowTexts(rows_max=10)
    for number in range(100):
        texts.of(f"p{number}", 1, lambda: Markup("row"))
    texts.of("p99", 1, lambda: Markup("row"))
    texts.of("p0", 1, lambda: Markup("row"))

    assert texts.made == 101


async def _fill(world: ConsoleWorld) -> list[str]:
    names = [f"p-{number:04d}" for number in range(PIPELINES)]
    for name in names:
        await Pipelines(world.tables).put(PipelineId(name), CONFIG.format(name=name))
        await Runs(world.tables).save(_run(name, "2027-03-21", MORNING - timedelta(hours=26)))
    return names


def _run(name: str, period: str, at: datetime, state: State = State.COMPLETED) -> Run:
    return Run(
        key=key_of(period, name),
        run_id=f"{name}-{period}",
        config_hash="h",
        state=state,
        outcome=Outcome.SUCCEEDED if state is State.COMPLETED else None,
        created_at=at,
        started_at=at,
        since=at,
        timeout_at=at + timedelta(hours=4),
    )


async def test_a_second_view_of_a_list_renders_only_rows_that_changed() -> None:
    async with a_console_world() as world:
        names = await _fill(world)
        await world.get("/pipelines")
        rendered = world.console.rows.made
        assert rendered == 100

        await world.get("/pipelines")
        assert world.console.rows.made == rendered

        await Runs(world.tables).save(_run(names[3], "2027-03-22", MORNING - timedelta(hours=2), State.EVALUATING))
        world.clock.advance(timedelta(seconds=61))
        world.console.rows.made = 0
        before = await world.get("/pipelines")
        assert "waiting" in before.text
        world.console.rows.made = 0
        await world.get("/frag/pipelines?ids=" + ",".join(names[:100]))
        assert world.console.rows.made == 0


# --- the mirror -------------------------------------------------------------------------------------------------------


class WatchedTables(CountingTables):
    """Notes how many queries are under way at once, and how many rows each asks for."""

    def __init__(self, tables: SqliteTables) -> None:
        super().__init__(tables)
        self.at_once = self.most = 0
        self.limits: set[int | None] = set()

    async def query(
        self,
        table: TableName,
        pk: str,
        *,
        sk: Prefix | Between | None = None,
        index: Index | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        if index in {ACTIVE, LISTS}:
            self.limits.add(limit)
        await asyncio.sleep(0)
        try:
            return await super().query(table, pk, sk=sk, index=index, reverse=reverse, limit=limit, cursor=cursor)
        finally:
            self.at_once -= 1


async def test_reading_the_mirror_leaves_the_store_to_others() -> None:
    clock = ManualClock(MORNING)
    tables = WatchedTables(SqliteTables.in_memory(clock))
    await tables.start()
    for day in range(1, 8):
        await Runs(tables).save(_run("p", f"2027-03-{day:02d}", MORNING - timedelta(days=day - 1)))
    mirror, firsts = Mirror(), list[int]()
    async for _ in MirrorReader(tables, clock).load(mirror):
        firsts.append(tables.most)
        tables.most = 0
    await tables.stop()

    assert len(mirror.ended) == 7
    assert firsts[0] == READS_AT_ONCE
    assert max(firsts[1:]) == LATER_READS_AT_ONCE
    assert tables.limits == {ROWS_AT_ONCE, 200}


# --- news -------------------------------------------------------------------------------------------------------------


def test_an_item_is_made_once_for_all_streams_and_names_few_of_many() -> None:
    fanout = Fanout("a")
    names: Sequence[str] = [f"p/s/{number}" for number in range(20_000)]

    fanout.publish(MirrorChanges(frozenset(names), frozenset()), {})

    [item], _ = fanout.since("a.0")
    assert item.many
    assert len(item.runs) <= NAMES_MAX
    assert list(item.runs) == sorted(item.runs)
    assert fanout.as_sent(item) is fanout.as_sent(item)


# --- the API ----------------------------------------------------------------------------------------------------------


async def test_no_request_builds_the_routes_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    """FastAPI builds them with the first request, in one step of the loop."""
    async with a_console_world() as world:
        api = make_api(world.console.context)
        warm_up(api)
        built: list[str] = []

        def build(**_: object) -> None:
            built.append("a route")

        monkeypatch.setattr(routing, "get_dependant", build)
        transport = httpx.ASGITransport(Guard(api, rules(), HealthPages(NoWorker(), Meters())))
        async with httpx.AsyncClient(transport=transport, base_url=BASE, headers=bearer(VIEWER)) as client:
            assert (await client.get("/api/v1/pipelines")).status_code == 200
            assert (await client.get("/api/v1/openapi.json")).json()["openapi"] == "3.1.0"
    assert built == []
