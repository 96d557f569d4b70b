"""Defines the roles of a worker: what it may do."""

from enum import StrEnum
from typing import Final


class Role(StrEnum):
    ENGINE = "engine"  # handles facts, starts jobs and polls them
    SCHEDULER = "scheduler"  # cron and the watchdog; acts through the engine of the same worker
    RELAY = "relay"  # publishes events
    ALERTS = "alerts"  # sends the events of the alerts queue to people
    EVENTS = "events"  # stores other systems' events from their queue in the events table
    SENSORS = "sensors"  # turns the messages of the inbox queue into sensors


ALL_ROLES: Final = frozenset(Role)
