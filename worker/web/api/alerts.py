"""Alerts: the events that are sent to people, with their severity and where they were posted."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from consumers.alerts.text import thread_of
from consumers.outbox.severities import Severity, severity_of, types_with
from worker.core.model.events import Event
from worker.core.model.values import Json
from worker.operations.records import as_json
from worker.operations.runs.run_detail import event_record
from worker.store.repos.delivery.threads import Open, Threads
from worker.web.api.context import Context
from worker.web.api.events import EventListQuery, events_page
from worker.web.api.responses import listing, page
from worker.web.api.schemas import ApiModel

alerts_router = APIRouter(tags=["events"])

_WORDS: Final = {
    "alert": Severity.ALERT,
    "warning": Severity.WARNING,
    "ok": Severity.SUCCESS,
    "note": Severity.NOTE,
}
_SHOWN: Final = {severity: word for word, severity in _WORDS.items()}
SeverityWord = Literal["alert", "warning", "ok", "note"]


class AlertThread(ApiModel):
    """The chat thread of an alert. `posted`: this alert is in it. `status` is that of its run now."""

    channel: str
    status: str | None
    posted: bool


class AlertDocument(ApiModel):
    """An event that is sent to people. Without `thread`, no chat thread is known."""

    type: Literal["alert"]
    id: str
    event_type: str
    severity: SeverityWord
    at: datetime
    pipeline: str
    schedule: str
    period: str
    message: str
    detail: dict[str, Any]
    thread: AlertThread | None


class AlertsQuery(EventListQuery):
    severity: list[SeverityWord] = Field(
        default=["alert", "warning"],
        max_length=4,
        description="`alert`, `warning`, `ok` or `note`; repeat for several.",
    )

    @property
    def bound(self) -> str:
        return "\x1f".join(("alerts", ",".join(sorted(set(self.severity))), self.pipeline, self.since))


@alerts_router.get("/alerts", summary="List alerts", **listing(AlertDocument))
async def list_alerts(request: Request, context: Context, query: Annotated[AlertsQuery, Query()]) -> Response:
    """List events that are sent to people since a time, oldest first, alerts and warnings by default."""
    wanted = {_WORDS[word] for word in query.severity}
    types = types_with(wanted)

    def is_wanted(event: Event) -> bool:
        return event.type in types and severity_of(event.type, event.detail) in wanted

    found, following = await events_page(context, query, types, is_wanted)
    threads = await Threads(context.tables).look_many(list({thread_of(event) for event in found}))
    items = [_alert(event, threads.get(thread_of(event))) for event in found]
    return page(request, items, following)


def _alert(event: Event, thread: Open | None) -> dict[str, Json]:
    known = as_json(event_record(event))
    shown: dict[str, Json] | None = None
    if thread is not None and thread.is_open:
        shown = {
            "channel": thread.routed_to or thread.channel,
            "status": thread.face.standing or None,
            "posted": event.id in thread.told,
        }
    severity = _SHOWN[severity_of(event.type, event.detail)]
    return {**known, "type": "alert", "severity": severity, "thread": shown}
