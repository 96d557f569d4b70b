"""Workers and their leases."""

from fastapi import APIRouter, Request, Response

from worker.operations.workers.group_view import lease_records, look, session_records
from worker.web.api.context import Context
from worker.web.api.responses import listing, page
from worker.web.api.schemas import LeaseDocument, WorkerDocument

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
