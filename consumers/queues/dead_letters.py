"""Keep messages that cannot be handled as dead letters, with their whole body.

They are stored together with the dead letters of streams and routes.
"""

from typing import Final

from consumers.delivery.retry import GivenUp, RetryPolicy
from consumers.queues.queue import Message
from worker.runtime.clock import Clock
from worker.store.repos.delivery.dead_letters import DeadLetter, DeadLetters
from worker.store.row_codec import encode
from worker.store.rows import without_none

REASON_MAX: Final = 2_000


def queue_letter_source(queue: str) -> str:
    return f"queue.{queue}"


class QueueDeadLetters:
    """Provides `park` and `failed` for a consumer.

    Both retry until the store answers, and a repeated call changes nothing.
    """

    def __init__(self, queue: str, letters: DeadLetters, tries: RetryPolicy, clock: Clock) -> None:
        self._source, self._letters = queue_letter_source(queue), letters
        self._tries, self._clock = tries, clock

    async def failed(self, message: Message) -> int:
        """Count a failure of a message and return the number of its failures over all workers."""
        return await self._tries.forever(
            lambda: self._letters.count_failure(self._source, message.id, message.receive_count, self._clock.now())
        )

    async def park(self, message: Message, given_up: GivenUp) -> None:
        letter = DeadLetter(
            id=message.id,
            source=self._source,
            at=message.sent_at,
            reason=given_up.reason[:REASON_MAX],
            history=tuple(said[:REASON_MAX] for said in given_up.history),
        )
        kept = {"body": message.body, "group": message.group or None, "receives": message.receive_count}
        body = encode(without_none(kept))
        await self._tries.forever(lambda: self._letters.put(letter, body, now=self._clock.now()))
