"""The catalogue: what lists show of a pipeline, taken from its YAML text without interpreting it.

Interpreting a configuration takes a millisecond, and the pages of one pipeline do that. A list needs only names.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

import msgspec

from worker.core.model.ids import CRON_SCHEDULE, STREAM_SCHEDULE
from worker.core.time.durations import parse_duration
from worker.yaml.document import BadYaml
from worker.yaml.parser import read_yaml

NESTED_MAX: Final = 8
NAMES_MAX: Final = 100
SECTIONS: Final = ("pipeline", "schedule", "sla", "validation", "job")


class CatalogueEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """CatalogueEntry is one pipeline of a list. `searched` is all text that a search looks at."""

    id: str
    owner: str = ""
    description: str = ""
    job: str = ""
    schedules: tuple[str, ...] = ()
    sensors: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    zone: str = "UTC"
    expected_s: float | None = None
    is_dry_run: bool = False
    is_readable: bool = True
    searched: str = ""


def read_entry(pipeline: str, text: str | None) -> CatalogueEntry:
    """Return the entry of a pipeline; whatever its text holds, the pipeline is listed."""
    try:
        document = read_yaml(text or "").value
    except BadYaml:
        document = None
    if not isinstance(document, Mapping):
        return CatalogueEntry(id=pipeline, is_readable=False, searched=pipeline.lower())
    root = cast("Mapping[str, object]", document)
    about, job, validation = (_section(root, name) for name in ("pipeline", "job", "validation"))
    schedules = [each for each in _items(root.get("schedules")) if _text(each, "id")]
    single = _section(root, "schedule")
    sensors = tuple(dict.fromkeys(_sensors([validation.get("rules"), *_triggers(single, schedules)])))[:NAMES_MAX]
    owner, description = _text(about, "owner"), _text(about, "description")
    ids = [_text(each, "id") for each in schedules] or [CRON_SCHEDULE if _text(single, "cron") else STREAM_SCHEDULE]
    return CatalogueEntry(
        id=pipeline,
        owner=owner,
        description=description,
        job=_text(job, "type"),
        schedules=tuple(ids[:NAMES_MAX]),
        sensors=sensors,
        after=tuple(dict.fromkeys(_upstreams(single, schedules)))[:NAMES_MAX],
        zone=_text(single, "timezone") or next((_text(each, "timezone") for each in schedules), "") or "UTC",
        expected_s=_expected(root, schedules),
        is_readable=all(isinstance(root.get(name, {}), Mapping) for name in SECTIONS),
        is_dry_run=root.get("dryRun") is True or about.get("dryRun") is True,
        searched="\n".join((pipeline, owner, description, *sensors)).lower(),
    )


def _section(root: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = root.get(name)
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _items(value: object) -> list[Mapping[str, object]]:
    found = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("Mapping[str, object]", each) for each in found if isinstance(each, Mapping)]


def _text(section: Mapping[str, object], name: str) -> str:
    value = section.get(name)
    return value if isinstance(value, str) else ""


def _triggers(single: Mapping[str, object], schedules: list[Mapping[str, object]]) -> Iterator[object]:
    for section in (single, *schedules):
        yield section.get("trigger")


def _upstreams(single: Mapping[str, object], schedules: list[Mapping[str, object]]) -> Iterator[str]:
    for section in (single, *schedules):
        for each in _items(section.get("after")):
            yield _text(each, "pipeline")


def _sensors(values: object, depth: int = 0) -> Iterator[str]:
    """Yield every text under a member `key`, in rules, their groups and triggers."""
    if depth > NESTED_MAX:
        return
    if isinstance(values, list):
        for each in cast("list[object]", values):
            yield from _sensors(each, depth + 1)
    elif isinstance(values, Mapping):
        for name, value in cast("Mapping[str, object]", values).items():
            if name == "key" and isinstance(value, str):
                yield value
            else:
                yield from _sensors(value, depth + 1)


def _expected(root: Mapping[str, object], schedules: list[Mapping[str, object]]) -> float | None:
    for section in (root, *schedules):
        duration = parse_duration(_text(_section(section, "sla"), "expectedDuration"))
        if duration is not None:
            return duration.total_seconds()
    return None
