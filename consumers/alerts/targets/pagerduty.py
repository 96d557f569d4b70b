"""Send alerts to PagerDuty (Events API v2): one alert per run or incident, resolved when it is over."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Final

from consumers.alerts import text
from consumers.alerts.targets.http_post import KeptSecret, TargetPost
from consumers.alerts.targets.target import Action, AlertTargetDown, AlertTargetRefused, GroupNotice, TargetNotice
from consumers.outbox.severities import Severity
from worker.core.model.events import Event
from worker.core.model.values import Json
from worker.net.http_client import HttpClient
from worker.operations.page_links import NO_PAGES, PublicPages
from worker.runtime.json_bytes import to_json
from worker.store.rows import instant_text

API: Final = "https://events.pagerduty.com/v2/enqueue"
SUMMARY_MAX: Final = 1_024
KEY_MAX: Final = 255
_WRONG_KEY: Final = re.compile("routing.?key", re.IGNORECASE)
DETAIL_MAX: Final = 2_000  # characters of each custom detail; the API accepts 512 KB in all

SEVERITIES: Final[Mapping[Severity, str]] = {
    Severity.ALERT: "critical",
    Severity.WARNING: "warning",
    Severity.NOTE: "info",
    Severity.SUCCESS: "info",
}


class PagerDutyTarget:
    """Sends one event per request. PagerDuty recognises a repeat by its `dedup_key`."""

    batch_max = 1

    def __init__(
        self,
        http: HttpClient,
        key: KeptSecret,
        *,
        api: str = API,
        source: str = "interlock",
        pages: PublicPages = NO_PAGES,
    ) -> None:
        self._post = TargetPost(http, "PagerDuty", (key,))
        self._key, self._api, self._source, self._pages = key, api, source, pages

    async def send(self, notices: Sequence[TargetNotice]) -> None:
        for notice in notices:
            await self._enqueue(self._said(notice))

    async def send_group(self, group: GroupNotice) -> None:
        first = group.events[0]
        count = text.group_count(group.events)
        detail: dict[str, Json] = {
            "count": len(group.events),
            "runs": [_shown(line) for line in text.group_lines(group.events)],
            "list": text.group_list_hint(group.events),
        }
        payload = self._payload(f"{first.type}: {count}", group.severity, first, detail)
        said: dict[str, Json] = {"event_action": "trigger", "dedup_key": dedup_key(group.subject), "payload": payload}
        page = text.group_page(group.events, self._pages)
        links: list[Json] = [{"href": page, "text": "open the list"}] if page else []
        await self._enqueue({**said, "client": "Interlock", "links": links})

    async def send_test(self, at_text: str) -> None:
        """Open an alert of severity info and resolve it at once."""
        key = dedup_key(f"{self._source}/test/{at_text}")
        summary = "Test of the alert path; nothing is wrong, and it resolves itself"
        payload: dict[str, Json] = {"summary": summary, "source": self._source, "severity": "info"}
        await self._enqueue({"event_action": "trigger", "dedup_key": key, "payload": payload})
        await self._enqueue({"event_action": "resolve", "dedup_key": key})

    def _said(self, notice: TargetNotice) -> dict[str, Json]:
        event = notice.event
        said: dict[str, Json] = {"event_action": notice.action.value, "dedup_key": dedup_key(notice.subject)}
        if notice.action is not Action.TRIGGER:
            return said
        detail: dict[str, Json] = {
            "type": event.type,
            "run": text.subject_name(event),
            "eventId": event.id,
            "text": _shown("\n".join(text.plain_lines(event))),
        }
        payload = self._payload(f"{text.subject_name(event)}: {text.summary(event)}", notice.severity, event, detail)
        page = self._pages.about(event.pipeline, event.schedule, event.period)
        links: list[Json] = [{"href": page, "text": "open the run"}] if page else []
        return {**said, "payload": payload, "client": "Interlock", "links": links}

    def _payload(self, summary: str, severity: Severity, event: Event, detail: Mapping[str, Json]) -> dict[str, Json]:
        return {
            "summary": text.cut(text.printable(summary), SUMMARY_MAX),
            "source": self._source,
            "severity": SEVERITIES[severity],
            "timestamp": instant_text(event.at),
            "component": event.pipeline or "interlock",
            "class": event.type,
            "custom_details": dict(detail),
        }

    async def _enqueue(self, said: Mapping[str, Json]) -> None:
        key = await self._key.get()
        try:
            await self._post.post(self._api, to_json({"routing_key": key, **said}, is_sorted=True))
        except AlertTargetRefused as refused:
            if not _WRONG_KEY.search(str(refused)):
                raise
            self._key.forget()  # it may have changed: the next request reads it again
            raise AlertTargetDown(
                f"PagerDuty does not know the key; check {self._key.setting}; alerts wait"
            ) from refused


def _shown(detail: str) -> str:
    return text.cut(text.printable(detail), DETAIL_MAX)


def dedup_key(subject: str) -> str:
    """Return a subject within the limit of PagerDuty's keys. Different subjects stay different."""
    if len(subject) <= KEY_MAX:
        return subject
    return f"{subject[: KEY_MAX - 17]}-{hashlib.sha256(subject.encode(errors='replace')).hexdigest()[:16]}"
