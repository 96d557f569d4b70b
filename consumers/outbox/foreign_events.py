"""The events queue: what others published, and alarms, kept in the events table beside our own events.

Our own come back over the bus as well if its rule lets them. They are in the table already, from the commit of their
decision, and what is written here is never sent: so nothing goes round.
"""

from consumers.outbox.envelopes import event_in, read_envelope
from consumers.queues.queue import Message
from worker.store.repos.events import Events


class ForeignEvents:
    """Its `handle` is a queue consumer's. `echoes` counts our own events that came back."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self.echoes = 0

    async def handle(self, message: Message) -> None:
        """Keep the event, once. Raises `BadEnvelope`, `RetryLater`, and `TooLarge` for what no row can hold."""
        envelope = read_envelope(message)
        if envelope.is_ours:
            self.echoes += 1
        else:
            await self._events.put_foreign(event_in(envelope))
