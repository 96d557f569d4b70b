"""A query of runs finds exactly what a naive filter over all of them finds, whatever happened, page by page."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.simulation.memory_tables import MemoryTables
from tests.support.clock.manual import NOON, ManualClock
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Outcome, Run, State, status_word
from worker.core.sla.state import SlaWatch, Verdict
from worker.core.time.periods import Period
from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.run_query import RunQueries
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches

PIPELINES = ("orders-daily", "orders-hourly", "refunds", "stock")
OWNERS = ("", "commerce", "finance")
REASONS = ("", "Timeout: no answer", "timeout", "exit code 3")
ENDED = (State.COMPLETED, State.FAILED_FINAL)
ACTIVE = (State.EVALUATING, State.TRIGGERING, State.POLLING, State.STOPPING)
# Around midnight and a week back: the lists are by day.
AGES = tuple(
    timedelta(**age)
    for age in (
        {"seconds": 0},
        {"milliseconds": 1},
        {"hours": 11, "minutes": 59, "seconds": 59, "milliseconds": 999},
        {"hours": 12},
        {"hours": 12, "milliseconds": 1},
        {"days": 1},
        {"days": 3, "hours": 2},
        {"days": 6, "hours": 12},
        {"days": 7},
        {"days": 7, "milliseconds": 1},
        {"days": 40},
    )
)


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[Run, Verdict | None]]:
    names = draw(st.lists(st.tuples(st.sampled_from(PIPELINES), st.integers(1, 9)), unique=True, max_size=24))
    return [_run(draw, pipeline, day) for pipeline, day in names]


def _run(draw: st.DrawFn, pipeline: str, day: int) -> tuple[Run, Verdict | None]:
    period = Period.parse(f"2026-02-{day:02d}")
    assert period is not None
    state = draw(st.sampled_from((*ENDED, *ENDED, *ACTIVE)))
    failures = [each for each in Outcome if each is not Outcome.SUCCEEDED]
    outcome = {State.COMPLETED: Outcome.SUCCEEDED, State.FAILED_FINAL: draw(st.sampled_from(failures))}.get(state)
    since = NOON - draw(st.sampled_from(AGES))
    run = Run(
        key=RunKey(PipelineId(pipeline), ScheduleId("cron"), period),
        run_id=f"{pipeline}-{day}",
        state=state,
        config_hash="c1",
        created_at=since - timedelta(hours=1),
        since=since,
        timeout_at=since + timedelta(hours=3),
        outcome=outcome,
        reason=draw(st.sampled_from(REASONS)),
        pipeline_owner=draw(st.sampled_from(OWNERS)),
    )
    return run, draw(st.sampled_from((None, *Verdict)))


FILTERS = st.builds(
    RunFilter,
    statuses=st.lists(
        st.sampled_from(("failed", "completed", "cancelled", "active", "ended", "waiting", "FAILED_FINAL", "POLLING")),
        max_size=2,
    ).map(tuple),
    outcomes=st.lists(st.sampled_from(("failed", "cancelled", "succeeded", "timed-out")), max_size=2).map(tuple),
    pipeline=st.sampled_from(("", "", "orders-*", "refunds", "nothing")),
    owner=st.sampled_from(("", "", "commerce")),
    since=st.sampled_from(("41d", "7d", "1w", "12h", "2026-03-02")),
    until=st.sampled_from(("", "", "1d", "2026-03-03")),
    error=st.sampled_from(("", "", "timeout")),
    deadline=st.sampled_from(("", "", "breached", "open")),
)


def naive(wanted: RunFilter, history: Sequence[tuple[Run, Verdict | None]]) -> set[str]:
    """What the filter means, in one expression a run, without an index."""
    starts = {"41d": NOON - timedelta(days=41), "7d": NOON - timedelta(days=7), "1w": NOON - timedelta(days=7)}
    starts |= {"12h": NOON - timedelta(hours=12), "2026-03-02": datetime.fromisoformat("2026-03-02T00:00:00Z")}
    ends = {"": NOON + timedelta(minutes=5), "1d": NOON - timedelta(days=1)}
    ends |= {"2026-03-03": datetime.fromisoformat("2026-03-03T00:00:00Z")}
    words = {
        "active": {"waiting", "starting", "running", "stopping"},
        "ended": {"completed", "failed", "cancelled"},
        "FAILED_FINAL": {"failed", "cancelled"},
        "POLLING": {"running"},
    }
    named = {"orders-*": {"orders-daily", "orders-hourly"}, "refunds": {"refunds"}, "nothing": set[str]()}
    allowed = {word for status in wanted.statuses for word in words.get(status, {status})}
    return {
        run.run_id
        for run, verdict in history
        if (not wanted.statuses or status_word(run) in allowed)
        and (not wanted.outcomes or (run.outcome is not None and run.outcome.value in wanted.outcomes))
        and (not wanted.pipeline or run.key.pipeline in named[wanted.pipeline])
        and (not wanted.owner or run.pipeline_owner == wanted.owner)
        and run.since < ends[wanted.until]
        and (not run.is_ended or run.since >= starts[wanted.since])
        and run.reason.lower().startswith(wanted.error)
        and (not wanted.deadline or (verdict is Verdict.BREACHED if wanted.deadline == "breached" else verdict is None))
    }


async def stored(history: Sequence[tuple[Run, Verdict | None]]) -> MemoryTables:
    tables = MemoryTables(ManualClock())
    for run, verdict in history:
        await Runs(tables).save(run)
        watch = SlaWatch(key=run.key, config_hash="c1", since=run.since, breach_at=NOON, warning_at=None)
        await SlaWatches(tables).save(
            SlaWatch(key=run.key, config_hash="c1", since=run.since, breach_at=NOON, warning_at=None, verdict=verdict)
            if verdict
            else watch
        )
    return tables


async def pages(tables: MemoryTables, wanted: RunFilter, limit: int, examined_max: int) -> list[list[Run]]:
    queries, cursor, read = RunQueries(tables, examined_max=examined_max), None, list[list[Run]]()
    for number in range(2_000):
        # The clock goes on while somebody pages; the window of the first page stays.
        found = await queries.find(wanted, NOON + timedelta(minutes=number), limit=limit, cursor=cursor)
        assert len(found.runs) <= limit
        assert found.examined <= examined_max + limit
        read.append([run for run in found.runs if isinstance(run, Run)])
        cursor = found.next
        if cursor is None:
            return read
    raise AssertionError("the pages never end")


@given(history=runs(), wanted=FILTERS, limit=st.sampled_from((1, 2, 5, 100)), examined=st.sampled_from((70, 200, 2000)))
@settings(max_examples=80, deadline=None)
def test_pages_together_hold_what_a_naive_filter_finds_each_once(
    history: list[tuple[Run, Verdict | None]], wanted: RunFilter, limit: int, examined: int
) -> None:
    async def read() -> list[list[Run]]:
        return await pages(await stored(history), wanted, limit, examined)

    found = [run for page in asyncio.run(read()) for run in page]

    assert len(found) == len({run.run_id for run in found})
    assert {run.run_id for run in found} == naive(wanted, history)


@given(history=runs(), limit=st.sampled_from((1, 3, 100)))
@settings(max_examples=25, deadline=None)
def test_ended_runs_come_newest_first_after_the_active_ones(
    history: list[tuple[Run, Verdict | None]], limit: int
) -> None:
    async def read() -> list[list[Run]]:
        return await pages(await stored(history), RunFilter(since="41d"), limit, 2_000)

    found = [run for page in asyncio.run(read()) for run in page]

    active = [run for run in found if not run.is_ended]
    ended = found[len(active) :]
    assert all(run.is_ended for run in ended)
    for some in (active, ended):
        assert [run.since for run in some] == sorted((run.since for run in some), reverse=True)
