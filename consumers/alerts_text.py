"""What an alert looks like in the chat: short, the most important first, and nothing in it that calls everyone."""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from consumers.alerts_chat import Block, Saying
from consumers.alerts_standing import SEVERITIES, Standing, standing_of
from consumers.severities import Severity, severity_of
from worker.core.events import Event
from worker.core.values import Json
from worker.store.threads import Face, ThreadKey

SECTION_MAX: Final = 2_900  # Slack takes 3,000
MESSAGE_MAX: Final = 1_500
FACE_MAX: Final = 400
NAMED_MAX: Final = 20

EMOJI: Final[Mapping[Severity, str]] = {
    Severity.ALERT: ":red_circle:",
    Severity.WARNING: ":large_yellow_circle:",
    Severity.SUCCESS: ":white_check_mark:",
    Severity.NOTE: ":information_source:",
}
# Of an event's detail, what people read, in this order.
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
    return ThreadKey(event.pipeline, event.schedule, event.period)


def alert(event: Event) -> Saying:
    """One event, for itself."""
    emoji = EMOJI[severity_of(event.type)]
    about = " | ".join(escaped(part) for part in (event.pipeline, event.schedule, event.period) if part)
    head = f"{emoji} *{escaped(event.type)}*" + (f" | {about}" if about else "")
    body = "\n".join([head, *_lines(event)])
    return Saying(_cut(summary(event), FACE_MAX), [_section(body)])


def summary(event: Event) -> str:
    """An event in one line."""
    line = f"{event.type}: {event.message}" if event.message else event.type
    return _cut(" ".join(line.split()), FACE_MAX)


def first_message(thread: ThreadKey, face: Face) -> Saying:
    """The head of a thread: what it is about, how that stands now, how it began and what came last."""
    standing = standing_of(face.standing)
    emoji = EMOJI[_severity(standing, face)]
    about = " | ".join(escaped(part) for part in (thread.pipeline, thread.schedule, thread.period) if part)
    shown = "" if standing is Standing.NOTED else f": *{standing}*"
    lines = [f"{emoji} *{about or 'interlock'}*{shown}", *([escaped(face.first)] if face.first else [])]
    blocks = [_section("\n".join(lines))]
    if face.latest and face.latest != face.first:
        blocks.append({"type": "context", "elements": [_markdown(f"now: {escaped(face.latest)}")]})
    plain = " ".join(part for part in (thread.pipeline, thread.schedule, thread.period) if part) or "interlock"
    return Saying(_cut(f"{plain}: {standing}: {face.latest or face.first}", FACE_MAX), blocks)


def elsewhere(event: Event) -> Saying:
    """An alert told beside its thread, because those who must act look into another channel."""
    told = alert(event)
    note: Block = {"type": "context", "elements": [_markdown("its thread is in another channel")]}
    return Saying(told.text, [*told.blocks, note])


def digest(since: datetime, until: datetime, types: Counter[str], pipelines: Counter[str]) -> Saying:
    """What went well in a stretch of time."""
    counts = ", ".join(f"{number} {escaped(name)}" for name, number in sorted(types.items()))
    span = f"{since:%Y-%m-%d %H:%M} to {until:%H:%M} UTC"
    named = [f"{escaped(name)} {number}" for name, number in pipelines.most_common(NAMED_MAX)]
    more = len(pipelines) - len(named)
    where = ", ".join(named) + (f" and {more} more" if more else "")
    text = f"{span}: {counts}"
    return Saying(_cut(text, FACE_MAX), [_section(f"{EMOJI[Severity.SUCCESS]} *Digest* | {text}\n{where}")])


def _severity(standing: Standing, face: Face) -> Severity:
    """Where no run is known, the latest event says how bad it is; its line begins with its type."""
    return severity_of(face.latest.partition(":")[0]) if standing is Standing.NOTED else SEVERITIES[standing]


def escaped(text: str) -> str:
    """So that nothing in it is a link, a mention, or `<!channel>`."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _lines(event: Event) -> list[str]:
    parts = [f"{name}: {escaped(str(event.detail[key]))}" for key, name in _SHOWN if event.detail.get(key)]
    hint = event.detail.get("actionHint")
    return [
        *([escaped(_cut(event.message, MESSAGE_MAX))] if event.message else []),
        *([" · ".join(parts)] if parts else []),
        *([f"→ {escaped(hint)}"] if isinstance(hint, str) and hint else []),
    ]


def _section(text: str) -> Block:
    return {"type": "section", "text": _markdown(text)}


def _markdown(text: str) -> dict[str, Json]:
    return {"type": "mrkdwn", "text": _cut(text, SECTION_MAX)}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
