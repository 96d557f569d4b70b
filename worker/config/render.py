"""Renders a pipeline as the text of a file: minimal, canonical, and parsed to the same pipeline.

Values that equal their default are left out. The calendars in use are included, so that the text is self-contained: a
worker without calendar files reads the same pipeline, and a changed calendar is a changed configuration.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import assert_never

import yaml

from worker.config.schedules import default_day_offset
from worker.config.schema import WEEKDAYS
from worker.core.dependencies.period_mapping import GRAIN_NAMES
from worker.core.model.calendars import Calendar, Exclusion
from worker.core.model.ids import CRON_SCHEDULE, STREAM_SCHEDULE
from worker.core.model.pipeline import (
    LOOK_BACK_DEFAULT,
    MAX_AHEAD,
    UTC_ZONE,
    Dependency,
    Evaluation,
    Job,
    JobType,
    Match,
    MisfirePolicy,
    OnRerun,
    Pipeline,
    PostRun,
    Requirement,
    Schedule,
    Sla,
    StartBy,
    Trigger,
    Undated,
)
from worker.core.model.probes import (
    EVERY_DEFAULT,
    TIMEOUT_DEFAULT,
    TTL_INTERVALS,
    PostRunMonitor,
    Probe,
    ProbeRun,
)
from worker.core.model.rules import Group, Json, Mode, Operator, Rule
from worker.core.time.durations import format_duration
from worker.yaml.parser import is_text

Section = dict[str, Json]

_DEFAULT_JOB = Job(type=JobType.COMMAND, config={})
_DEFAULT_POST_RUN = PostRun(rules=Group())
_DEFAULT_RULE = Rule(key="", check=Operator.EXISTS)
_BUSINESS_DAYS: Mapping[int, Json] = {1: "first", -1: "last"}
_YAML_WIDTH = 120


def to_mapping(pipeline: Pipeline) -> Section:
    """Return the content of the file, in the order in which people write it."""
    made_from = pipeline.archetype
    return {
        "pipeline": _given(
            id=pipeline.id,
            owner=pipeline.owner or None,
            description=pipeline.description or None,
            archetype={"id": made_from.id, "hash": made_from.hash} if made_from else None,
        ),
        **_schedules(pipeline),
        **_given(
            validation=_validation(pipeline.rules) or None,
            probes=[_probe(probe) for probe in pipeline.probes] or None,
            job=_job(pipeline.job) if pipeline.job else None,
            postRun=None if pipeline.post_run is None else _post_run(pipeline.post_run),
            dryRun=pipeline.dry_run or None,
            calendars=_calendars(pipeline) or None,
        ),
    }


def to_json(pipeline: Pipeline) -> str:
    """Return the canonical text: two pipelines are equal exactly if their texts are."""
    # ASCII only: inside quotes, YAML folds some of the line breaks that JSON keeps.
    return json.dumps(to_mapping(pipeline), sort_keys=True, separators=(",", ":"), allow_nan=False)


def to_yaml(pipeline: Pipeline) -> str:
    """Return the text for people."""
    return mapping_to_yaml(to_mapping(pipeline))


def mapping_to_yaml(section: Mapping[str, Json]) -> str:
    """Return a configuration as a file has it, for example without its secrets."""
    return yaml.dump(dict(section), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_YAML_WIDTH)


def config_hash(pipeline: Pipeline) -> str:
    """Return the name of this configuration version: SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(to_json(pipeline).encode()).hexdigest()


class _Dumper(yaml.SafeDumper):
    """Writes every value out, and quotes text that the dialect would read as another type."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the library's signature
        return True


def _represent_text(_: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return yaml.ScalarNode("tag:yaml.org,2002:str", text, style=None if is_text(text) else '"')


_Dumper.add_representer(str, _represent_text)


def _given(**members: Json) -> Section:
    """Return a section of the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}


def _unless(value: Json, default: Json) -> Json:
    return None if value == default else value


def _duration(value: timedelta, default: timedelta) -> Json:
    return None if value == default else format_duration(value)


def _schedules(pipeline: Pipeline) -> Section:
    match pipeline.schedules:
        case (schedule,) if schedule.id == (CRON_SCHEDULE if schedule.cron else STREAM_SCHEDULE):
            return _given(schedule=_schedule(schedule) or None, sla=_sla(schedule))
        case schedules:
            return {"schedules": [{"id": each.id, **_schedule(each), **_given(sla=_sla(each))} for each in schedules]}


def _schedule(schedule: Schedule) -> Section:
    default_start = StartBy.TRIGGER if schedule.trigger or schedule.after else StartBy.CRON
    return _given(
        cron=schedule.cron.text if schedule.cron else None,
        timezone=_unless(schedule.zone.key, UTC_ZONE.key),
        trigger=_trigger(schedule.trigger) if schedule.trigger else None,
        after=[_dependency(each) for each in schedule.after] or None,
        grain=None if schedule.grain is None else GRAIN_NAMES[schedule.grain],
        start=_unless(schedule.start.value, default_start.value),
        exclude=_exclude(schedule.exclusion) or None,
        businessDays=_business_days(schedule.exclusion),
        include={"dates": [day.isoformat() for day in schedule.include_dates]} if schedule.include_dates else None,
        time=str(schedule.expected_at) if schedule.expected_at else None,
        maxAhead=_duration(schedule.max_ahead, MAX_AHEAD),
        evaluation=_evaluation(schedule.evaluation) or None,
        misfire=_misfire(schedule.misfire),
    )


def _dependency(dependency: Dependency) -> Section:
    return _given(
        pipeline=dependency.pipeline,
        schedule=dependency.schedule,
        periods=None if dependency.periods is None else dependency.periods.value,
        require=_unless(dependency.require.value, Requirement.COMPLETED.value),
        within=_duration(dependency.within, LOOK_BACK_DEFAULT),
        atLeast=dependency.at_least,
        onRerun=_unless(dependency.on_rerun.value, OnRerun.RERUN.value),
    )


def _trigger(trigger: Trigger) -> Section:
    return {
        **_rule(trigger.rule),
        **_given(
            deadline=str(trigger.deadline) if trigger.deadline else None,
            match=_unless(trigger.match.value, Match.EXACT.value),
            undated=_unless(trigger.undated.value, Undated.ONCE.value),
        ),
    }


def _exclude(exclusion: Exclusion) -> Section:
    names = [calendar.name for calendar in exclusion.calendars]
    return _given(
        weekends=exclusion.weekends or None,
        days=_weekdays(exclusion.weekdays) or None,
        dates=[day.isoformat() for day in sorted(exclusion.dates)] or None,
        calendar=names[0] if len(names) == 1 else names or None,
    )


def _weekdays(weekdays: frozenset[int]) -> list[Json]:
    return [WEEKDAYS[day] for day in sorted(weekdays)]


def _business_days(exclusion: Exclusion) -> Json:
    days = [_BUSINESS_DAYS.get(day, day) for day in sorted(exclusion.business_days)]
    return days[0] if len(days) == 1 else days or None


def _evaluation(evaluation: Evaluation) -> Section:
    default = Evaluation()
    return _given(
        window=_duration(evaluation.window, default.window),
        interval=_duration(evaluation.interval, default.interval),
        reopen=evaluation.reopen or None,
    )


def _misfire(misfire: MisfirePolicy) -> Json:
    default = MisfirePolicy()
    if misfire.max_lateness == default.max_lateness:
        return _unless(misfire.policy.value, default.policy.value)
    return {"policy": misfire.policy.value, "maxLateness": format_duration(misfire.max_lateness)}


def _sla(schedule: Schedule) -> Section | None:
    return _sla_section(schedule.sla, schedule) if schedule.sla else None


def _sla_section(sla: Sla, schedule: Schedule) -> Section:
    return _given(
        deadline=str(sla.deadline) if sla.deadline else None,
        expectedDuration=None if sla.expected_duration is None else format_duration(sla.expected_duration),
        maxDuration=format_duration(sla.max_duration) if sla.max_duration else None,
        evaluationDeadline=str(sla.evaluation_deadline) if sla.evaluation_deadline else None,
        maxEvaluation=format_duration(sla.max_evaluation) if sla.max_evaluation else None,
        timezone=_unless(sla.zone.key, schedule.zone.key),
        critical=sla.critical or None,
        dayOffset=_unless(sla.day_offset, default_day_offset(sla.leading_deadline, schedule.cron)),
    )


def _validation(group: Group) -> Section:
    match group.mode:
        case Mode.ALL:
            trigger: Json = None
        case Mode.ANY:
            trigger = Mode.ANY.value
        case Mode.AT_LEAST:
            trigger = {"atLeast": group.count}
        case _:
            assert_never(group.mode)
    return _given(trigger=trigger, rules=_members(group) or None)


def _members(group: Group) -> list[Json]:
    return [_rule(member) if isinstance(member, Rule) else _group(member) for member in group.members]


def _group(group: Group) -> Section:
    match group.mode:
        case Mode.ALL:
            return {"all": _members(group)}
        case Mode.ANY:
            return {"any": _members(group)}
        case Mode.AT_LEAST:
            return {"atLeast": group.count, "rules": _members(group)}
        case _:
            assert_never(group.mode)


def _rule(rule: Rule) -> Section:
    if rule.check is Operator.PASSES:
        return {"key": rule.key, "check": rule.check.value}
    section = {"key": rule.key, "check": rule.check.value, **_given(field=rule.field)}
    if rule.check not in (Operator.EXISTS, Operator.MISSING):
        section["value"] = rule.value  # null as well: the field is compared with it
    return {**section, **_given(maxFutureSkew=_duration(rule.max_future, _DEFAULT_RULE.max_future))}


def _job(job: Job) -> Section:
    default = _DEFAULT_JOB
    return {
        "type": job.type.value,
        **_given(
            config=dict(job.config) or None,
            maxRetries=_unless(job.max_retries, default.max_retries),
            maxCodeRetries=_unless(job.max_code_retries, default.max_code_retries),
            maxDriftReruns=_unless(job.max_drift_reruns, default.max_drift_reruns),
            maxManualReruns=_unless(job.max_manual_reruns, default.max_manual_reruns),
            jobPollWindowSeconds=_seconds(job.poll_window, default.poll_window),
            pollIntervalSeconds=_seconds(job.poll_interval, default.poll_interval),
            runTimeoutSeconds=_seconds(job.run_timeout, default.run_timeout),
            onUnknownStart=_unless(job.on_unknown_start.value, default.on_unknown_start.value),
            overlap=_unless(job.overlap.value, default.overlap.value),
        ),
    }


def _seconds(value: timedelta, default: timedelta) -> Json:
    return None if value == default else value // timedelta(seconds=1)


def _post_run(post_run: PostRun) -> Section:
    default = _DEFAULT_POST_RUN
    return _given(
        rules=_members(post_run.rules) or None,
        driftField=_unless(post_run.drift_field, default.drift_field),
        driftThreshold=_unless(post_run.drift_threshold, default.drift_threshold),
        sensorTimeout=_duration(post_run.sensor_timeout, default.sensor_timeout),
        match=_unless(post_run.match.value, default.match.value),
        evaluation=None if post_run.evaluation is None else _evaluation(post_run.evaluation),
        monitor=None if post_run.monitor is None else _monitor(post_run.monitor),
    )


def _monitor(monitor: PostRunMonitor) -> Section:
    return {"for": format_duration(monitor.lasts), "every": format_duration(monitor.every)}


def _probe(probe: Probe) -> Section:
    return {
        "key": probe.key,
        "type": probe.type.value,
        **_given(
            config=dict(probe.config) or None,
            every=_duration(probe.every, EVERY_DEFAULT),
            timeout=_duration(probe.timeout, TIMEOUT_DEFAULT),
            ttl=_duration(probe.ttl, TTL_INTERVALS * probe.every),
            run=_unless(probe.run.value, ProbeRun.WHILE_WAITING.value),
            jsonPath=probe.select_all or dict(probe.select) or None,
            activeHours=str(probe.active_hours) if probe.active_hours else None,
        ),
    }


def _calendars(pipeline: Pipeline) -> Section:
    used = {each.name: each for schedule in pipeline.schedules for each in schedule.exclusion.calendars}
    return {name: _calendar(used[name]) for name in sorted(used)}


def _calendar(calendar: Calendar) -> Section:
    dates: list[Json] = [
        {"date": day.isoformat(), "name": name} if name else day.isoformat()
        for day, name in sorted(calendar.dates.items())
    ]
    return _given(days=_weekdays(calendar.weekdays) or None, dates=dates or None)
