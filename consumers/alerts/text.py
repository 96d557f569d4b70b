"""Render alerts for the chat: short, most important first, and without text that notifies everyone."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from consumers.alerts.chat import Block, ChatMessage
from consumers.alerts.run_status import SEVERITIES, RunStatus, standing_of
from consumers.outbox.envelopes import INFRASTRUCTURE
from consumers.outbox.incidents import incident_of, is_recovery
from consumers.outbox.severities import Severity, severity_of
from worker.core.model.events import Event, shown_type
from worker.core.model.run_names import name_parts
from worker.core.model.values import Json
from worker.core.run.state import CANCELLED, STATE_WORDS, State
from worker.operations.page_links import NO_PAGES, PublicPages
from worker.store.repos.delivery.threads import ThreadHeader, ThreadKey

SECTION_MAX: Final = 2_900  # Slack's limit is 3,000
MESSAGE_MAX: Final = 1_500
FACE_MAX: Final = 400
NAMED_MAX: Final = 20
CAUSES_MAX: Final = 3
CAUSE_MAX: Final = 120

EMOJI: Final[Mapping[Severity, str]] = {
    Severity.ALERT: ":red_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.SUCCESS: ":white_check_mark:",
    Severity.NOTE: ":information_source:",
}
_MARKUP: Final = str.maketrans(dict.fromkeys("*~`"))
# Control characters, bidirectional control marks, and zero-width characters.
_UNSEEN: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
    "|[\U000e0000-\U000e007f]"
)
# The parts of an event's detail that people read, in this order.
_SHOWN: Final = (
    ("deadline", "Deadline"),
    ("breachAt", "Breach at"),
    ("status", "Status"),
    ("source", "Source"),
    ("cron", "Cron"),
    ("expectedTime", "Expected"),
    ("sensorKey", "Sensor"),
)


def thread_of(event: Event) -> ThreadKey:
    """Return the thread of an event: that of its root cause, if a failed run is known to be one."""
    if (root := root_of(event)) is not None:
        return root
    incident = incident_of(event)
    if incident is None:
        return ThreadKey(event.pipeline, event.schedule, event.period)
    return ThreadKey(event.pipeline, incident=incident.key)


def root_of(event: Event) -> ThreadKey | None:
    """Return the thread of the failed run that is the root cause of an event; None if none is known."""
    match event.detail.get("rootCause"):
        case {"pipeline": str(pipeline), "schedule": str(schedule), "period": str(period), "status": status}:
            return (
                ThreadKey(pipeline, schedule, period)
                if status in {STATE_WORDS[State.FAILED_FINAL], CANCELLED}
                else None
            )
        case _:
            return None


def alert(event: Event, pages: PublicPages = NO_PAGES) -> ChatMessage:
    """Render one event as a message of its own, with a link to its run."""
    severity = Severity.SUCCESS if is_recovery(event) else severity_of(event.type, event.detail)
    head = f"{EMOJI[severity]} *{_name(shown_type(event.type))}*"
    about = " | ".join(map(_name, name_parts(event.pipeline, event.schedule, event.period)))
    return ChatMessage(
        _notice(summary(event)),
        [
            _heading(
                f"{head} | {about}" if about else head, _page(pages, event.pipeline, event.schedule, event.period)
            ),
            *_body("\n".join(plain_lines(event))),
        ],
    )


def summary(event: Event) -> str:
    """Return an event in one line."""
    name = shown_type(event.type)
    line = f"{name}: {_message(event)}" if event.message else name
    return cut(" ".join(line.split()), FACE_MAX)


def first_message(thread: ThreadKey, face: ThreadHeader, pages: PublicPages = NO_PAGES) -> ChatMessage:
    """Render the first message of a thread: its subject, its status now, its first and its latest event."""
    standing = standing_of(face.standing)
    emoji = EMOJI[_severity(standing, face)]
    parts = _parts(thread)
    shown = "" if standing is RunStatus.NOTED else f": *{standing}*"
    blocks = [
        _heading(
            f"{emoji} *{' | '.join(map(_name, parts))}*{shown}",
            _page(pages, thread.pipeline, thread.schedule, thread.period),
        ),
        *_body(face.first),
    ]
    if face.latest and face.latest != face.first:
        blocks.append(_context(f"now: {face.latest}"))
    return ChatMessage(_notice(f"{' '.join(parts)}: {standing}: {face.latest or face.first}"), blocks)


def elsewhere(event: Event, pages: PublicPages = NO_PAGES) -> ChatMessage:
    """Render an alert outside its thread, because those who must act read another channel."""
    told = alert(event, pages)
    return ChatMessage(told.text, [*told.blocks, _context("its thread is in another channel")])


def trial(at_text: str) -> ChatMessage:
    """Render a message that tries the way to the chat."""
    said = f"Test of the alert path, sent at {at_text}. Nothing is wrong."
    return ChatMessage(_notice(said), _body(said))


def digest(since: datetime, until: datetime, types: Counter[str], pipelines: Counter[str]) -> ChatMessage:
    """Render the successes of a time range."""
    counts = ", ".join(f"{number} {_name(name)}" for name, number in sorted(types.items()))
    span = f"{since:%Y-%m-%d %H:%M} to {until:%H:%M} UTC"
    named = [f"{name} {number}" for name, number in pipelines.most_common(NAMED_MAX)]
    more = len(pipelines) - len(named)
    where = ", ".join(named) + (f" and {more} more" if more else "")
    text = f"{span}: {counts}"
    return ChatMessage(_notice(text), [_heading(f"{EMOJI[Severity.SUCCESS]} *Digest* | {text}"), *_body(where)])


def group(severity: Severity, events: Sequence[Event], pages: PublicPages = NO_PAGES) -> ChatMessage:
    """Render events of one type that arrived too fast to be posted separately, oldest first."""
    event_type, counted = events[0].type, group_count(events)
    return ChatMessage(
        _notice(f"{event_type}: {counted}"),
        [
            _heading(f"{EMOJI[severity]} *{_name(event_type)}* | {counted}", group_page(events, pages)),
            *_body("\n".join(group_lines(events))),
            _context(f"grouped, because there were many; they have no threads. {group_list_hint(events)}"),
        ],
    )


def group_count(events: Sequence[Event]) -> str:
    return f"{len(events)} more since {events[0].at:%Y-%m-%d %H:%M:%S} UTC"


def group_lines(events: Sequence[Event]) -> list[str]:
    """Return the lines of a group: each event if there are few, else causes, counts and the first names."""
    if len(events) > NAMED_MAX:
        return [*_causes(events), *_named(events)]
    return [f"{subject_name(event)}: {_cause(event)}" for event in events]


def group_page(events: Sequence[Event], pages: PublicPages) -> str:
    """Return the address of the list that has all events of a group, or their runs; "" if there is none."""
    return pages.about_many(events[0].type, events[0].at)


def group_list_hint(events: Sequence[Event]) -> str:
    """Return the command that lists all events of a group."""
    return f"`interlock events --type {events[0].type} --since {events[0].at:%Y-%m-%dT%H:%M:%SZ}` lists them all"


def _causes(events: Sequence[Event]) -> list[str]:
    causes = Counter(_cause(event) for event in events)
    lines = [f"{number} times: {cause}" for cause, number in causes.most_common(CAUSES_MAX)]
    more = len(causes) - len(lines)
    return [*lines, *([f"and {more} other messages"] if more else [])]


def _named(events: Sequence[Event]) -> list[str]:
    pipelines = Counter(event.pipeline or "interlock" for event in events)
    counts = [f"{name} {number}" for name, number in pipelines.most_common(NAMED_MAX)]
    more = len(pipelines) - len(counts)
    first = ", ".join(subject_name(event) for event in events[:NAMED_MAX])
    return [
        "by pipeline: " + ", ".join(counts) + (f" and {more} more" if more else ""),
        f"the first: {first} and {len(events) - NAMED_MAX} more",
    ]


def subject_name(event: Event) -> str:
    """Return the name of what an event is about, for people."""
    return "/".join(name_parts(event.pipeline, event.schedule, event.period)) or "interlock"


def _message(event: Event) -> str:
    """Return the message with the run as people name it: without a schedule that has no name of its own."""
    run = "/".join(part for part in (event.pipeline, event.schedule, event.period) if part)
    return event.message.replace(run, subject_name(event)) if run else event.message


def _cause(event: Event) -> str:
    """Return the message without the name of its run, so that equal causes are counted together."""
    said = _message(event).replace(subject_name(event), "").strip(" :;,") if event.message else event.type
    return cut(" ".join(said.split()), CAUSE_MAX)


def _severity(standing: RunStatus, face: ThreadHeader) -> Severity:
    """Return the severity to show.

    If the status is not about a run, the latest event decides: its line starts with its type.
    """
    is_told_by_event = standing in {RunStatus.NOTED, RunStatus.ONGOING}
    return severity_of(face.latest.partition(":")[0]) if is_told_by_event else SEVERITIES[standing]


def _parts(thread: ThreadKey) -> list[str]:
    """Return the readable parts of a thread's subject."""
    if not thread.incident:
        return name_parts(thread.pipeline, thread.schedule, thread.period) or ["interlock"]
    return [thread.pipeline or "interlock", thread.incident.partition("#")[2]]


def escaped(text: str) -> str:
    """Escape a text, so that it contains no link, no mention and no `<!channel>`."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plain_lines(event: Event) -> list[str]:
    """Return what people read of an event: its message, parts of its detail, and what to do."""
    parts = [f"{name}: {event.detail[key]}" for key, name in _SHOWN if event.detail.get(key)]
    hint = event.detail.get("actionHint")
    return [
        *([cut(_message(event), MESSAGE_MAX)] if event.message else []),
        *([" · ".join(parts)] if parts else []),
        *([f"→ {hint}"] if isinstance(hint, str) and hint else []),
    ]


def _page(pages: PublicPages, pipeline: str, schedule: str, period: str) -> str:
    return "" if pipeline == INFRASTRUCTURE else pages.about(pipeline, schedule, period)


def _heading(markup: str, page: str = "") -> Block:
    """Return a block for our own words and names, with a link to a page of the console.

    It is verbatim: Slack turns no address or channel name in it into a link. A link that does not fit is left out,
    because half of one leads nowhere.
    """
    # An address of ours has no character that ends a link: everything that others named is percent-encoded.
    link = f" | <{escaped(page)}|open>" if page else ""
    text = cut(markup, SECTION_MAX)
    whole = f"{text}{link}" if len(text) + len(link) <= SECTION_MAX else text
    return {"type": "section", "text": {"type": "mrkdwn", "text": whole, "verbatim": True}}


def _body(text: str) -> list[Block]:
    """Return a block for foreign text, as plain text without bold, links, mentions or emoji."""
    # Slack rejects a message with a block that shows nothing.
    return [{"type": "section", "text": _plain(text)}] if printable(text).strip() else []


def _context(text: str) -> Block:
    return {"type": "context", "elements": [_plain(text)]}


def _plain(text: str) -> dict[str, Json]:
    return {"type": "plain_text", "text": _fitted(text, SECTION_MAX), "emoji": False}


def _notice(text: str) -> str:
    """Return the one-line text that a notification shows."""
    return _fitted(" ".join(text.split()), FACE_MAX)


def _name(text: str) -> str:
    """Return a name for use inside markup: one line, without characters that end the markup."""
    return escaped(printable(" ".join(text.translate(_MARKUP).split())))


def _fitted(text: str, most: int) -> str:
    """Escape a text and cut it between two of its characters so that it fits."""
    clean = printable(text)
    whole = escaped(clean[: most + 1])
    if len(clean) <= most and len(whole) <= most:
        return whole
    parts, left = list[str](), most - 1
    for character in clean:
        part = escaped(character)
        left -= len(part)
        if left < 0:
            break
        parts.append(part)
    return "".join(parts) + "…"


def printable(text: str) -> str:
    """Remove bidirectional marks and invisible characters; line breaks stay."""
    return _UNSEEN.sub("", text)


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
