"""Roles: what a worker may do."""

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    ENGINE = "engine"  # takes in facts, starts jobs and follows them
    SCHEDULER = "scheduler"  # cron and the watchdog; acts through the engine of the same worker
    RELAY = "relay"  # sends events out
    ALERTS = "alerts"  # consumes the alerts queue, for people
    EVENTS = "events"  # consumes the queue of other systems' events, for the events table
    SENSORS = "sensors"  # consumes the inbox queue, for sensors


ALL_ROLES: Final = frozenset(Role)
