"""Events about no run: one thread for each incident, closed by its recovery, and a new one the next time."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random

import pytest

from consumers.alerts.pace import APART_MAX
from consumers.alerts.text import thread_of
from consumers.outbox.incidents import QUIET
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import on_virtual_time, run
from tests.support.fakes.slack import Said
from tests.support.worlds.alerts import AlertsWorld, an_event
from worker.core.model.events import Event, EventType
from worker.core.model.values import Json

MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Kind:
    """How an incident of some kind is told of, and how its end is."""

    trouble: str
    recovery: str
    pipeline: str = ""

    def event(
        self, event_id: str, *, after: timedelta = timedelta(), name: str = "one", is_over: bool = False
    ) -> Event:
        pipeline = f"{self.pipeline}-{name}" if self.trouble == EventType.CONFIG_REJECTED else self.pipeline
        detail: dict[str, Json] = {
            "alarmName": name,
            "checks": [name],
            "source": name,
            "state": {"value": "OK" if is_over else "ALARM"},
        }
        return Event(
            id=event_id,
            type=self.recovery if is_over else self.trouble,
            at=NOON + after,
            pipeline=pipeline,
            message=f"{name} {'is well again' if is_over else 'is not well'}",
            detail=detail,
        )


KINDS = {
    "alarm": Kind("INFRA_ALARM", "INFRA_ALARM", "INFRASTRUCTURE"),
    "watchdog": Kind("WATCHDOG_DEGRADED", "WATCHDOG_RECOVERED"),
    "stream": Kind("DATA_LOSS_SUSPECTED", "DATA_RESYNCED"),
    "config": Kind("CONFIG_REJECTED", "CONFIG_ACCEPTED", "orders"),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def is_broadcast(said: Said) -> bool:
    return bool(said.payload.get("reply_broadcast"))


async def deliver(world: AlertsWorld, *events: Event) -> None:
    worker = world.worker()
    for event in events:
        await worker.deliver(event)


@each_kind
def test_each_incident_has_a_thread_which_its_recovery_closes(kind: Kind) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = AlertsWorld()

        await deliver(
            world,
            kind.event("d1"),
            kind.event("x1", name="two", after=MINUTE),
            kind.event("r1", after=2 * MINUTE, is_over=True),
            kind.event("d2", after=3 * MINUTE),
        )

        first, other, again = world.slack.threads
        assert "*ongoing*" in first.texts[0]
        assert first.text.startswith(":white_check_mark: *")
        assert "*recovered*" in first.text
        assert "now:" in first.text
        [answer] = world.slack.answers_in(first)
        assert "one is well again" in answer
        assert "two" in other.text
        assert "*ongoing*" in again.text
        assert again.text.startswith(":red_circle: *")

    scenario()


@each_kind
def test_repeats_within_an_incident_answer_in_its_thread(kind: Kind) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = AlertsWorld()

        await deliver(world, *(kind.event(f"d{n}", after=n * MINUTE) for n in range(3)))

        [thread] = world.slack.threads
        assert len(world.slack.answers_in(thread)) == 2
        assert not any(is_broadcast(said) for said in world.slack.messages)

    scenario()


@each_kind
def test_an_incident_whose_end_nobody_told_is_past_after_a_quiet_time(kind: Kind) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = AlertsWorld()

        await deliver(
            world, kind.event("d1"), kind.event("d2", after=QUIET), kind.event("d3", after=2 * QUIET + MINUTE)
        )

        first, second = world.slack.threads
        assert len(world.slack.answers_in(first)) == 1
        assert world.slack.answers_in(second) == []

    scenario()


@on_virtual_time
async def test_what_has_no_recovery_gets_a_new_thread_after_a_quiet_time_too() -> None:
    world = AlertsWorld()
    missed = an_event("m1", EventType.SCHEDULE_MISSED, schedule="", period="")
    events = [
        Event(id=f"m{n}", type=missed.type, at=NOON + n * QUIET * 0.75, pipeline="orders", message="5 times")
        for n in (0, 1, 3)
    ]

    await deliver(world, *events)

    first, _second = world.slack.threads
    assert len(world.slack.answers_in(first)) == 1


@each_kind
def test_a_repeat_of_a_past_incident_is_recognised_by_whichever_worker(kind: Kind) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = AlertsWorld()
        history = [
            kind.event("d1"),
            kind.event("r1", after=MINUTE, is_over=True),
            kind.event("d2", after=2 * MINUTE),
            kind.event("r2", after=3 * MINUTE, is_over=True),
        ]
        await deliver(world, *history)

        await deliver(world, *history)

        assert len(world.slack.messages) == 4
        assert "*recovered*" in world.slack.threads[-1].text

    scenario()


@each_kind
def test_an_end_that_comes_before_the_beginning_ends_it_all_the_same(kind: Kind) -> None:
    """Out of a queue events come in any order, most of all after an outage."""

    @on_virtual_time
    async def scenario() -> None:
        world = AlertsWorld()

        await deliver(world, kind.event("r1", after=MINUTE, is_over=True), kind.event("d1"))

        [thread] = world.slack.threads
        assert "*recovered*" in thread.text
        assert any("is not well" in said.text for said in world.slack.messages)

    scenario()


@on_virtual_time
async def test_an_alarm_that_is_well_from_the_beginning_says_nothing() -> None:
    world = AlertsWorld()

    await deliver(
        world, KINDS["alarm"].event("r1", is_over=True), KINDS["alarm"].event("r2", after=MINUTE, is_over=True)
    )

    assert world.slack.calls == 0


@each_kind
def test_an_end_that_comes_while_the_thread_is_being_opened_closes_it(kind: Kind) -> None:
    @on_virtual_time
    async def scenario() -> None:
        world = AlertsWorld()
        await deliver(world, an_event("e1", EventType.RETRY_EXHAUSTED, version=1))  # the next has to wait for its turn

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(world.worker().deliver(kind.event("d1")))
            await world.clock.sleep(0.1)
            tasks.create_task(world.worker().deliver(kind.event("r1", after=MINUTE, is_over=True)))

        _other, thread = world.slack.threads
        assert "*recovered*" in thread.text
        [answer] = world.slack.answers_in(thread)
        assert "is well again" in answer

    scenario()


@each_kind
@pytest.mark.parametrize("seed", range(10))
def test_in_whatever_order_events_come_each_is_told_once_and_the_last_to_happen_is_shown(kind: Kind, seed: int) -> None:
    async def scenario() -> None:
        world, random = AlertsWorld(), Random(seed)
        history = [
            kind.event(f"e{number}", after=number * MINUTE, is_over=number % 2 == 1)
            for number in range(random.randint(2, 6))
        ]
        arriving = random.sample([*history, *history], 2 * len(history))
        workers = [world.worker() for _ in range(3)]
        for event in arriving:
            await random.choice(workers).deliver(event)

        said = [said.text for said in world.slack.messages]
        assert len(said) <= len(history)
        for number, event in enumerate(history):
            if number % 2 == 0:
                assert sum(event.message in text for text in said) >= 1
        seen = await world.threads.look(thread_of(history[0]))
        assert seen is not None
        assert seen.face.standing == ("recovered" if len(history) % 2 == 0 else "ongoing")
        assert set(seen.told) == {event.id for event in history}
        shown = next(each for each in world.slack.threads if each.ts == seen.timestamp)
        assert f"*{seen.face.standing}*" in shown.text

    run(scenario())


@on_virtual_time
async def test_two_workers_that_meet_a_new_incident_open_one_thread_for_it() -> None:
    world, kind = AlertsWorld(), KINDS["watchdog"]
    await deliver(world, kind.event("d1"), kind.event("r1", after=MINUTE, is_over=True))

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(world.worker().deliver(kind.event(f"n{number}", after=(2 + number) * MINUTE)))

    _past, thread = world.slack.threads
    assert len(world.slack.answers_in(thread)) == 3


@on_virtual_time
async def test_many_incidents_that_begin_anew_at_once_open_no_more_threads_than_others() -> None:
    world, kind, many = AlertsWorld(), KINDS["alarm"], range(15)
    for number in many:
        await deliver(world, kind.event(f"d{number}", name=f"n{number}"))
        await deliver(world, kind.event(f"r{number}", name=f"n{number}", after=MINUTE, is_over=True))
        await world.clock.sleep(30)
    opened = len(world.slack.threads)

    await deliver(world, *(kind.event(f"again{number}", name=f"n{number}", after=2 * MINUTE) for number in many))

    assert opened == len(many)
    assert len(world.slack.threads) - opened <= APART_MAX + 1


# --- what is graver -------------------------------------------------------------------------------------------------


@on_virtual_time
async def test_what_is_graver_than_all_that_was_told_in_a_thread_is_shown_in_the_channel_too() -> None:
    world = AlertsWorld()

    await deliver(
        world,
        an_event("e1", EventType.RERUN_ACCEPTED, version=1),
        an_event("e2", EventType.SLA_WARNING, version=2),
        an_event("e3", EventType.LATE_DATA_ARRIVAL, version=3),
        an_event("e4", EventType.RETRY_EXHAUSTED, version=4),
        an_event("e5", EventType.SLA_BREACH, version=5),
        an_event("e6", EventType.JOB_COMPLETED, version=6),
    )

    assert len(world.slack.threads) == 1
    assert [is_broadcast(said) for said in world.slack.messages] == [False, True, False, True, False, False]


@on_virtual_time
async def test_a_thread_that_an_earlier_version_opened_is_answered_as_before() -> None:
    world = AlertsWorld()
    await deliver(world, an_event("e1", EventType.SLA_WARNING, version=1))
    thread = thread_of(an_event("e1", EventType.SLA_WARNING))
    seen = await world.threads.look(thread)
    assert seen is not None
    await world.threads.note(thread, seen, told="e0", face=seen.face, worst="UNHEARD_OF")

    await deliver(world, an_event("e2", EventType.SLA_BREACH, version=2))

    assert not any(is_broadcast(said) for said in world.slack.messages)


# --- a failed run and what waits for it -------------------------------------------------------------------------------


@on_virtual_time
async def test_a_breach_below_a_failed_run_answers_in_its_thread_and_does_not_change_what_it_shows() -> None:
    world = AlertsWorld()
    failed = an_event("1", EventType.RETRY_EXHAUSTED, version=4)
    root: dict[str, Json] = {
        "pipeline": failed.pipeline,
        "schedule": failed.schedule,
        "period": failed.period,
        "status": "failed",
        "reason": "exit code 3",
    }
    below = replace(an_event("2", EventType.SLA_BREACH, pipeline="board"), detail={"version": 9, "rootCause": root})

    await deliver(world, failed)
    [thread] = world.slack.threads
    before = thread.text
    await deliver(world, below, below)

    [again] = world.slack.threads
    assert again.text == before
    assert "*failed*" in before
    [answer] = world.slack.answers_in(thread)
    assert "board" in answer
