"""The alerts queue: what a bus put into it, told to people."""

from typing import Final

from consumers.outbox.envelopes import event_in, read_envelope
from consumers.outbox.routes import Deliver, envelope
from consumers.outbox.severities import told_to_people
from consumers.queues.queue import Message

# An alarm that is over ends its incident. One without data is neither.
_TOLD_STATES: Final = frozenset({"ALARM", "OK"})


class AlertMessages:
    """Its `handle` is a queue consumer's. Steps on the way, and alarms that know nothing, are done without a word."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver, self._told = deliver, told_to_people()

    async def handle(self, message: Message) -> None:
        """Raises `BadEnvelope` for what is no event, and what telling raises."""
        found = read_envelope(message)
        event = event_in(found)
        if found.is_alarm and found.alarm_state not in _TOLD_STATES:
            return
        if self._told.matches(envelope(event)):
            await self._deliver(event)
