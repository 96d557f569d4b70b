"""The lineage of a pipeline: its drawing, its list, and how much it reads."""

import re
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.builders.cli_runs import key_of
from tests.support.worlds.console import AFTER, YESTERDAY, ConsoleWorld, a_console_world, fill_lineage, fill_store
from tests.unit.web.test_console import page
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Run
from worker.operations.pipelines.lineage import Lineage, LineageEdge, LineageNode, LineageRun
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.web.console.lineage_chart import BOX_HEIGHT, BOX_WIDTH, lineage_chart


@pytest.fixture
async def world() -> AsyncGenerator[ConsoleWorld]:
    async with a_console_world() as made:
        await fill_store(made.tables, days=3)
        await fill_lineage(made.tables)
        yield made


async def test_a_lineage_shows_two_steps_up_and_down_with_states(world: ConsoleWorld) -> None:
    shown = await page(world, f"/lineage/order-facts?period={YESTERDAY}")

    listed = shown[shown.index("Pipelines upstreams first") :]
    names = ["orders-daily", "customer-snapshot", "order-facts", "margin-report", "board-pack"]
    assert [name for name in names if name not in listed] == []
    assert "ledger-close" not in listed  # above a pipeline below it: not on the way
    assert re.search(r"orders-daily lineage of orders-daily ○ waiting 2027-03-22", listed)
    assert re.search(r"customer-snapshot lineage of customer-snapshot ◔ starting 2027-03-22", listed)
    assert re.search(r"board-pack .* margin-report", listed)


async def test_runs_below_are_found_whichever_upstream_is_on_the_page(world: ConsoleWorld) -> None:
    """The report runs after two pipelines, of which the first is not in this lineage."""
    shown = await page(world, f"/lineage/stock-facts?period={YESTERDAY}")

    assert re.search(r"margin-report lineage of margin-report · not started 2027-03-22 stock-facts", shown)
    assert re.search(r"board-pack lineage of board-pack · not started 2027-03-22 margin-report", shown)


async def test_without_a_period_the_newest_run_decides(world: ConsoleWorld) -> None:
    assert "runs that belong to 2027-03-21 the newest" in await page(world, "/lineage/order-facts")


async def test_without_declared_edges_those_of_cascades_are_shown_as_seen(world: ConsoleWorld) -> None:
    runs, name = Runs(world.tables), PipelineId("web-sessions")
    [run] = [each for each in await runs.of_schedule(name, ScheduleId("stream"), 1) if isinstance(each, Run)]
    await runs.save(replace(run, path=("raw-events", "clean-events")))

    shown = await page(world, "/lineage/web-sessions")

    assert re.search(rf"web-sessions clean-events seen 1 {run.key.period} clean-events raw-events seen 1", shown)
    assert 'href="/lineage/web-sessions"' in (await world.get("/pipelines/web-sessions")).text


async def test_the_pipeline_page_links_to_the_lineage_if_there_is_one(world: ConsoleWorld) -> None:
    await world.get("/pipelines")  # the list tells who runs after whom

    has_link = {
        name: f'href="/lineage/{name}"' in (await world.get(f"/pipelines/{name}")).text
        for name in ("order-facts", "orders-daily", "web-sessions")
    }

    assert has_link == {"order-facts": True, "orders-daily": True, "web-sessions": False}


async def test_a_pipeline_without_neighbours_and_one_that_does_not_exist_say_so(world: ConsoleWorld) -> None:
    assert "runs after no other pipeline" in await page(world, "/lineage/web-sessions")
    assert (await world.get("/lineage/nobody")).status_code == 404
    assert (await world.get("/lineage/order-facts?period=soon")).status_code == 400


async def test_an_upstream_that_does_not_exist_is_marked(world: ConsoleWorld) -> None:
    await Pipelines(world.tables).put(PipelineId("lost"), AFTER.format(name="lost", after="{pipeline: gone}"))

    assert "✕ does not exist" in await page(world, "/lineage/lost")


async def test_every_link_of_a_lineage_leads_somewhere(world: ConsoleWorld) -> None:
    response = await world.get(f"/lineage/margin-report?period={YESTERDAY}")

    links = set(re.findall(r'href="(/(?:lineage|pipelines|runs)/[^"#]+)', response.text))
    assert len(links) > 10
    for link in sorted(links):
        assert (await world.get(link)).status_code == 200, link


async def test_a_lineage_reads_in_proportion_to_what_it_shows(world: ConsoleWorld) -> None:
    path = f"/lineage/order-facts?period={YESTERDAY}"
    await world.get(path)
    world.clock.advance(timedelta(seconds=30))
    world.tables.requests = 0
    world.tables.rows.clear()

    await world.get(path)

    assert 0 < world.tables.requests <= 60
    assert world.tables.rows["read"] <= 60
    assert world.tables.rows["written"] == 0


async def test_the_pages_of_a_run_and_a_pipeline_say_which_upstreams_are_waited_for(world: ConsoleWorld) -> None:
    due = AFTER.format(name="due-facts", after="{pipeline: orders-daily}") + "sla: {deadline: '09:00'}\n"
    await Pipelines(world.tables).put(PipelineId("due-facts"), due)
    run = await page(world, f"/runs/order-facts/stream/{YESTERDAY}")
    pipeline = await page(world, "/pipelines/due-facts")

    assert f"waits for orders-daily {YESTERDAY}: {YESTERDAY} waiting" in run
    assert f"waits for customer-snapshot {YESTERDAY}: {YESTERDAY} starting" in run
    assert "when its upstreams are complete" in pipeline


# --- the drawing ------------------------------------------------------------------------------------------------------


def a_lineage(depths: dict[str, int], edges: list[tuple[str, str]], status: str = "") -> Lineage:
    return Lineage(
        nodes=tuple(
            LineageNode(
                pipeline=PipelineId(name),
                depth=depth,
                runs=(LineageRun(key=key_of(YESTERDAY, name), status=status),) if status else (),
            )
            for name, depth in depths.items()
        ),
        edges=tuple(
            LineageEdge(upstream=PipelineId(above), downstream=PipelineId(below), periods="same")
            for above, below in edges
        ),
    )


def test_boxes_are_in_columns_and_do_not_overlap() -> None:
    depths = {f"p{number:02d}": number % 5 for number in range(99)}
    edges = [(above, below) for above, below in pairwise(depths) if depths[above] < depths[below]]

    chart = lineage_chart(a_lineage(depths, edges), "p00")

    places = {(box.x, box.y) for box in chart.boxes}
    assert len(places) == 99
    assert {box.node.depth for box in chart.boxes if box.x == min(x for x, _ in places)} == {0}
    assert all(box.x >= 0 and box.x + BOX_WIDTH <= chart.width for box in chart.boxes)
    assert all(box.y >= 0 and box.y + BOX_HEIGHT <= chart.height for box in chart.boxes)
    assert len(chart.curves) == len(edges)


def test_a_pipeline_is_near_those_that_it_runs_after() -> None:
    chart = lineage_chart(a_lineage({"a": 0, "b": 0, "x": 1, "y": 1}, [("b", "x"), ("a", "y")]), "a")

    rows = {str(box.node.pipeline): box.y for box in chart.boxes}
    assert rows["y"] == rows["a"] < rows["x"] == rows["b"]


def test_a_long_name_is_cut_and_nothing_gives_nothing() -> None:
    [box] = lineage_chart(a_lineage({"n" * 200: 0}, [], "completed"), "x").boxes

    assert len(box.name) <= 25
    assert (box.word, box.text) == ("completed", "completed")
    assert lineage_chart(Lineage(), "x").width == 0
