"""Whatever goes wrong at whatever point of a run's life, it comes to the same: the jobs, the events, the budgets.

CHAOS_ROUNDS asks for every peril at every point, in place of those that `struck_points` chooses, and for SQLite.
"""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Final

import pytest

from tests.support.clock.virtual_time import Host, VirtualClock, run
from tests.support.worlds.crash_points import (
    ORDERS_TO_TARGET,
    PERILS,
    Course,
    Fate,
    OutsideJob,
    Peril,
    PerilousTables,
    Plan,
    PlannedTarget,
    perils_of,
)
from tests.support.worlds.engine import (
    CONFIG,
    ORDERS,
    TablesWithFeed,
    Worker,
    World,
    a_world,
    run_key,
    store_in_memory,
)
from worker.core.model import keys
from worker.core.model.events import JobEvent
from worker.core.model.keys import SessionId
from worker.core.run.state import Outcome, Run, Spent, State
from worker.core.sla.state import Verdict
from worker.jobs.runner import Guarantee
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Tables

JUDGED_DEAD_AFTER_S: Final = 7.0
TICK_S: Final = 0.5  # how soon a worker that lost its session notices, once it runs again
PASS_EVERY_S: Final = 60.0  # over the buckets
PATIENCE: Final = timedelta(hours=3)  # for one step of a life, after which the test gives up
# Those of the run and its deadline; the others are empty, and reading them takes most of the time.
BUCKETS: Final = frozenset(
    keys.bucket(f"{keys.pipeline_pk(ORDERS)}|{sk(run_key())}", keys.ACTIVE_BUCKETS)
    for sk in (keys.trigger_sk, keys.sla_sk)
)
# How much longer than undisturbed a life may take: death noticed, adopted, its start looked for, sent again, polled.
DELAY_MAX: Final = timedelta(minutes=15)
# Of the writes, and of the calls that change nothing, one in so many. All of them take three minutes.
EVERY: Final = 1 if int(os.environ.get("CHAOS_ROUNDS", "0")) else 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """A run that fails, is retried, ends well, drifts, and runs once more, under a deadline.

    `is_steered`: in place of the failure, a person cancels it, wants it after all, and then wants it anew.
    `is_overtaken`: in place of the failure and of the later drift, its data changes while the first job runs.
    `is_begun_by_hand`: no failure, and in place of its sensor a person starts it.
    """

    plans: dict[int, Plan]
    deadline: str = "sla: {maxDuration: 90m, expectedDuration: 50m}\n"
    verdict: Verdict = Verdict.MET
    guarantee: Guarantee = Guarantee.FOUND_AGAIN
    has_search: bool = True
    unanswered: int = 0
    is_steered: bool = False
    is_overtaken: bool = False
    is_begun_by_hand: bool = False
    is_told_again: bool = True  # after each end, every record up to then is delivered again

    @property
    def spent(self) -> Spent:
        if self.is_overtaken or self.is_begun_by_hand:
            return Spent(drift=1)
        return Spent(manual=2, drift=1) if self.is_steered else Spent(transient=1, drift=1)

    @property
    def reruns(self) -> list[tuple[int, str]]:
        if self.is_overtaken:
            return [(0, "late-data")]
        if self.is_begun_by_hand:
            return [(0, "data-drift")]
        reasons = ["manual", "manual"] if self.is_steered else ["job-fail-retry"]
        return list(enumerate([*reasons, "data-drift"]))

    @property
    def config(self) -> str:
        job = "maxRetries: 1\n  maxManualReruns: 2\n  pollIntervalSeconds: 600\n  jobPollWindowSeconds: 3000\n"
        post_run = (
            "postRun:\n  driftField: rows\n  driftThreshold: 10\n"
            "  rules:\n    - {key: count, check: gte, field: rows, value: 100}\n"
        )
        return CONFIG.replace("maxRetries: 1\n", job) + post_run + self.deadline


SHORT, LONG = timedelta(minutes=4), timedelta(minutes=45)
ENDLESS = timedelta(days=1)
FAILING: Final = {1: Plan(SHORT, fails=True), 2: Plan(LONG), 3: Plan(SHORT)}
LIVES: Final = {
    "in time": Life(plans=FAILING),
    "too late, after a stop": Life(
        plans={1: Plan(ENDLESS), 2: Plan(SHORT), 3: Plan(SHORT)},
        deadline="sla: {maxDuration: 40m, expectedDuration: 20m}\n",
        verdict=Verdict.BREACHED,
    ),
    "with starts that are not answered": Life(plans=FAILING, unanswered=2),
    "on a target that knows its tokens": Life(plans=FAILING, guarantee=Guarantee.EXACTLY_ONCE, unanswered=1),
    "on a target without a search": Life(
        plans=FAILING, guarantee=Guarantee.EXACTLY_ONCE, has_search=False, unanswered=1
    ),
    "under the hands of a person": Life(
        plans={1: Plan(ENDLESS), 2: Plan(ENDLESS), 3: Plan(LONG), 4: Plan(SHORT)}, is_steered=True
    ),
    "with data that changes under the job": Life(plans={1: Plan(LONG), 2: Plan(SHORT)}, is_overtaken=True),
    "begun by a person": Life(plans={1: Plan(LONG), 2: Plan(SHORT)}, is_begun_by_hand=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What a life comes to. Delays are not in it, nor how often a start had to be looked for."""

    state: State
    outcome: Outcome | None
    attempts_started: list[int]  # at the target
    spent: Spent
    events: list[str]
    verdict: Verdict | None
    reruns: list[tuple[int, str]]
    job_log: list[tuple[str, int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    points: list[str]
    story: Story
    jobs: list[OutsideJob]
    took: timedelta
    written_afterwards: int  # changes of rows, once everything was delivered again


class Stage:
    """The workers of one life: the first, which a peril may strike, and the second, which takes over from it."""

    def __init__(self, world: World, course: Course) -> None:
        self.world, self.course = world, course
        self.workers: list[Worker] = []
        self._programs: list[asyncio.Task[None]] = []

    def start_worker(self, name: str) -> Host:
        host = Host(name)
        self._programs.append(host.start(self._serve(name)))
        return host

    async def _serve(self, name: str) -> None:
        async with self.world.worker(name) as worker:
            self.workers.append(worker)
            while True:
                if len(self.workers) > 1:  # before, there is nobody to adopt from
                    await self.world.adopt_orphans(worker, BUCKETS)
                await self.world.clock.sleep(PASS_EVERY_S)

    async def watch_over(self, first: Host) -> None:
        """Do what the group does about a worker that is struck: end its session, and let another take over."""
        await self.course.struck.wait()
        peril = self.course.peril
        if peril is None or peril.fate is Fate.LIVES:
            return
        await self.world.clock.sleep(JUDGED_DEAD_AFTER_S)
        self.world.group[SessionId(first.name)] = self.workers[0].standing.is_alive = False
        self.start_worker("w2")
        if peril.fate is not Fate.DIES:
            await self.world.clock.sleep(peril.frozen_s - JUDGED_DEAD_AFTER_S)
            first.thaw()
            await self.world.clock.sleep(TICK_S)
            first.crash()

    def check(self) -> None:
        """A worker ends by being killed only."""
        for program in self._programs:
            if program.done():
                program.result()


async def live(
    life: Life,
    peril: Peril | None,
    at: int | None,
    make: Callable[[VirtualClock], TablesWithFeed] = store_in_memory,
    wrap: Callable[[Tables, Course], Tables] = PerilousTables,
) -> Lived:
    course = Course(peril, at)
    world = await a_world(lambda tables: wrap(tables, course), make=make)
    target = PlannedTarget(
        clock=world.clock,
        course=course,
        plans=life.plans,
        guarantee=life.guarantee,
        is_found_by_sending=not life.has_search,
        unanswered=life.unanswered,
    )
    world.runner = target
    stage = Stage(world, course)
    course.victim = stage.start_worker("w1")
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(stage.watch_over(course.victim))
        ended = await _play(world, life)
        if not course.struck.is_set():
            watching.cancel()
    await world.settle()
    stage.check()
    took, story = timedelta(seconds=world.clock.monotonic()), await _story(world, target, ended)
    return Lived(
        points=course.points,
        story=story,
        jobs=target.accepted,
        took=took,
        written_afterwards=await _written_by_repeats(world, stage.workers[-1]),
    )


async def _play(world: World, life: Life) -> Run:
    """What the producers do: data for a first run, once it has succeeded other data, and at last hardly other data."""
    await world.deploy(life.config)
    await (world.ask_trigger() if life.is_begun_by_hand else world.ready())
    await world.settle()
    await world.count(100)
    if life.is_steered:
        await _steer(world, life)
    if life.is_overtaken:
        await _until(world, lambda run: run.state is State.POLLING)
        await world.ready(note="corrected")
    else:
        await _until(world, lambda run: run.state is State.COMPLETED)
    await _deliver_again(world, life)
    await world.count(150)
    await _until(world, lambda run: run.state is State.COMPLETED and run.attempt == len(life.plans))
    await _deliver_again(world, life)
    await world.count(155)
    return await _until(world, lambda run: bool(run.post_run_seen))


async def _steer(world: World, life: Life) -> None:
    await _until(world, lambda run: run.state is State.POLLING)
    await world.ask_cancel()
    await _until(world, lambda run: run.outcome is Outcome.CANCELLED)
    await _deliver_again(world, life)
    await world.ask_rerun()
    await _until(world, lambda run: run.state is State.POLLING)
    await world.ask_rerun(supersede=True)
    await _until(world, lambda run: run.attempt == 3)


async def _deliver_again(world: World, life: Life) -> None:
    """Have whoever reads the feed begin anew, with news that are nobody's business."""
    if life.is_told_again:
        world.read_to.clear()
    await world.write("weather", sky="blue")
    await world.settle()


async def _until(world: World, is_so: Callable[[Run], bool]) -> Run:
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while True:
            news, found = world.tables.listen(), await world.run()
            if found is not None and is_so(found):
                return found
            await news.wait()


async def _story(world: World, target: PlannedTarget, ended: Run) -> Story:
    watch = await world.watch()
    return Story(
        state=ended.state,
        outcome=ended.outcome,
        attempts_started=[job.attempt for job in target.accepted],
        spent=ended.spent,
        events=await world.events(),
        verdict=watch.verdict if watch else None,
        reruns=[(rerun.number, rerun.reason) for rerun in await world.reruns()],
        job_log=[
            (line.event, line.attempt)
            for line in await world.job_log()
            if line.event != JobEvent.INFRA_TRIGGER_FAILURE  # how a start was looked for is told there, and may be
        ],
    )


async def _written_by_repeats(world: World, worker: Worker) -> int:
    """Deliver every record again, look at everything again, and let an hour pass."""
    before = await world.tables.last_position()
    world.read_to.clear()
    await world.drain(worker)
    await worker.parts.resync.run(ORDERS)
    await world.wait(hours=1)
    return await world.tables.last_position() - before


@cache
def undisturbed(name: str) -> Lived:
    return run(live(LIVES[name], None, None))


def points_of(name: str, peril: str) -> list[int]:
    return [at for at, point in enumerate(undisturbed(name).points) if peril in perils_of(point)]


@cache
def rare_points() -> frozenset[str]:
    """Those that all lives together do not meet often enough for a part of them to be enough."""
    met = Counter(point for name in LIVES for point in undisturbed(name).points)
    return frozenset(point for point, times in met.items() if times <= 2 * EVERY)


def struck_points(name: str, peril: str) -> list[int]:
    """Every start and stop and every rare point, and a part of the others: another for each peril, and in each life.

    So each point of each life is struck by something, and each peril strikes at every kind of point.
    """
    first = list(LIVES).index(name) + list(PERILS).index(peril)
    points, always = undisturbed(name).points, ORDERS_TO_TARGET | rare_points()
    met, struck = Counter[str](), list[int]()
    for at in points_of(name, peril):
        # Each kind has a count of its own: a life is regular, and one count for all could always miss the same kind.
        if points[at] in always or (first + met[points[at]]) % EVERY == 0:
            struck.append(at)
        met[points[at]] += 1
    return struck


def overlapping(jobs: list[OutsideJob]) -> list[tuple[OutsideJob, OutsideJob]]:
    return [(one, later) for one, later in itertools.combinations(jobs, 2) if later.began_at < one.ends_at]


@pytest.mark.parametrize("name", LIVES)
def test_an_undisturbed_life_has_everything_in_it_that_can_be_disturbed(name: str) -> None:
    calm, life = undisturbed(name), LIVES[name]

    assert replace(calm.story, events=[], job_log=[]) == Story(
        state=State.COMPLETED,
        outcome=Outcome.SUCCEEDED,
        attempts_started=list(life.plans),
        spent=life.spent,
        events=[],
        verdict=life.verdict,
        reruns=life.reruns,
        job_log=[],
    )
    assert calm.story.events.count("TRIGGER_ACCEPTED") == life.is_begun_by_hand
    assert {"RELATIVE_SLA_WARNING", "POST_RUN_DRIFT", "RERUN_ACCEPTED", "POST_RUN_PASSED"} <= set(calm.story.events)
    assert overlapping(calm.jobs) == []
    assert calm.written_afterwards == 0


@pytest.mark.parametrize("name", LIVES)
def test_an_undisturbed_life_is_the_same_on_the_shipped_store(name: str) -> None:
    assert run(live(LIVES[name], None, None, SqliteTables.in_memory)) == undisturbed(name)


@pytest.mark.parametrize("name", LIVES)
def test_a_life_comes_to_the_same_if_each_record_is_delivered_once(name: str) -> None:
    once = run(live(replace(LIVES[name], is_told_again=False), None, None))

    assert once.story == undisturbed(name).story


@pytest.mark.parametrize("name", LIVES)
def test_no_point_of_a_life_is_left_out(name: str) -> None:
    assert {at for peril in PERILS for at in struck_points(name, peril)} == set(range(len(undisturbed(name).points)))


def test_each_peril_strikes_at_every_kind_of_point() -> None:
    for peril in PERILS:
        struck = {undisturbed(name).points[at] for name in LIVES for at in struck_points(name, peril)}
        assert struck == {undisturbed(name).points[at] for name in LIVES for at in points_of(name, peril)}


@pytest.mark.parametrize("peril", PERILS)
@pytest.mark.parametrize("name", LIVES)
def test_a_life_comes_to_the_same_at_whichever_point_it_is_struck(name: str, peril: str) -> None:
    calm, points = undisturbed(name), struck_points(name, peril)
    assert points
    for at in points:
        assert_comes_to_the_same(run(live(LIVES[name], PERILS[peril], at)), calm, at)


def assert_comes_to_the_same(lived: Lived, calm: Lived, at: int) -> None:
    where = f"point {at}, {calm.points[at]}"

    assert lived.points[: at + 1] == calm.points[: at + 1], f"{where}: the life was another before it"
    assert lived.story == calm.story, where
    assert len({job.token for job in lived.jobs}) == len(lived.jobs), where
    assert overlapping(lived.jobs) == [], where
    assert lived.took <= calm.took + DELAY_MAX, where
    assert lived.written_afterwards == 0, where
