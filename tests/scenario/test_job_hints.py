"""Events that announce the ends of jobs: seen at once, harmless if they are wrong, and covered by the poll if lost."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from consumers.outbox.foreign_events import ForeignEvents
from consumers.outbox.job_events import HintReader, HintSender, JobEvents
from consumers.queues.queue import Message
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.engine import CONFIG, Worker, World, a_world, begin
from worker.core.errors import RetryLater
from worker.core.model.pipeline import JobType
from worker.core.run.state import Outcome, State
from worker.jobs.runner import StartAnswer, Started, StartRequest, Succeeded
from worker.runtime.json_bytes import to_json
from worker.store.repos.delivery.job_hints import JobHintRows
from worker.store.repos.events import Events
from worker.store.table import TableName, query_all
from worker.targets.job_hints import AGAIN_LONGEST_S, EARLY_S, MISSED_MAX, RARELY, JobHints

GROUP = "hinted"
HOURLY = CONFIG.replace("type: command", "type: glue").replace(
    'config: {command: "true", environment: {DAY: "${DATE}"}}', "config: {jobName: orders}"
)
RARE = HOURLY.replace("maxRetries: 1", "maxRetries: 1\n  pollIntervalSeconds: 3600")


class GlueTarget(FakeRunner):
    """A target whose jobs have the handles of Glue."""

    def accept(self, request: StartRequest) -> StartAnswer:
        super().accept(request)
        return Started({"id": request.token, "jobName": "orders", "runId": f"jr_{request.token}"})


@dataclass
class Hinted:
    """A world whose workers get the events of Glue."""

    world: World
    runner: GlueTarget
    numbers: list[int] = field(default_factory=lambda: [0])

    @property
    def hints(self) -> JobHints:
        return JobHints(frozenset({JobType.GLUE}), self.world.clock)

    @property
    def polls(self) -> int:
        return self.runner.calls["status"]

    def ends(self, state: str = "SUCCEEDED", *, token: str | None = None, retry: str = "") -> Message:
        """What Glue's event about the last job is in the queue."""
        run_id = f"jr_{token or self.runner.tokens[-1]}{retry}"
        return self.event({"jobName": "orders", "severity": "INFO", "state": state, "jobRunId": run_id, "message": ""})

    def event(self, detail: Mapping[str, Any], detail_type: str = "Glue Job State Change") -> Message:
        self.numbers[0] += 1
        body = {"version": "0", "id": f"e{self.numbers[0]}", "detail-type": detail_type, "source": "aws.glue"}
        text = to_json({**body, "time": "2026-03-03T12:00:00Z", "region": "eu-west-1", "detail": dict(detail)})
        return Message(
            id=f"m{self.numbers[0]}", handle="h", body=text.decode(), sent_at=NOON, receive_count=1, group=""
        )

    @asynccontextmanager
    async def consumer(self, hints: JobHints, name: str) -> AsyncGenerator[ForeignEvents]:
        """What a worker does with the events queue, besides its session."""
        rows = JobHintRows(self.world.tables, GROUP)
        sender = HintSender(rows, name, self.world.clock)
        tasks = [
            asyncio.get_running_loop().create_task(work())
            for work in (sender.run, HintReader(rows, hints, self.world.clock, name).run)
        ]
        try:
            yield ForeignEvents(Events(self.world.tables), JobEvents(hints, sender.send))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def a_hinted_world() -> Hinted:
    world, runner = await a_world(), GlueTarget()
    world.runner = runner
    return Hinted(world, runner)


@asynccontextmanager
async def a_running_job(config: str = RARE) -> AsyncGenerator[tuple[Hinted, ForeignEvents, Worker]]:
    """One worker that holds a run whose job runs, and receives events."""
    hinted = await a_hinted_world()
    hints = hinted.hints
    async with hinted.consumer(hints, "w1") as events, hinted.world.worker(hints=hints) as worker:
        await begin(hinted.world, config)
        await hinted.world.settle()
        assert await hinted.world.state() is State.POLLING
        yield hinted, events, worker


async def seen(world: World) -> tuple[Any, ...]:
    """All that is recorded."""
    return await world.run(), await world.events(), len(await world.job_log())


async def rows_of_hints(world: World) -> list[Any]:
    return [row async for row in query_all(world.tables, TableName.CONTROL, f"HINTS#{GROUP}")]


@on_virtual_time
async def test_an_announced_end_is_recorded_within_a_second_although_polls_are_an_hour_apart() -> None:
    async with a_running_job() as (hinted, events, _):
        await hinted.world.wait(minutes=10)
        hinted.runner.finish()
        polls = hinted.polls

        await events.handle(hinted.ends())
        await hinted.world.wait(seconds=1)

        run = await hinted.world.run()
        assert run is not None
        assert run.outcome is Outcome.SUCCEEDED
        assert hinted.polls == polls + 1
        assert not await rows_of_hints(hinted.world)  # no other worker could hold the run
        assert [event.event.type async for event in _glue_events(hinted.world)] == []


async def _glue_events(world: World) -> AsyncGenerator[Any]:
    start, end = NOON - timedelta(days=1), NOON + timedelta(days=1)
    async for event in Events(world.tables).of_type("Glue Job State Change", start, end):
        yield event


@on_virtual_time
async def test_an_announced_failure_leads_to_the_retry_within_a_second() -> None:
    async with a_running_job() as (hinted, events, _):
        hinted.runner.fail()

        await events.handle(hinted.ends("FAILED"))
        await hinted.world.wait(seconds=1)

        assert "JOB_FAILED" in await hinted.world.events()


@on_virtual_time
async def test_the_end_of_a_retry_that_glue_makes_by_itself_is_a_hint_about_the_run() -> None:
    async with a_running_job() as (hinted, events, _):
        hinted.runner.finish()

        await events.handle(hinted.ends(retry="_attempt_1"))
        await hinted.world.wait(seconds=1)

        assert await hinted.world.state() is State.COMPLETED


@pytest.mark.parametrize(
    "detail",
    [
        {"state": "SUCCEEDED", "jobRunId": "jr_of_somebody_else", "jobName": "orders"},
        {"state": "SUCCEEDED", "jobName": "orders"},
        {"state": "SUCCEEDED", "jobRunId": 7},
        {"state": ["SUCCEEDED"], "jobRunId": {"a": "b"}},
        {},
    ],
)
@on_virtual_time
async def test_an_event_that_names_no_job_of_ours_changes_nothing(detail: dict[str, Any]) -> None:
    async with a_running_job() as (hinted, events, _):
        before, polls = await seen(hinted.world), hinted.polls

        await events.handle(hinted.event(detail))
        await hinted.world.wait(minutes=5)

        assert (await seen(hinted.world), hinted.polls) == (before, polls)


@on_virtual_time
async def test_a_forged_end_costs_one_poll_and_changes_nothing() -> None:
    async with a_running_job() as (hinted, events, _):
        before, polls = await seen(hinted.world), hinted.polls

        await events.handle(hinted.ends("FAILED"))
        await hinted.world.wait(seconds=5)

        assert (await seen(hinted.world), hinted.polls) == (before, polls + 1)


@on_virtual_time
async def test_an_event_about_a_job_that_runs_costs_no_poll() -> None:
    async with a_running_job() as (hinted, events, _):
        polls = hinted.polls

        await events.handle(hinted.ends("RUNNING"))
        await hinted.world.wait(seconds=5)

        assert hinted.polls == polls


@on_virtual_time
async def test_a_flood_of_repeated_events_is_bounded_and_the_last_one_still_counts() -> None:
    async with a_running_job() as (hinted, events, _):
        polls = hinted.polls
        for _ in range(100):  # 1,000 events within 100 s
            for _ in range(10):
                await events.handle(hinted.ends())
            await hinted.world.wait(seconds=1)
        assert hinted.polls - polls <= 8  # after 0, 1, 3, 7, 15, 31, 63 s, and then once a minute

        hinted.runner.finish()
        await events.handle(hinted.ends())
        await hinted.world.wait(seconds=AGAIN_LONGEST_S + 1)

        assert await hinted.world.state() is State.COMPLETED


@on_virtual_time
async def test_an_event_that_arrives_before_the_start_was_recorded_is_not_lost() -> None:
    hinted = await a_hinted_world()
    hints, hinted.runner.hangs = hinted.hints, asyncio.Event()
    async with hinted.consumer(hints, "w1") as events, hinted.world.worker(hints=hints):
        await begin(hinted.world, RARE)
        await hinted.world.settle()
        run = await hinted.world.run()
        assert run is not None
        assert run.state is State.TRIGGERING

        await events.handle(hinted.ends(token=run.token))
        await hinted.world.wait(seconds=EARLY_S / 10)
        hinted.runner.hangs.set()
        hinted.runner.hangs = None
        hinted.runner.at_once = Succeeded()
        await hinted.world.wait(seconds=1)

        assert await hinted.world.state() is State.COMPLETED


@on_virtual_time
async def test_a_late_event_about_an_earlier_attempt_does_not_touch_the_next_one() -> None:
    async with a_running_job() as (hinted, events, _):
        first = hinted.ends("FAILED")
        hinted.runner.fail()
        await events.handle(first)
        await hinted.world.wait(minutes=2)
        run = await hinted.world.run()
        assert run is not None
        assert (run.attempt, run.state) == (2, State.POLLING)
        before, polls = await seen(hinted.world), hinted.polls

        await events.handle(first)
        await hinted.world.wait(minutes=5)

        assert (await seen(hinted.world), hinted.polls) == (before, polls)


@on_virtual_time
async def test_an_event_that_another_worker_receives_reaches_the_worker_that_holds_the_run() -> None:
    hinted = await a_hinted_world()
    mine, others = hinted.hints, hinted.hints

    async with (
        hinted.consumer(mine, "w1"),
        hinted.consumer(others, "w2") as events,
        hinted.world.worker("w1", hints=mine, workers=lambda: 2),
        hinted.world.worker("w2", hints=others, workers=lambda: 2, reads_feed=False),
    ):
        await begin(hinted.world, RARE)
        await hinted.world.wait(minutes=10)
        assert (len(mine), len(others)) == (1, 0)
        hinted.runner.finish()

        await events.handle(hinted.ends())
        await hinted.world.wait(seconds=1)

        assert await hinted.world.state() is State.COMPLETED


@on_virtual_time
async def test_a_flood_of_events_about_jobs_of_others_costs_two_writes_a_second_and_no_lost_hint() -> None:
    hinted = await a_hinted_world()
    mine, others = hinted.hints, hinted.hints
    async with (
        hinted.consumer(mine, "w1"),
        hinted.consumer(others, "w2") as events,
        hinted.world.worker("w1", hints=mine, workers=lambda: 2),
        hinted.world.worker("w2", hints=others, workers=lambda: 2, reads_feed=False),
    ):
        await begin(hinted.world, RARE)
        await hinted.world.settle()
        hinted.runner.finish()
        before = await hinted.world.tables.last_position()

        async with asyncio.TaskGroup() as tasks:
            for number in range(500):
                tasks.create_task(events.handle(hinted.ends(token=f"other{number}")))
            tasks.create_task(events.handle(hinted.ends()))
        written = await hinted.world.tables.last_position() - before
        await hinted.world.wait(seconds=1)

        assert written <= 2
        assert await hinted.world.state() is State.COMPLETED
        assert len(await rows_of_hints(hinted.world)) == 1


@on_virtual_time
async def test_a_hint_that_cannot_be_passed_on_is_delivered_again() -> None:
    hinted = await a_hinted_world()
    hints = hinted.hints

    class Down(JobHintRows):
        async def put(self, shared: object, now: object) -> None:
            raise RetryLater("the store is away")

    sender = HintSender(Down(hinted.world.tables, GROUP), "w1", hinted.world.clock)
    task = asyncio.get_running_loop().create_task(sender.run())
    handler = ForeignEvents(Events(hinted.world.tables), JobEvents(hints, sender.send))

    with pytest.raises(RetryLater, match="away"):
        await handler.handle(hinted.ends(token="unknown"))

    task.cancel()
    await asyncio.wait([task])


@on_virtual_time
async def test_a_job_whose_end_is_announced_is_polled_rarely() -> None:
    async with a_running_job(HOURLY) as (hinted, _, _):
        polls = hinted.polls

        await hinted.world.wait(minutes=59)

        assert hinted.polls - polls <= timedelta(minutes=60) // RARELY


@on_virtual_time
async def test_the_rare_poll_covers_an_event_that_is_lost() -> None:
    async with a_running_job(HOURLY) as (hinted, _, _):
        hinted.runner.finish()

        await hinted.world.wait(seconds=RARELY.total_seconds())

        assert await hinted.world.state() is State.COMPLETED


@on_virtual_time
async def test_a_poll_that_fails_after_its_hint_is_repeated_at_the_interval_of_the_pipeline() -> None:
    async with a_running_job(HOURLY) as (hinted, events, _):
        hinted.runner.finish()
        hinted.runner.is_unreachable = True
        await events.handle(hinted.ends())
        await hinted.world.wait(seconds=2)
        hinted.runner.is_unreachable = False

        await hinted.world.wait(seconds=61)

        assert await hinted.world.state() is State.COMPLETED


@on_virtual_time
async def test_if_no_events_arrive_jobs_are_polled_at_their_own_interval_again() -> None:
    async with a_running_job(HOURLY) as (hinted, events, worker):
        for day in ("2026-03-02", "2026-03-01", "2026-02-28")[:MISSED_MAX]:
            await hinted.world.wait(minutes=2)
            hinted.runner.finish()
            await hinted.world.wait(seconds=RARELY.total_seconds())
            await hinted.world.count(100, day)
            await hinted.world.ready(day)
            await hinted.world.settle()
            assert await hinted.world.state(day) is State.POLLING
        assert ("hints.missed", {"type": "glue", "ends": MISSED_MAX}) in worker.log
        polls = hinted.polls

        await hinted.world.wait(minutes=5)
        assert hinted.polls - polls >= 3  # a job that takes 15 minutes is polled every 90 s

        await events.handle(hinted.ends("FAILED"))  # one arrives after all
        assert ("hints.returned", {"type": "glue"}) in worker.log


@on_virtual_time
async def test_an_adopted_job_is_polled_at_once_if_its_end_was_announced_meanwhile() -> None:
    hinted = await a_hinted_world()
    first, second = hinted.hints, hinted.hints
    async with hinted.consumer(second, "w2") as events:
        async with hinted.world.worker("w1", hints=first):
            await begin(hinted.world, RARE)
            await hinted.world.settle()
        hinted.runner.finish()
        async with hinted.world.worker("w2", hints=second) as worker:
            await events.handle(hinted.ends())

            await hinted.world.adopt_orphans(worker)
            await hinted.world.wait(seconds=1)

            assert await hinted.world.state() is State.COMPLETED


@on_virtual_time
async def test_without_the_setting_the_events_are_stored_as_those_of_any_other_system() -> None:
    world = await a_world()
    hinted = Hinted(world, GlueTarget())

    await ForeignEvents(Events(world.tables)).handle(hinted.ends(token="a"))

    assert len([event async for event in _glue_events(world)]) == 1
