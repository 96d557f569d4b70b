"""How lists show runs of the mirror: badges, deadlines, zones, and the ids of elements."""

from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from worker.operations.records import DeadlineRecord
from worker.web.console.wording import Badge, deadline_badge, late_badge, status_badge
from worker.web.live.facts import ActiveRun, ActiveWatch, FinishedRun, moment
from worker.web.live.mirror import Mirror
from worker.web.live.pipeline_list import run_word


def run_element(key: str) -> str:
    """Return the id of the element that shows a run."""
    return f"r:{key}"


def pipeline_element(pipeline: str) -> str:
    return f"p:{pipeline}"


def zone_of_pipeline(mirror: Mirror, pipeline: str) -> tzinfo:
    entry = mirror.catalogue.get(pipeline)
    return UTC if entry is None else zone_named(entry.zone)


@lru_cache(maxsize=512)
def zone_named(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return UTC


def badge_of(mirror: Mirror, run: ActiveRun | FinishedRun | None, now: datetime) -> Badge:
    if run is None:
        return status_badge(None)
    return status_badge(run_word(run, is_paused=mirror.is_paused(run.pipeline, now.timestamp())))


def since_of(run: ActiveRun | FinishedRun | None) -> datetime | None:
    if run is None:
        return None
    return moment(run.at if isinstance(run, FinishedRun) else run.since)


def deadline_of(mirror: Mirror, key: str, now: datetime) -> Badge | None:
    """Return how the deadline of a run stands: open, or breached as an event says."""
    watch = mirror.watches.get(key)
    if watch is not None:
        return deadline_badge(_record(watch), now)
    breach = mirror.breached.get(key)
    if breach is None:
        return None
    at = moment(breach.at)
    return late_badge(at, now) if key in mirror.active and now > at else Badge("◆", "deadline breached", "breached")


def _record(watch: ActiveWatch) -> DeadlineRecord:
    warning = None if watch.warning_at is None else moment(watch.warning_at)
    return DeadlineRecord(warning_at=warning, breach_at=moment(watch.breach_at), verdict=None)
