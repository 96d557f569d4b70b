"""Defines findings about another system's table: understood, changes or refused."""

from dataclasses import dataclass
from enum import StrEnum

from worker.core.model.ids import PipelineId


class Weight(StrEnum):
    UNDERSTOOD = "understood"  # means the same here
    CHANGES = "changes"  # means something else here; to be read before anything is switched on
    REFUSED = "refused"  # will not be used


class Topic(StrEnum):
    """Lists the topics of findings; `docs/migration.md` explains each."""

    CONFIG = "config"
    IGNORED = "ignored-config"
    CRON = "cron"
    CALENDAR = "calendar"
    SLA = "sla"
    LISTED = "listed"
    PREFIX = "prefix-only"
    UNDATED = "undated-trigger"
    SHAPE = "sensor-shape"
    DOTTED = "dotted-field"
    SHADOWED = "post-run-key"
    RUNNING = "running"
    TIMERS = "sla-timers"
    ENDED = "ended"
    UNREADABLE = "unreadable-row"
    REQUESTS = "rerun-requests"
    TOO_MANY = "not-all-read"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigrationFinding:
    """Holds one finding about a pipeline. `remedy` is empty if nothing needs to be done."""

    pipeline: PipelineId
    topic: Topic
    weight: Weight
    what: str
    remedy: str = ""
