"""Publish events to the bus. Events of several pipelines that arrive together share a request.

An event is delivered once the bus has confirmed it. An outage of the bus delays events and loses none: `EventBus` sends
them again until the bus accepts them, so the events of a pipeline keep their order. An event that the bus can never
accept is rejected and becomes a dead letter.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from consumers.outbox.routes import SOURCE, envelope
from worker.core.errors import Rejected, RetryLater
from worker.core.model.events import Event
from worker.operations.page_links import NO_PAGES, PublicPages
from worker.runtime.backoff import Backoff
from worker.runtime.clock import Clock
from worker.runtime.json_bytes import to_json
from worker.runtime.logs import logger

ENTRIES_MAX: Final = 10  # per request
BYTES_MAX: Final = 256 * 1024  # per request, and so per event
ENTRY_OVERHEAD: Final = 64  # for the time and the names other than detail and type
GATHER_S: Final = 0.005  # wait for events that arrive at the same time
REQUESTS_MAX: Final = 16  # under way at once
PATIENCE: Final = Backoff(attempts_max=8, first_s=0.25, longest_s=20.0)
# The bus can never accept an entry that it refuses with one of these codes. Every other refusal may be temporary.
NEVER: Final = frozenset({"MalformedDetail", "InvalidArgument", "InvalidEventPattern", "EventSizeExceeded"})

_log = logger()

Entry: TypeAlias = Mapping[str, Any]
# Puts entries on the bus and returns one result per entry: {} if the bus accepted it, else its ErrorCode and
# ErrorMessage. Raises `RetryLater` if no entry was certainly accepted, `Rejected` if the request can never succeed.
PutEvents: TypeAlias = Callable[[Sequence[Entry]], Awaitable[Sequence[Mapping[str, str]]]]


@dataclass(frozen=True, slots=True)
class _Waiting:
    entry: Entry
    size: int
    taken: "asyncio.Future[None]"


class EventBus:
    """Delivers the events of a route to the bus. `deliver` waits for `run`, which must keep running.

    Several requests are under way at once, and each is sent again until the bus has all its events. So the order of two
    events is kept if the second is delivered after `deliver` returned for the first, as the relay does within a
    pipeline. If the bus refuses events, fewer requests are sent at once.
    """

    def __init__(
        self,
        put: PutEvents,
        bus: str,
        clock: Clock,
        *,
        backoff: Backoff = PATIENCE,
        pages: PublicPages = NO_PAGES,
        requests_max: int = REQUESTS_MAX,
    ) -> None:
        self._put, self._bus, self._clock, self._backoff, self._pages = put, bus, clock, backoff, pages
        self._waiting: deque[_Waiting] = deque()
        self._called = asyncio.Event()
        self._requests_max = self._requests_now = requests_max
        self._requests = self._refused = 0  # under way; of these, sent again because the bus refused some events

    def is_waiting(self) -> bool:
        """Return whether the bus did not accept events, so that they are being sent again."""
        return self._refused > 0

    async def deliver(self, event: Event) -> None:
        """Return once the bus has accepted the event. Raises `Rejected` if it can never be accepted."""
        entry = entry_of(event, self._bus, self._pages)
        size = len(entry["Detail"].encode()) + len(entry["DetailType"]) + ENTRY_OVERHEAD
        if size > BYTES_MAX:
            raise Rejected(f"event {event.id} has {size} bytes, and the bus takes {BYTES_MAX}")
        taken = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(entry, size, taken))
        self._called.set()
        await taken

    async def run(self) -> None:
        """Send what is delivered, until cancelled."""
        async with asyncio.TaskGroup() as requests:
            while True:
                await self._called.wait()
                is_partial = len(self._waiting) < ENTRIES_MAX  # a full request gains nothing from waiting
                if is_partial:
                    await self._clock.sleep(GATHER_S)
                self._called.clear()
                while self._requests < self._requests_now and (is_partial or len(self._waiting) >= ENTRIES_MAX):
                    if not (batch := self._next_batch()):
                        break
                    self._requests += 1
                    requests.create_task(self._offer(batch), name="bus:request")
                if self._waiting and self._requests < self._requests_now:
                    self._called.set()

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        room = BYTES_MAX
        while self._waiting and len(batch) < ENTRIES_MAX and self._waiting[0].size <= room:
            each = self._waiting.popleft()
            if not each.taken.cancelled():  # the task that waited has ended; its record is read again
                batch.append(each)
                room -= each.size
        return batch

    async def _offer(self, batch: list[_Waiting]) -> None:
        """Send a batch until the bus has accepted or finally refused each of its events."""
        tries = 0
        while True:
            answers = await self._answers(batch)
            left = [each for each, answer in zip(batch, answers, strict=True) if not _is_settled(each, answer)]
            if not left:
                break
            self._refused += tries == 0
            tries = min(tries + 1, self._backoff.attempts_max)
            self._requests_now = max(1, self._requests_now // 2)
            _log.warning("bus.refused", bus=self._bus, events=len(left), reason=_first_reason(answers))
            await self._clock.sleep(self._backoff.wait_s(tries))
            batch = left
        self._refused -= tries > 0
        self._requests -= 1
        self._requests_now = min(self._requests_now + 1, self._requests_max)
        if self._waiting:
            self._called.set()

    async def _answers(self, batch: list[_Waiting]) -> Sequence[Mapping[str, str]]:
        try:
            return await self._put([each.entry for each in batch])
        except RetryLater as error:
            return [{"ErrorCode": "NoAnswer", "ErrorMessage": str(error)}] * len(batch)
        except Rejected as error:
            if len(batch) == 1:
                return [{"ErrorCode": "InvalidArgument", "ErrorMessage": str(error)}]
            # One entry makes the request invalid: send each entry alone.
            return [answer for each in batch for answer in await self._answers([each])]


def entry_of(event: Event, bus: str, pages: PublicPages = NO_PAGES) -> Entry:
    carried = envelope(event, pages.about(event.pipeline, event.schedule, event.period))
    return {
        "EventBusName": bus,
        "Source": SOURCE,
        "DetailType": event.type,
        "Detail": to_json(carried["detail"]).decode(),
        "Time": event.at,
    }


def _is_settled(each: _Waiting, answer: Mapping[str, str]) -> bool:
    code = answer.get("ErrorCode")
    if each.taken.cancelled():
        return True
    if not code:
        each.taken.set_result(None)
    elif code in NEVER:
        each.taken.set_exception(Rejected(f"the bus refuses the event: {code}: {answer.get('ErrorMessage', '')}"))
    return each.taken.done()


def _first_reason(answers: Sequence[Mapping[str, str]]) -> str:
    refused = next((answer for answer in answers if "ErrorCode" in answer), {"ErrorCode": ""})
    return f"{refused['ErrorCode']}: {refused.get('ErrorMessage', '')}"
