"""What a pass costs: it grows with what is due or active, and not with what is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from time import perf_counter

from scheduler.watchdog.checks.table import Watched
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import run
from tests.support.fakes.counting_tables import CountingTables
from tests.support.worlds.engine import World, a_world
from tests.support.worlds.watchdog import one_pass, pipeline_text, watch
from worker.config.load import load_text
from worker.config.versions import PipelineVersions, Version
from worker.core.model.keys import CONFIG, PIPELINES, RunKey, pipeline_pk
from worker.core.model.pipeline import Pipeline, PipelineId, ScheduleId
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.store.repos.pipelines import StoredConfig
from worker.store.repos.run_rows import run_to_row
from worker.store.table import LISTS, Put, TableName, Tables

ACTIVE = 100
PASSES = 10

# Every tenth is due each hour; most wait for data, with a deadline.
KINDS = (
    pipeline_text("p", '{cron: "30 * * * *", trigger: {key: ready, check: exists}}'),
    *[
        pipeline_text(
            "p",
            '{trigger: {key: ready, check: exists, deadline: "09:00"}}',
            more='sla: {deadline: "10:00", expectedDuration: 1h}',
        )
    ]
    * 5,
    *[pipeline_text("p", '{cron: "0 3 * * *"}', more='sla: {deadline: "06:00"}')] * 4,
)


class Prepared(PipelineVersions):
    """Configurations that were understood beforehand: reading ten thousand files is no part of a pass."""

    versions: Mapping[PipelineId, Version]

    async def in_force_of(self, stored: StoredConfig) -> Version | None:
        return self.versions.get(stored.pipeline)

    async def in_force(self, pipeline: PipelineId) -> Version | None:
        return self.versions.get(pipeline)


@dataclass(frozen=True)
class Cost:
    """Of one quiet pass, on average, and the seconds of one in which a tenth of all pipelines is due."""

    requests: float
    rows: float
    seconds: float
    busiest_s: float


def kinds() -> list[Pipeline]:
    loaded = [load_text(text, today=NOON.date()).pipeline for text in KINDS]
    return [pipeline for pipeline in loaded if pipeline is not None]


def versions(count: int) -> dict[PipelineId, Version]:
    known = kinds()
    names = [PipelineId(f"p{number:05d}") for number in range(count)]
    return {
        name: Version(replace(known[number % len(known)], id=name), f"{number % len(known)}")
        for number, name in enumerate(names)
    }


def listed(name: PipelineId) -> Put:
    """A deployed pipeline as lists find it; what it says was understood beforehand."""
    row = {"PK": pipeline_pk(name), "SK": CONFIG, "config": "{}", LISTS.partition: PIPELINES, LISTS.sort: name}
    return Put(TableName.CONTROL, row)


async def fill(world: World, names: list[PipelineId]) -> None:
    for name in names:
        await world.tables.commit(listed(name))
    for name in names[:ACTIVE]:
        standing = Run(
            key=RunKey(name, ScheduleId("cron"), Period(NOON.date())),
            run_id="r",
            version=1,
            state=State.POLLING,
            config_hash="0",
            created_at=NOON,
            since=NOON,
            window_ends_at=NOON + timedelta(days=2),
            timeout_at=NOON + timedelta(days=2),
            job={"id": "j"},
        )
        await world.tables.commit(Put(TableName.CONTROL, run_to_row(standing)))


async def measure(count: int) -> Cost:
    """The cost of a pass with so many pipelines, of which a hundred are active, over ten quiet minutes."""
    counters: list[CountingTables] = []

    def counting(tables: Tables) -> CountingTables:
        counters.append(CountingTables(tables))
        return counters[0]

    world = await a_world(counting)
    prepared = versions(count)
    await fill(world, list(prepared))
    configs = Prepared(world.tables)
    configs.versions = prepared
    async with world.worker(reads_feed=False, configs=configs) as worker:
        held = watch(world, worker, Watched())
        await one_pass(held.watchdog)  # fills the ledger
        counter, before, asked = counters[0], counters[0].rows.copy(), counters[0].requests
        began = perf_counter()
        for _ in range(PASSES):
            await world.clock.sleep(60)
            await one_pass(held.watchdog)
        spent = perf_counter() - began
        read, asked = counter.rows - before, counter.requests - asked
        await world.clock.sleep(timedelta(minutes=30).total_seconds())
        began = perf_counter()
        await one_pass(held.watchdog)
        busiest_s = perf_counter() - began
    return Cost(
        requests=asked / PASSES,
        rows=(read["read"] + read["written"]) / PASSES,
        seconds=spent / PASSES,
        busiest_s=busiest_s,
    )


def test_a_pass_costs_what_is_due_or_active_and_not_what_is_stored() -> None:
    few, many = run(measure(1000)), run(measure(10_000))
    print(f"1,000 pipelines: {few}; 10,000 pipelines: {many}")

    assert many.rows <= 3 * few.rows
    assert many.requests <= 3 * few.requests
    assert many.seconds < 10
    assert many.busiest_s < 10
