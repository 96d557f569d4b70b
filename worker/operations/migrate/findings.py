"""What a look at another system's table found, in the three words a person needs: understood, changes, refused."""

from dataclasses import dataclass
from enum import StrEnum

from worker.core.model.pipeline import PipelineId


class Weight(StrEnum):
    UNDERSTOOD = "understood"  # means the same here
    CHANGES = "changes"  # means something else here: read it before anything is switched on
    REFUSED = "refused"  # will not be used


class Topic(StrEnum):
    """What a finding is about; `docs/migration.md` has a line on each."""

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
    """One thing about a pipeline. `remedy` says what to do about it, and is empty where nothing is to be done."""

    pipeline: PipelineId
    topic: Topic
    weight: Weight
    what: str
    remedy: str = ""
