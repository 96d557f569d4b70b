"""Checks a configuration of the Lambda edition: what is ignored, takes effect, or cannot be used."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from worker.config.load import Loaded, load_text
from worker.core.model.calendars import Exclusion
from worker.core.model.checks import Operator
from worker.core.model.pipeline import UTC_ZONE, Pipeline, Schedule
from worker.core.model.rules import leaves
from worker.core.time.cron import next_fire
from worker.core.time.timestamps import format_utc
from worker.operations.migrate.findings import MigrationFinding, Topic, Weight
from worker.operations.migrate.survey import Surveyed
from worker.yaml.document import BadYaml
from worker.yaml.parser import read_yaml

# Keys that the Lambda edition read without effect or did not know; they have an effect here.
_BEGIN_TO_COUNT: Final = ("calendar", "holidays", "exclusions", "schedules")


@dataclass(frozen=True, slots=True)
class CheckedConfig:
    """Holds a checked configuration. If `pipeline` is None it cannot be used; the findings say why."""

    pipeline: Pipeline | None
    findings: tuple[MigrationFinding, ...]


def check_config(found: Surveyed, now: datetime) -> CheckedConfig:
    if found.config is None:
        what = "there is no CONFIG row with a text of it"
        remedy = "deploy it, or leave it out: nothing of it will run"
        return CheckedConfig(None, (_finding(found, Topic.CONFIG, Weight.REFUSED, what, remedy),))
    loaded = load_text(found.config, file=f"{found.pipeline} CONFIG", lenient=True)
    if loaded.pipeline is None:
        return CheckedConfig(None, tuple(_refusals(found, loaded)))
    if loaded.pipeline.id != found.pipeline:
        what = f"the text is of pipeline {loaded.pipeline.id}, but stored as {found.pipeline}, after its file's name"
        remedy = "give the file the name of its pipeline, and deploy it again"
        return CheckedConfig(None, (_finding(found, Topic.CONFIG, Weight.REFUSED, what, remedy),))
    return CheckedConfig(loaded.pipeline, tuple(_meaning(found, loaded, loaded.pipeline, now)))


def _refusals(found: Surveyed, loaded: Loaded) -> Iterator[MigrationFinding]:
    for error in loaded.errors:
        what = f"{error.path or 'the text'}: {error.message}"
        yield _finding(found, Topic.CONFIG, Weight.REFUSED, what, error.hint or "fix it and deploy it again")


def _meaning(found: Surveyed, loaded: Loaded, pipeline: Pipeline, now: datetime) -> Iterator[MigrationFinding]:
    yield _finding(found, Topic.CONFIG, Weight.UNDERSTOOD, "the configuration can be used")
    for warning in loaded.warnings:
        yield _finding(found, Topic.IGNORED, Weight.CHANGES, f"{warning.path}: {warning.message}", warning.hint)
    if not found.is_listed:
        remedy = f"`interlock migrate accept {found.pipeline}`, or deploy it again with this module"
        what = "it is in no list yet: sensors trigger it, but resync, cron and watchdog ignore it"
        yield _finding(found, Topic.LISTED, Weight.CHANGES, what, remedy)
    for schedule in pipeline.schedules:
        yield from _cron(found, schedule, now)
        yield from _sla(found, schedule)
        yield from _sla_zone(found, schedule)
    yield from _dotted(found, pipeline)
    ignored = {warning.path.rpartition(".")[2] for warning in loaded.warnings}
    yield from _calendars(found, pipeline, ignored)


def _cron(found: Surveyed, schedule: Schedule, now: datetime) -> Iterator[MigrationFinding]:
    if schedule.cron is None:
        return
    if not schedule.starts_by_cron:
        what = f"cron `{schedule.cron.text}` defines when {schedule.id} is expected, as before; its trigger starts it"
        yield _finding(found, Topic.CRON, Weight.UNDERSTOOD, what)
        return
    upcoming = next_fire(schedule.cron, schedule.zone, now)
    when = "never" if upcoming is None else format_utc(upcoming)
    if found.is_accepted:
        what = f"cron `{schedule.cron.text}` starts {schedule.id} here, which it never did before; next: {when}"
        remedy = "nothing, if that is wanted: it was accepted, or deployed with Interlock"
    else:
        what = f"cron `{schedule.cron.text}` never started {schedule.id}, and would here once accepted; next: {when}"
        remedy = f"`interlock migrate accept {found.pipeline}` starts it; to keep it silent, remove the cron expression"
    yield _finding(found, Topic.CRON, Weight.CHANGES, what, remedy)


def _sla(found: Surveyed, schedule: Schedule) -> Iterator[MigrationFinding]:
    sla = schedule.sla
    if sla is None or sla.deadline is None or sla.deadline.hour is None or not sla.day_offset:
        return
    days = "the day after" if sla.day_offset == 1 else f"{sla.day_offset} days after"
    what = f"the deadline of {schedule.id} is on {days} its period; the Lambda edition took the next such time of day"
    yield _finding(found, Topic.SLA, Weight.CHANGES, what, "set `sla.dayOffset` to the day that is meant")


def _sla_zone(found: Surveyed, schedule: Schedule) -> Iterator[MigrationFinding]:
    """Report a deadline without its own time zone: the Lambda edition read it in UTC."""
    sla = schedule.sla
    if sla is None or sla.deadline is None or sla.zone.key == UTC_ZONE.key:
        return
    given = _member(_member(_value_of(found.config or ""), "sla"), "timezone")
    if not given:
        what = (
            f"the deadline {sla.deadline} of {schedule.id} is in {sla.zone.key}, as its schedule; before it was in UTC"
        )
        yield _finding(found, Topic.SLA, Weight.CHANGES, what, "set `sla.timezone` to the one that is meant")


def _member(value: object, name: str) -> object:
    """Return a member by its name in any case, as the Lambda edition read it."""
    if not isinstance(value, Mapping):
        return None
    members = cast("Mapping[str, object]", value)
    return next((member for key, member in members.items() if key.lower() == name), None)


def _dotted(found: Surveyed, pipeline: Pipeline) -> Iterator[MigrationFinding]:
    """Report dotted fields: here a path; the Lambda edition wanted a field of exactly that name."""
    triggers = [schedule.trigger.rule for schedule in pipeline.schedules if schedule.trigger]
    post_run = leaves(pipeline.post_run.rules) if pipeline.post_run else ()
    rules = [*triggers, *leaves(pipeline.rules), *post_run]
    dotted = [rule for rule in rules if rule.field and "." in rule.field and rule.check is not Operator.EXISTS]
    for key, field in dict.fromkeys((rule.key, rule.field) for rule in dotted):
        what = f"the rule on `{key}` reads `{field}` as a path; the Lambda edition read a field of exactly this name"
        remedy = "nothing, if the path is what is meant; a field of exactly this name still comes first"
        yield _finding(found, Topic.DOTTED, Weight.CHANGES, what, remedy)


def _calendars(found: Surveyed, pipeline: Pipeline, ignored: set[str]) -> Iterator[MigrationFinding]:
    named = sorted((set(_keys_of(found.config or "")) & set(_BEGIN_TO_COUNT)) - ignored)
    excludes = any(schedule.exclusion != Exclusion() for schedule in pipeline.schedules)
    if "schedules" in named:
        what = "`schedules` was ignored, and has effect here: each of them is a schedule of its own"
        yield _finding(found, Topic.CALENDAR, Weight.CHANGES, what, "`interlock plan` shows what is expected of it")
    named = [name for name in named if name != "schedules"]
    if named and excludes:
        what = f"`{'`, `'.join(named)}` had no effect, and has here: those days are left out"
        yield _finding(found, Topic.CALENDAR, Weight.CHANGES, what, "`interlock plan` shows which days that are")


def _value_of(text: str) -> object:
    try:
        return read_yaml(text).value
    except BadYaml:
        return None


def _keys_of(text: str) -> Iterator[str]:
    """Yield every key of the text at any depth; the parser bounds the depth."""
    waiting: list[object] = [_value_of(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            members = cast("Mapping[str, object]", node)
            yield from (key.lower() for key in members)
            waiting += members.values()
        elif isinstance(node, list):
            waiting += cast("list[object]", node)


def _finding(found: Surveyed, topic: Topic, weight: Weight, what: str, remedy: str = "") -> MigrationFinding:
    return MigrationFinding(pipeline=found.pipeline, topic=topic, weight=weight, what=what, remedy=remedy)
