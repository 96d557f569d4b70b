"""Store events that other systems published, and alarms, in the events table next to our own events.

Our own events also arrive in the queue if the rule of the bus lets them pass. They are in the table already, from the
commit of their decision. Interlock never publishes events that this module writes, so there is no loop. Events about
the states of jobs are hints and are not stored, if this installation expects them.
"""

from consumers.outbox.envelopes import event_in, read_envelope
from consumers.outbox.job_events import JobEvents
from consumers.queues.queue import Message
from worker.store.repos.events import Events


class ForeignEvents:
    """Handles the messages of a queue consumer. `echoes` counts our own events that came back."""

    def __init__(self, events: Events, jobs: JobEvents | None = None) -> None:
        self._events, self._jobs = events, jobs
        self.echoes = 0

    async def handle(self, message: Message) -> None:
        """Store the event once. Raises `BadEnvelope`, `RetryLater`, and `TooLarge` if no row can hold it."""
        envelope = read_envelope(message)
        if envelope.is_ours:
            self.echoes += 1
        elif self._jobs is None or not await self._jobs.take(envelope):
            await self._events.put_foreign(event_in(envelope))
