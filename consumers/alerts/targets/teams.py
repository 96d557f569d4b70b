"""Send alerts to Microsoft Teams: one adaptive card per alert, through the webhook of a workflow.

A workflow's webhook can neither reply in a thread nor change a card, so each message names its run, and a recovery is
a card of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from consumers.alerts import text
from consumers.alerts.targets.http_post import KeptSecret, TargetPost
from consumers.alerts.targets.target import Action, GroupNotice, TargetNotice
from consumers.outbox.severities import Severity
from worker.core.model.events import shown_type
from worker.core.model.values import Json
from worker.net.http_client import HttpClient
from worker.operations.page_links import NO_PAGES, PublicPages
from worker.runtime.json_bytes import to_json

TEXT_MAX: Final = 2_500  # characters: even if each takes four bytes, a card stays below the 28 KB that Teams accepts
TITLE_MAX: Final = 300
LINES_MAX: Final = 40

COLORS: Final[Mapping[Severity, str]] = {
    Severity.ALERT: "attention",
    Severity.WARNING: "warning",
    Severity.SUCCESS: "good",
    Severity.NOTE: "default",
}


class TeamsTarget:
    """Sends one card per request. Teams cannot recognise a repeat."""

    batch_max = 1

    def __init__(self, http: HttpClient, url: KeptSecret, *, pages: PublicPages = NO_PAGES) -> None:
        self._post = TargetPost(http, "Teams", (url,))
        self._url, self._pages = url, pages

    async def send(self, notices: Sequence[TargetNotice]) -> None:
        for notice in notices:
            await self._send(self._card(notice))

    async def send_group(self, group: GroupNotice) -> None:
        title = f"{group.events[0].type}: {text.group_count(group.events)}"
        lines = "\n".join(text.group_lines(group.events))
        page = text.group_page(group.events, self._pages)
        await self._send(card(title, COLORS[group.severity], lines, text.group_list_hint(group.events), page))

    async def send_test(self, at_text: str) -> None:
        await self._send(card("Test of the alert path", "default", f"Nothing is wrong. Sent at {at_text}.", ""))

    def _card(self, notice: TargetNotice) -> Mapping[str, Json]:
        event = notice.event
        color = COLORS[Severity.SUCCESS if notice.action is Action.RESOLVE else notice.severity]
        title = f"{text.subject_name(event)}: {shown_type(event.type)}"
        page = self._pages.about(event.pipeline, event.schedule, event.period)
        recovery = "This ends the alert about it." if notice.action is Action.RESOLVE else ""
        return card(title, color, "\n".join(text.plain_lines(event)), recovery, page)

    async def _send(self, content: Mapping[str, Json]) -> None:
        attachment: dict[str, Json] = {
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": None,
            "content": dict(content),
        }
        body = to_json({"type": "message", "attachments": [attachment]}, is_sorted=True)
        await self._post.post(await self._url.get(), body)


def card(title: str, color: str, body: str, footer: str, page: str = "") -> dict[str, Json]:
    """Return an adaptive card. Foreign text is in text runs, in which Teams renders no markup and no link."""
    blocks: list[Json] = [_block(title, TITLE_MAX, {"weight": "bolder", "color": color})]
    blocks += [_block(line, TEXT_MAX, {}) for line in _within(body)]
    blocks += [_block(footer, TEXT_MAX, {"isSubtle": True})] if footer else []
    actions: list[Json] = [{"type": "Action.OpenUrl", "title": "Open", "url": page}] if page else []
    return {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
        "actions": actions,
        "msteams": {"width": "Full"},
    }


def _within(body: str) -> list[str]:
    """Return the lines of a text that fit into one card, and say if some are left out."""
    lines, left = list[str](), TEXT_MAX
    for line in filter(str.strip, text.printable(body).splitlines()):
        if left <= 0 or len(lines) == LINES_MAX:
            return [*lines, "…"]
        lines.append(text.cut(line, left))
        left -= len(line)
    return lines


def _block(said: str, most: int, style: Mapping[str, Json]) -> Json:
    run: dict[str, Json] = {"type": "TextRun", "text": text.cut(text.printable(said), most), **style}
    return {"type": "RichTextBlock", "inlines": [run]}
