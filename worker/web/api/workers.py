"""Workers, their leases, and the watchdog."""

from datetime import datetime
from typing import Literal

from fastapi import APIRouter, Request, Response

from worker.operations.workers.group_view import lease_records, look, session_records
from worker.operations.workers.watchdog_view import look_at_watchdog, watchdog_record
from worker.web.api.context import Context
from worker.web.api.responses import listing, page, record
from worker.web.api.schemas import ApiModel, LeaseDocument, WorkerDocument

workers_router = APIRouter(tags=["workers"])


@workers_router.get("/workers", summary="List workers", **listing(WorkerDocument))
async def list_workers(request: Request, context: Context) -> Response:
    """List the sessions of all workers, also of those that ended lately."""
    return page(request, session_records(await look(context.tables)))


@workers_router.get("/leases", summary="List leases", **listing(LeaseDocument))
async def list_leases(request: Request, context: Context) -> Response:
    """List the leases of all streams, with their holders and progress."""
    view = await look(context.tables)
    return page(request, lease_records(view.streams))


class DegradedDocument(ApiModel):
    """A part of the monitoring that does not work, since when, and why."""

    part: str
    since: datetime | None
    problem: str


class AlertPathDocument(ApiModel):
    """The last probe of the alert path. `waitingSince`: no probe has arrived since."""

    probe_sent_at: datetime
    waiting_since: datetime | None
    answered: bool


class WatchdogDocument(ApiModel):
    """The watchdog. `settledUpTo`: all runs expected before are accounted for; null if it never ran.

    `heartbeatAt` is when the last quarter of an hour with a pass began, and `sound` whether all vital checks worked.
    """

    type: Literal["watchdog"]
    settled_up_to: datetime | None
    heartbeat_at: datetime | None
    sound: bool | None
    degraded: list[DegradedDocument]
    alert_path: AlertPathDocument | None


@workers_router.get("/watchdog", summary="Show the watchdog", response_model=WatchdogDocument)
async def show_watchdog(context: Context) -> Response:
    """Show the watchdog's signs of life, what of the monitoring does not work, and the alert path."""
    return record(watchdog_record(await look_at_watchdog(context.tables, context.clock.now())))
