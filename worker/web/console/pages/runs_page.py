"""Runs of all pipelines by a filter, a bounded page at a time."""

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from worker.operations.runs.run_filter import RunFilter
from worker.operations.runs.run_query import RunQueries
from worker.web.console.console import Console
from worker.web.console.run_rows import row_of

SHOWN_MAX: Final = 100
QUERY_MAX: Final = 200
STATES: Final = ("active", "waiting", "starting", "running", "stopping", "ended", "completed", "failed", "cancelled")
# Of which all are rerun together. Without a state, those would be the completed ones, too.
RERUN_STATES: Final = ("failed", "cancelled", "completed", "ended")
SINCE: Final = "24h"  # unless the address says otherwise: each day has lists of its own to read
NAMES: Final = ("state", "pipeline", "owner", "since", "error")


async def runs_page(console: Console, request: Request) -> Response:
    """Read at most 2,000 rows, whatever the filter: such a page may be short, and the next one continues."""
    now = console.context.clock.now()
    query = query_of(request)
    wanted = filter_of(query)
    cursor = request.query_params.get("cursor", "") or None
    found = await RunQueries(console.context.tables).page(wanted, now, limit=SHOWN_MAX, cursor=cursor)
    may_rerun = console.may_act(request) and query["state"] in RERUN_STATES and bool(found.records or found.next)
    return await console.page(
        request,
        "runs.html",
        now=now,
        rows=[row_of(each, console.links, now) for each in found.records],
        examined=found.examined,
        following=found.next,
        query=query,
        has_cursor=cursor is not None,
        states=STATES,
        rerun=console.links.to("runs", "rerun", **query) if may_rerun else "",
        export=console.links.to("api", "v1", "runs", format="ndjson", **query),
    )


def query_of(request: Request) -> dict[str, str]:
    """Return what the address asks for, as it is part of every link of the page."""
    query = {name: request.query_params.get(name, "").strip()[:QUERY_MAX] for name in NAMES}
    return {**query, "since": query["since"] or SINCE}


def filter_of(query: Mapping[str, str]) -> RunFilter:
    return RunFilter(
        statuses=(query["state"],) if query["state"] else (),
        pipeline=query["pipeline"],
        owner=query["owner"],
        since=query["since"],
        error=query["error"],
    )
