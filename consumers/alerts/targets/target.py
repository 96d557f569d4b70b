"""Define the port to an alert target besides the chat, and what a target is sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, Protocol

from consumers.outbox.severities import Severity
from worker.core.errors import Rejected, RetryLater
from worker.core.model.events import Event

BETWEEN: Final = timedelta(seconds=1)  # between requests of one lane, over all workers: below the limit of each target

SUBJECTS: Final = "interlock"  # begins every subject; all workers of a store must agree on it


class Action(StrEnum):
    TRIGGER = "trigger"  # opens an alert at the target, or adds to an open one
    ACKNOWLEDGE = "acknowledge"  # a new attempt has begun
    RESOLVE = "resolve"
    NOTE = "note"  # changes nothing at the target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNotice:
    """Holds one event for a target. `subject` identifies its run or incident there."""

    event: Event
    severity: Severity
    action: Action
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNotice:
    """Holds events of one type that are reported in one message, oldest first."""

    events: Sequence[Event]
    severity: Severity
    subject: str


class AlertTargetTrouble(RetryLater):
    """AlertTargetTrouble is a temporary failure. The target may have accepted the request all the same."""


class AlertTargetBusy(AlertTargetTrouble):
    """Reports the rate limit of a target: send it nothing for `wait_s`."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


class AlertTargetDown(AlertTargetTrouble):
    """Reports that a target is unavailable or rejects our address or key: nothing can be sent."""


class AlertTargetRefused(Rejected):
    """Reports a request that the target can never accept."""


class AlertTarget(Protocol):
    """AlertTarget is the port. Each call sends once, and raises `AlertTargetTrouble` or a refusal."""

    @property
    def batch_max(self) -> int:
        """Return how many notices one request may carry."""
        ...

    async def send(self, notices: Sequence[TargetNotice]) -> None:
        """Send notices, at most `batch_max`, in one request."""
        ...

    async def send_group(self, group: GroupNotice) -> None: ...

    async def send_test(self, at_text: str) -> None:
        """Send a message that says it is a test and changes nothing."""
        ...
