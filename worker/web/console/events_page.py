"""The last events of all pipelines or of one, newest first."""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.core.model.events import Event, EventType, in_order, shown_type
from worker.runtime.concurrency import gather_bounded
from worker.store.repos.events import Events
from worker.web.console.console import Console
from worker.web.problems import ProblemType, WebProblem

SHOWN_MAX: Final = 100
DAYS: Final = 7
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


async def events_page(console: Console, request: Request) -> Response:
    now, chosen = console.context.clock.now(), request.query_params.get("show", "")
    if chosen not in FILTERS:
        raise WebProblem(
            ProblemType.NOT_FOUND, f"there is no such filter; use one of {', '.join(filter(None, FILTERS))}"
        )
    events, is_cut = await _newest(console, FILTERS[chosen][1], now)
    return await console.page(
        request,
        "events.html",
        now=now,
        events=events,
        is_cut=is_cut,
        filters={name: title for name, (title, _) in FILTERS.items()},
        chosen=chosen,
        days=DAYS,
        shown_type=shown_type,
    )


async def _newest(console: Console, types: tuple[EventType, ...], now: datetime) -> tuple[list[Event], bool]:
    """Return the last events of these types, latest first, and whether there are more."""
    store, since = Events(console.context.tables), now - timedelta(days=DAYS)
    parts = await gather_bounded([partial(store.newest_of_type, each, since, SHOWN_MAX + 1) for each in types])
    found = list(reversed(in_order(stored.event for part in parts for stored in part)))
    return found[:SHOWN_MAX], len(found) > SHOWN_MAX
