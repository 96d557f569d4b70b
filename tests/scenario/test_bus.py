"""The road to the bus: shared requests, order per pipeline, nothing lost while the bus is away."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import pytest

from consumers.outbox.bus import BYTES_MAX, ENTRIES_MAX, REQUESTS_MAX, Entry, EventBus, entry_of
from tests.support.clock.manual import NOON
from tests.support.clock.virtual_time import VirtualClock, on_virtual_time
from worker.core.errors import Rejected, RetryLater
from worker.core.model.events import Event, EventType

TAKEN: Mapping[str, str] = {}
THROTTLED = {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}
MALFORMED = {"ErrorCode": "MalformedDetail", "ErrorMessage": "no"}


class FakeBus:
    """Takes everything, unless the test says otherwise."""

    def __init__(self, answer: Callable[[Entry], Mapping[str, str]] = lambda _: TAKEN) -> None:
        self.requests: list[list[str]] = []
        self.taken: list[str] = []
        self.away = self.most_at_once = self._at_once = 0
        self._answer = answer

    async def put(self, entries: Sequence[Entry]) -> Sequence[Mapping[str, str]]:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await asyncio.sleep(0.05)
        self._at_once -= 1
        self.requests.append([_message(entry) for entry in entries])
        if self.away:
            self.away -= 1
            raise RetryLater("the bus is away")
        answers = [self._answer(entry) for entry in entries]
        self.taken += [_message(entry) for entry, answer in zip(entries, answers, strict=True) if answer is TAKEN]
        return answers


@asynccontextmanager
async def running(fake: FakeBus) -> AsyncGenerator[EventBus]:
    bus = EventBus(fake.put, "interlock-events", VirtualClock())
    task = asyncio.create_task(bus.run())
    try:
        yield bus
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@on_virtual_time
async def test_events_that_come_together_share_requests_of_ten() -> None:
    fake = FakeBus()

    async with running(fake) as bus:
        await asyncio.gather(*(bus.deliver(_event(f"e{number}")) for number in range(25)))

    assert [len(request) for request in fake.requests] == [10, 10, 5]


@on_virtual_time
async def test_several_requests_are_under_way_at_once_and_never_more_than_allowed() -> None:
    fake, clock = FakeBus(), VirtualClock()

    async with running(fake) as bus:
        began = clock.monotonic()
        await asyncio.gather(*(bus.deliver(_event(f"e{number}")) for number in range(3 * REQUESTS_MAX * ENTRIES_MAX)))
        took_s = clock.monotonic() - began

    assert fake.most_at_once == REQUESTS_MAX
    # Three rounds of 50 ms: nothing waits for events that may come, because all requests are full.
    assert took_s == pytest.approx(0.15)


@on_virtual_time
async def test_full_requests_are_sent_at_once_and_the_rest_waits_for_events_that_come_right_after_it() -> None:
    fake = FakeBus()

    async with running(fake) as bus:
        first = asyncio.gather(*(bus.deliver(_event(f"a{number}")) for number in range(12)))
        await asyncio.sleep(0.001)
        await asyncio.gather(first, *(bus.deliver(_event(f"b{number}")) for number in range(3)))

    assert [len(request) for request in fake.requests] == [10, 5]


@on_virtual_time
async def test_a_bus_that_throttles_gets_fewer_requests_at_once_and_later_as_many_as_before() -> None:
    is_throttling = True
    fake = FakeBus(lambda _: THROTTLED if is_throttling else TAKEN)
    async with running(fake) as bus:
        first = asyncio.gather(*(bus.deliver(_event(f"a{number}")) for number in range(REQUESTS_MAX * ENTRIES_MAX)))
        await asyncio.sleep(60)
        asked = len(fake.requests)
        then = asyncio.gather(*(bus.deliver(_event(f"b{number}")) for number in range(1_000)))
        await asyncio.sleep(60)
        assert bus.is_waiting()
        assert len(fake.requests) - asked <= 10 * REQUESTS_MAX  # only what was sent before is sent again

        is_throttling = False
        await asyncio.gather(first, then)
        fake.most_at_once = 0
        await asyncio.gather(*(bus.deliver(_event(f"c{number}")) for number in range(1_000)))

    assert fake.most_at_once == REQUESTS_MAX
    assert not bus.is_waiting()
    assert len(set(fake.taken)) == len(fake.taken) == 2_000 + REQUESTS_MAX * ENTRIES_MAX


@on_virtual_time
async def test_only_what_the_bus_did_not_take_is_offered_again() -> None:
    refused_once = iter([THROTTLED])
    fake = FakeBus(lambda entry: next(refused_once, TAKEN) if _message(entry) == "e1" else TAKEN)

    async with running(fake) as bus:
        await asyncio.gather(*(bus.deliver(_event(f"e{number}")) for number in range(3)))

    assert fake.requests == [["e0", "e1", "e2"], ["e1"]]


@on_virtual_time
async def test_an_outage_of_an_hour_delays_events_and_loses_none() -> None:
    fake = FakeBus()
    fake.away = 200

    async with running(fake) as bus, asyncio.timeout(7_200):
        await bus.deliver(_event("first"))
        await bus.deliver(_event("second"))

    assert fake.taken == ["first", "second"]


@on_virtual_time
async def test_what_the_bus_can_never_take_is_refused_and_holds_nobody_up() -> None:
    fake = FakeBus(lambda entry: MALFORMED if _message(entry) == "bad" else TAKEN)

    async with running(fake) as bus:
        answers = await asyncio.gather(bus.deliver(_event("good")), bus.deliver(_event("bad")), return_exceptions=True)

    assert answers[0] is None
    assert isinstance(answers[1], Rejected)
    assert fake.taken == ["good"]


@on_virtual_time
async def test_one_event_that_spoils_a_request_does_not_spoil_the_others() -> None:
    def answer(entry: Entry) -> Mapping[str, str]:
        if _message(entry) == "bad":
            raise Rejected("the request is not valid")
        return TAKEN

    fake = FakeBus(answer)

    async with running(fake) as bus:
        answers = await asyncio.gather(bus.deliver(_event("bad")), bus.deliver(_event("good")), return_exceptions=True)

    assert isinstance(answers[0], Rejected)
    assert fake.taken == ["good"]


@on_virtual_time
async def test_an_event_that_is_too_large_for_any_request_is_refused_at_once() -> None:
    fake = FakeBus()

    async with running(fake) as bus:
        with pytest.raises(Rejected, match="bytes"):
            await bus.deliver(_event("x" * BYTES_MAX))

    assert fake.requests == []


@on_virtual_time
async def test_large_events_go_in_requests_of_their_own() -> None:
    fake = FakeBus()

    async with running(fake) as bus:
        await asyncio.gather(*(bus.deliver(_event(letter * 100_000)) for letter in "abc"))

    assert [len(request) for request in fake.requests] == [2, 1]


@on_virtual_time
async def test_an_event_whose_teller_has_ended_is_offered_no_more_and_holds_nobody_up() -> None:
    """Its record comes again, to whoever holds the lease then."""
    fake = FakeBus(lambda entry: THROTTLED if _message(entry) == "left" else TAKEN)

    async with running(fake) as bus:
        leaving = asyncio.create_task(bus.deliver(_event("left")))
        await asyncio.sleep(0.03)  # the request is under way
        leaving.cancel()
        await asyncio.wait([leaving])
        async with asyncio.timeout(60):
            await bus.deliver(_event("next"))

    assert fake.requests == [["left"], ["next"]]


def test_an_entry_carries_the_id_by_which_a_repeat_is_recognised() -> None:
    entry = entry_of(_event("hello"), "bus")

    assert (entry["Source"], entry["DetailType"], entry["EventBusName"]) == ("interlock", "JOB_FAILED", "bus")
    assert json.loads(entry["Detail"])["eventId"] == "id of hello"


def _event(message: str) -> Event:
    at = NOON
    return Event(id=f"id of {message[:9]}", type=EventType.JOB_FAILED, at=at, pipeline="orders", message=message)


def _message(entry: Entry) -> str:
    return json.loads(entry["Detail"])["message"]
