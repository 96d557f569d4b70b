"""Settle messages: report the outcome of each one to the queue until the queue has confirmed it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from consumers.queues.batches import Batcher
from consumers.queues.queue import QueueCalls, Refusal, Visibility
from consumers.queues.visibility import InFlight, VisibilityKeeper
from worker.core.errors import RetryLater
from worker.runtime.clock import Clock
from worker.runtime.logs import logger

TELLING_MAX: Final = 8  # calls per message; after that it is redelivered, and recognised or handled again

_log = logger()


class MessageOutcome(Enum):
    DONE = auto()
    FAILED = auto()
    PARKED = auto()
    RELEASED = auto()


@dataclass(slots=True)
class QueueCounts:
    """Keeps the sum at all times: received = done + failed + parked + released + in flight."""

    received: int = 0
    done: int = 0
    failed: int = 0  # returned for a retry
    parked: int = 0  # stored as dead letters
    released: int = 0  # returned unhandled
    repeated: int = 0  # received while in flight; not part of the sum

    def add(self, outcome: MessageOutcome) -> None:
        match outcome:
            case MessageOutcome.DONE:
                self.done += 1
            case MessageOutcome.FAILED:
                self.failed += 1
            case MessageOutcome.PARKED:
                self.parked += 1
            case MessageOutcome.RELEASED:
                self.released += 1


@dataclass(frozen=True, slots=True)
class _Ending:
    held: InFlight
    outcome: MessageOutcome
    visible_in_s: int = 0


class Acknowledger:
    """Deletes and returns messages in batches; each is in flight until the queue confirms."""

    def __init__(
        self,
        calls: QueueCalls,
        custody: VisibilityKeeper,
        ended: Callable[[MessageOutcome], None],
        *,
        tasks: asyncio.TaskGroup,
        clock: Clock,
    ) -> None:
        self._calls, self._custody, self._ended = calls, custody, ended
        self._deletes: Batcher[_Ending] = Batcher(self._send_deletes, tasks, clock)
        self._returns: Batcher[_Ending] = Batcher(self._send_returns, tasks, clock)

    def delete(self, held: InFlight, outcome: MessageOutcome) -> None:
        self._deletes.put(_Ending(held, outcome))

    def give_back(self, held: InFlight, outcome: MessageOutcome, *, visible_in_s: int) -> None:
        held.is_returning = True
        self._returns.put(_Ending(held, outcome, visible_in_s))

    def polls_end(self) -> None:
        """Return no message while our last polls are under way: one of them would receive it again at once."""
        self._deletes.hurry()
        self._returns.hold()

    def polls_ended(self) -> None:
        self._returns.hurry()

    async def _send_deletes(self, endings: Sequence[_Ending]) -> Sequence[_Ending]:
        handles = [ending.held.handle for ending in endings]
        return await self._tell(endings, handles, lambda: self._calls.delete(handles))

    async def _send_returns(self, endings: Sequence[_Ending]) -> Sequence[_Ending]:
        handles = [ending.held.handle for ending in endings]
        changes = [Visibility(ending.held.handle, ending.visible_in_s) for ending in endings]
        return await self._tell(endings, handles, lambda: self._calls.change_visibility(changes))

    async def _tell(
        self, endings: Sequence[_Ending], handles: Sequence[str], call: Callable[[], Awaitable[Sequence[Refusal]]]
    ) -> Sequence[_Ending]:
        """Send a batch and return the entries to send again, then with the newest handle of each message."""
        try:
            refusals = await call()
        except RetryLater as error:
            refusals = [Refusal(position, str(error), is_final=False) for position in range(len(endings))]
        refused = {refusal.position: refusal for refusal in refusals}
        again: list[_Ending] = []
        for position, ending in enumerate(endings):
            refusal = refused.get(position)
            if refusal is not None and _may_tell_again(ending.held, refusal, handles[position]):
                again.append(ending)
            else:
                self._end(ending, refusal)
        return again

    def _end(self, ending: _Ending, refusal: Refusal | None) -> None:
        if refusal is not None:
            _log.warning("message.unsettled", message=ending.held.message.id, reason=refusal.reason)
        self._custody.let_go(ending.held)
        self._ended(ending.outcome)


def _may_tell_again(held: InFlight, refusal: Refusal, handle: str) -> bool:
    held.tries += 1
    return held.tries < TELLING_MAX and not (refusal.is_final and handle == held.handle)
