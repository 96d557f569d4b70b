"""Record ledgers over HTTP, for jobs in any language."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from worker.core.errors import Rejected
from worker.core.ledger.hold import LedgerHeld, LedgerRecord, RecordChanges
from worker.core.model.values import Json
from worker.operations.record_ledgers import RecordLedgers, check_holder, check_name, check_record
from worker.operations.runs.cursors import read_cursor, write_cursor
from worker.store.rows import optional_instant_text
from worker.web.api.audit import requester_of
from worker.web.api.context import ApiContext, Author, Context
from worker.web.api.parameters import Paging
from worker.web.api.responses import listing, page, record
from worker.web.api.schemas import ApiModel, LedgerDocument, LedgerRecordDocument, LedgerSaved, ReasonRequest
from worker.web.problems import FieldError, ProblemType, WebProblem

RECORDS_MAX: Final = 1_000

ledgers_router = APIRouter(tags=["ledgers"])

LedgerName = Annotated[str, Path(max_length=64, examples=["bills"])]
Records = Annotated[
    list[dict[str, Any]],
    Field(max_length=RECORDS_MAX, description="Records, each with `id` and `hash`; other members are returned as is."),
]


class LedgerRecords(ApiModel):
    """Records to compare with a ledger, or to save in it."""

    records: Records = Field(examples=[[{"id": "hr-1024", "hash": "9f2c"}]])


class LedgerRequest(LedgerRecords):
    """Records, and the run that asks: `PIPELINE/SCHEDULE/PERIOD` for a run of Interlock, else any name."""

    run: str = Field(min_length=1, max_length=256, examples=["bills/daily/2027-03-22"])
    attempt: int = Field(default=1, ge=1)


class LedgerDiffDocument(ApiModel):
    """The new and changed records as they were sent, and how many there were of each kind."""

    items: list[dict[str, Any]]
    seen: int
    new: int
    changed: int
    unchanged: int


@ledgers_router.get("/ledgers/{name}", summary="Show a ledger", response_model=LedgerDocument)
async def show_ledger(context: Context, name: LedgerName) -> Response:
    """Return how many records a ledger has, and which run holds it."""
    head = await _ledgers(context).head(_named(name))
    holder: Json = None if head.holder is None else {"run": head.holder.run, "attempt": head.holder.attempt}
    times: dict[str, Json] = {
        "heldSince": optional_instant_text(head.held_since),
        "savedAt": optional_instant_text(head.saved_at),
    }
    return record({"type": "ledger", "name": name, "records": head.records, "heldBy": holder, **times})


@ledgers_router.get("/ledgers/{name}/records", summary="List the records of a ledger", **listing(LedgerRecordDocument))
async def list_records(
    request: Request, context: Context, name: LedgerName, query: Annotated[Paging, Query()]
) -> Response:
    """List records with the hash that was saved last, in no particular order."""
    bound_to = f"ledger {_named(name)}"
    after = str(read_cursor(query.cursor, bound_to)["after"]) if query.cursor else ""
    found = await _ledgers(context).page(name, after, query.limit)
    items = [{"type": "ledger-record", "id": each.id, "hash": each.hash} for each in found.records]
    return page(request, items, write_cursor(bound_to, {"after": found.next}) if found.next else None)


@ledgers_router.post("/ledgers/{name}/diff", summary="Find changed records", response_model=LedgerDiffDocument)
async def diff_records(context: Context, name: LedgerName, body: LedgerRequest) -> Response:
    """Return the records that are new or changed. The run takes the ledger: an older attempt cannot save."""
    records, ledgers = _records(body), _ledgers(context)
    try:
        await ledgers.take(_named(name), check_holder(body.run, body.attempt))
    except LedgerHeld as refused:
        raise WebProblem(ProblemType.CONFLICT, str(refused)) from refused
    found = await ledgers.diff(name, records)
    items = [each for each, is_changed in zip(body.records, found.is_changed, strict=True) if is_changed]
    counts = found.counts
    numbers = {"seen": counts.seen, "new": counts.new, "changed": counts.changed, "unchanged": counts.unchanged}
    return record({"items": items, **numbers})


@ledgers_router.post("/ledgers/{name}/commit", summary="Save processed records", response_model=LedgerSaved)
async def commit_records(context: Context, name: LedgerName, body: LedgerRequest) -> Response:
    """Save records as processed. A repeat changes nothing; a run that lost the ledger saves nothing."""
    records = _records(body)
    try:
        saved = await _ledgers(context).commit(_named(name), check_holder(body.run, body.attempt), records)
    except Rejected as refused:
        raise WebProblem(ProblemType.CONFLICT, str(refused)) from refused
    return _saved(saved)


@ledgers_router.post("/ledgers/{name}/seed", summary="Save records without processing", response_model=LedgerSaved)
async def seed_records(context: Context, name: LedgerName, body: LedgerRecords) -> Response:
    """Save records that are not in the ledger, before the first run; the others stay as they are."""
    records = _records(body)
    try:
        return _saved(await _ledgers(context).seed(_named(name), records))
    except Rejected as refused:
        raise WebProblem(ProblemType.CONFLICT, str(refused)) from refused


@ledgers_router.post("/ledgers/{name}/clear", summary="Delete all records", response_model=LedgerSaved)
async def clear_ledger(context: Context, author: Author, name: LedgerName, body: ReasonRequest) -> Response:
    """Delete all records, so that each is processed again. The run that holds the ledger cannot save."""
    deleted = await _ledgers(context).clear(_named(name), body.reason, requester_of(author))
    return record({"saved": 0, "unchanged": 0, "deleted": deleted})


def _ledgers(context: ApiContext) -> RecordLedgers:
    return RecordLedgers(context.tables, context.clock)


def _named(name: str) -> str:
    try:
        return check_name(name)
    except Rejected as refused:
        raise WebProblem(ProblemType.BAD_REQUEST, str(refused)) from refused


def _records(body: LedgerRecords) -> list[LedgerRecord]:
    found, errors = list[LedgerRecord](), list[FieldError]()
    for number, each in enumerate(body.records):
        try:
            parts = (each.get("id"), each.get("hash"))
            found.append(check_record(LedgerRecord(*(part if isinstance(part, str) else "" for part in parts)), ""))
        except Rejected as refused:
            errors.append(FieldError(f"records.{number}", str(refused).removeprefix(": ")))
    if errors:
        detail = f"{len(errors)} of {len(body.records)} records are not valid; nothing was saved"
        raise WebProblem(ProblemType.INVALID, detail, errors=errors[:100])
    return found


def _saved(counts: RecordChanges) -> Response:
    return record({"saved": counts.new + counts.changed, "unchanged": counts.unchanged, "deleted": 0})
