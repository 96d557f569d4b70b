"""Handle the alerts queue: send the events that a bus put into it to people."""

from typing import Final

from consumers.outbox.envelopes import event_in, read_envelope
from consumers.outbox.routes import Deliver, envelope
from consumers.outbox.severities import told_to_people
from consumers.queues.queue import Message

# An alarm that is OK ends its incident. An alarm with insufficient data neither opens nor ends one.
_TOLD_STATES: Final = frozenset({"ALARM", "OK"})


class AlertMessages:
    """Handles the messages of a queue consumer.

    It drops intermediate steps and alarms with insufficient data without an alert.
    """

    def __init__(self, deliver: Deliver) -> None:
        self._deliver, self._told = deliver, told_to_people()

    async def handle(self, message: Message) -> None:
        """Deliver the event of a message. Raises `BadEnvelope` if there is none, and what delivery raises."""
        found = read_envelope(message)
        event = event_in(found)
        if found.is_alarm and found.alarm_state not in _TOLD_STATES:
            return
        if self._told.matches(envelope(event)):
            await self._deliver(event)
