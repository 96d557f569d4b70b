"""Events of all pipelines or of one, newest first, a page at a time."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from consumers.outbox.severities import Severity, severity_of, types_with
from worker.core.errors import ConfigError
from worker.core.model.events import Event, EventType, in_order, shown_type
from worker.core.model.given_times import time_before
from worker.core.model.values import Json
from worker.core.time.timestamps import format_rfc3339, parse_rfc3339
from worker.operations.redaction import without_secrets
from worker.operations.runs.cursors import BadCursor, read_cursor, write_cursor
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.events import Events
from worker.web.api.parameters import ID
from worker.web.console.console import Console
from worker.web.console.wording import Badge
from worker.web.problems import ProblemType, WebProblem

SHOWN_MAX: Final = 100
EXAMINED_MAX: Final = 1_000  # events of one pipeline that a page looks at
DETAIL_CHARS_MAX: Final = 2_000
SINCE: Final = {"1h": "an hour", "24h": "24 hours", "7d": "7 days", "30d": "30 days", "90d": "90 days"}
STANDARD: Final = "7d"
ALERTS: Final = (
    EventType.JOB_FAILED,
    EventType.RETRY_EXHAUSTED,
    EventType.VALIDATION_EXHAUSTED,
    EventType.INFRA_FAILURE,
    EventType.SFN_TIMEOUT,
    EventType.JOB_ORPHANED,
    EventType.JOB_START_UNKNOWN,
    EventType.CONFIG_REJECTED,
)
DEADLINES: Final = (
    EventType.SLA_WARNING,
    EventType.SLA_BREACH,
    EventType.SLA_MET,
    EventType.SLA_WAIVED,
    EventType.RELATIVE_SLA_WARNING,
    EventType.RELATIVE_SLA_BREACH,
    EventType.EVALUATION_SLA_BREACH,
    EventType.SCHEDULE_MISSED,
    EventType.IRREGULAR_SCHEDULE_MISSED,
    EventType.SENSOR_DEADLINE_EXPIRED,
)
# Filters of the page, by the member `show` of its query. The heartbeat is left out of "all": it says nothing by itself.
FILTERS: Final = {
    "": ("All", tuple(each for each in EventType if each is not EventType.WATCHDOG_HEARTBEAT)),
    "failures": ("Failures", ALERTS),
    "deadlines": ("Deadlines", DEADLINES),
    "reruns": ("Reruns", (EventType.RERUN_ACCEPTED, EventType.RERUN_REJECTED, EventType.LATE_DATA_ARRIVAL)),
    "operators": ("Operator actions", (EventType.OPERATOR_ACTION, EventType.RUN_CANCELLED)),
}


SEVERITIES: Final = {
    "alert": (Severity.ALERT, Badge("✕", "alert", "failed")),
    "warning": (Severity.WARNING, Badge("!", "warning", "stuck")),
    "ok": (Severity.SUCCESS, Badge("✓", "ok", "completed")),
    "note": (Severity.NOTE, Badge("·", "note", "waiting")),
}
_BADGES: Final = dict(SEVERITIES.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """EventFilter is what the address asks for. All of it is part of every link of the page."""

    show: str
    type: str
    severity: str
    pipeline: str
    since: str
    cursor: str

    @property
    def query(self) -> dict[str, str]:
        since = "" if self.since == STANDARD else self.since
        return {
            "show": self.show,
            "type": self.type,
            "severity": self.severity,
            "pipeline": self.pipeline,
            "since": since,
        }

    @property
    def bound(self) -> str:
        return "\x1f".join(("console events", *self.query.values()))

    @property
    def types(self) -> Collection[str]:
        """Return the types that can fit, to be read one by one."""
        chosen = [self.type] if self.type else FILTERS[self.show][1]
        fitting = set(types_with({SEVERITIES[self.severity][0]})) if self.severity else set(EventType)
        return [each for each in chosen if each in fitting or each not in set(EventType)]

    def fits(self, event: Event) -> bool:
        if self.type or self.show or not self.pipeline:
            known = event.type in self.types
        else:
            known = event.type != EventType.WATCHDOG_HEARTBEAT  # also types of other systems
        wanted = SEVERITIES[self.severity][0] if self.severity else None
        return known and (wanted is None or severity_of(event.type, event.detail) is wanted)


async def events_page(console: Console, request: Request) -> Response:
    now, wanted = console.context.clock.now(), _filter_of(request)
    events, following, end = await _newest(console, wanted, now)
    return await console.page(
        request,
        "events.html",
        now=now,
        events=events,
        wanted=wanted,
        following=following,
        searched_to=end if following and len(events) < SHOWN_MAX else None,
        filters={name: title for name, (title, _) in FILTERS.items()},
        types=sorted(EventType),
        severities=SEVERITIES,
        all_since=SINCE,
        since_text=SINCE.get(wanted.since, f"since {wanted.since}"),
        badge_of=_badge_of,
        detail_of=_detail_text,
        shown_type=shown_type,
    )


def _filter_of(request: Request) -> EventFilter:
    given = request.query_params
    wanted = EventFilter(
        show=given.get("show", ""),
        type=given.get("type", ""),
        severity=given.get("severity", ""),
        pipeline=given.get("pipeline", "").strip(),
        since=given.get("since", "") or STANDARD,
        cursor=given.get("cursor", ""),
    )
    if wanted.show not in FILTERS:
        what = f"there is no such filter; use one of {', '.join(filter(None, FILTERS))}"
        raise WebProblem(ProblemType.NOT_FOUND, what)
    if wanted.type and not wanted.pipeline and wanted.type not in set(EventType):
        raise WebProblem(ProblemType.BAD_REQUEST, "there is no such type of events; name a pipeline, too")
    if wanted.severity and wanted.severity not in SEVERITIES:
        raise WebProblem(ProblemType.BAD_REQUEST, f"a severity is one of {', '.join(SEVERITIES)}")
    if wanted.pipeline and not re.match(ID, wanted.pipeline):
        raise WebProblem(ProblemType.BAD_REQUEST, "no pipeline can have this name")
    return wanted


async def _newest(console: Console, wanted: EventFilter, now: datetime) -> tuple[list[Event], str, datetime | None]:
    """Return a page of events, latest first, the cursor of the rest, and since when all were looked at."""
    try:
        since = time_before(wanted.since, now)
    except ConfigError as error:
        raise WebProblem(ProblemType.BAD_REQUEST, str(error)) from error
    until, shown = _position(wanted)
    enough, store = SHOWN_MAX + len(shown) + 1, Events(console.context.tables)
    if wanted.pipeline:
        enough = max(enough, EXAMINED_MAX)
        parts = [[each.event for each in await store.latest(wanted.pipeline, enough, since=since, until=until)]]
    else:
        reads = [partial(store.newest_of_type, each, since, enough, until=until) for each in wanted.types]
        parts = [[stored.event for stored in part] for part in await gather_bounded(reads)]
    # Before the end of a part that was cut, events of that part would be missing.
    end = max((min(each.at for each in part) for part in parts if len(part) >= enough), default=None)
    whole = [each for part in parts for each in part if end is None or each.at >= end]
    left = [each for each in reversed(in_order(whole)) if wanted.fits(each) and _name(each) not in shown]
    found = left[:SHOWN_MAX]
    at = found[-1].at if len(left) > SHOWN_MAX else end
    if at is None:
        return found, "", None
    known = [_name(each) for each in whole if each.at == at and (each in found or not wanted.fits(each))]
    before = sorted(shown) if at == until else []
    return found, write_cursor(wanted.bound, {"at": format_rfc3339(at), "shown": [*before, *known]}), at


def _position(wanted: EventFilter) -> tuple[datetime | None, frozenset[str]]:
    """Return up to when to read, and the events of that very time that were shown already."""
    if not wanted.cursor:
        return None, frozenset()
    position = read_cursor(wanted.cursor, wanted.bound)
    at, shown = parse_rfc3339(str(position.get("at"))), position.get("shown")
    if at is None or not isinstance(shown, list):
        raise BadCursor(wanted.cursor)
    return at, frozenset(str(each) for each in shown)


def _name(event: Event) -> str:
    return f"{event.id}.{event.type}.{event.pipeline}"


def _badge_of(event: Event) -> Badge:
    return _BADGES[severity_of(event.type, event.detail)]


def _detail_text(detail: Mapping[str, Json]) -> str:
    text = json.dumps(without_secrets(detail), indent=2, ensure_ascii=False, default=str)
    left = len(text) - DETAIL_CHARS_MAX
    return f"{text[:DETAIL_CHARS_MAX]}\n… ({left:,} more characters)" if left > 0 else text
