"""The tables of docs/reference/events.md: every event, its severity and its fields, made from the code.

`python -m tests.support.pages.event_reference` updates the page; a test fails while it is outdated. What no code
says is in `event_meanings`.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from consumers.outbox.routes import envelope
from consumers.outbox.severities import Severity, severity_of, told_to_people
from tests.support.pages.event_meanings import ADDED, FIELDS, VARIANTS, WHEN, Field
from tests.support.pages.event_payloads import payloads
from worker.core.model.events import Event, EventType

PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "events.md"
_TABLES: Final = re.compile(r"(?P<begin><!-- events -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
_EXAMPLE: Final = re.compile(r"(?P<begin><!-- example -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
_WORDS: Final = {
    Severity.ALERT: "alert",
    Severity.WARNING: "warning",
    Severity.SUCCESS: "success",
    Severity.NOTE: "note",
}


def with_fresh_tables(page: str) -> str:
    text = "\n".join(_tables())
    page = _TABLES.sub(lambda found: f"{found['begin']}{text}\n{found['end']}", page)
    return _EXAMPLE.sub(lambda found: f"{found['begin']}{_example()}\n{found['end']}", page)


def _tables() -> Iterator[str]:
    carried = payloads()
    for heading, events in WHEN.items():
        yield from (f"## {heading}", "", "| Event | Severity | Emitted when | Fields |", "| --- | --- | --- | --- |")
        for event_type, when in events.items():
            fields = ", ".join(f"`{name}`" for name in sorted(carried.get(event_type, ())))
            yield f"| {_name(event_type)} | {severities(event_type)} | {when} | {fields} |"
        yield ""
    yield from ("## Fields", "", "| Field | Meaning | Example |", "| --- | --- | --- |")
    yield from (_row(name, FIELDS[name]) for name in sorted(FIELDS, key=str.lower))
    yield from ("", "Interlock adds these where they apply:", "")
    yield from ("| Field | Meaning | Example |", "| --- | --- | --- |")
    yield from (_row(name, field) for name, field in ADDED.items())


def _name(event_type: EventType) -> str:
    if not is_for_people(event_type):
        return f"`{event_type.value}`"
    return f"[`{event_type.value}`](../../deploy/runbook.md#{event_type.value.lower()})"


def is_for_people(event_type: EventType) -> bool:
    event = Event(id="1", type=event_type, at=datetime(2027, 3, 22, tzinfo=UTC))
    return told_to_people().matches(envelope(event))


def severities(event_type: EventType) -> str:
    if not is_for_people(event_type):
        return "not an alert"
    usual = _WORDS[severity_of(event_type)]
    others = [f"{text}: {_WORDS[severity_of(event_type, detail)]}" for text, detail in VARIANTS.get(event_type, ())]
    return "; ".join([usual, *others])


def _row(name: str, field: Field) -> str:
    example = json.dumps(field.example, ensure_ascii=False)
    return f"| `{name}` | {field.meaning} | `{example}` |"


def _example() -> str:
    event = Event(
        id="01HTB5K0M3",
        type=EventType.JOB_FAILED,
        at=datetime(2027, 3, 22, 7, 31, 40, tzinfo=UTC),
        pipeline="orders-daily",
        schedule="cron",
        period="2027-03-22",
        message="orders-daily/cron/2027-03-22: the job of attempt 1 failed: exit code 3",
        detail={"attempt": 1, "category": "TRANSIENT", "willRetry": True, "version": 4},
    )
    return f"```json\n{json.dumps(envelope(event), indent=2)}\n```"


if __name__ == "__main__":
    PAGE.write_text(with_fresh_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
