"""Evaluation: which sensors the rules of a pipeline need, and what follows from their content."""

from collections.abc import Generator, Mapping
from dataclasses import replace
from datetime import datetime

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, Schedule
from worker.core.model.readiness import READINESS_REASON_MAX, RULES_KEPT_MAX, Readiness, ReadinessVerdict
from worker.core.model.rule_report import RuleReport, missing_of, reports_of, unmet
from worker.core.model.rules import Absences, GroupResult, evaluate_in_turns, keys, may_hold
from worker.core.model.summaries import SUMMARY_KEY
from worker.core.model.values import Json
from worker.core.run.facts import RulesHeld, RulesNotHeld, SensorReading, UpstreamsNotMet
from worker.core.run.sensor_match import SensorContent, period_named
from worker.core.time.periods import Period


def required_sensors(pipeline: Pipeline, schedule: Schedule) -> tuple[str, ...]:
    """Return the names of the sensors that decide whether a run may start: the trigger's and each rule's."""
    trigger = (schedule.trigger.rule.key,) if schedule.trigger else ()
    return tuple(dict.fromkeys((*trigger, *keys(pipeline.rules))))


def post_run_sensors(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the names of the sensors that are watched after the job has ended."""
    return tuple(keys(pipeline.post_run.rules)) if pipeline.post_run else ()


def for_start(
    pipeline: Pipeline, schedule: Schedule, period: Period, readings: Mapping[str, SensorReading]
) -> dict[str, SensorReading]:
    """Leave out readings that only post-run rules name and that are for another period.

    The rules themselves see a sensor whatever period it names.
    """
    deciding = set(required_sensors(pipeline, schedule))
    return {
        name: reading
        for name, reading in readings.items()
        if name in deciding or period_named(SensorContent(reading.key or name, reading.data)) in {None, period}
    }


def evaluate_rules(
    pipeline: Pipeline,
    readings: Mapping[str, SensorReading],
    attempt: int,
    now: datetime,
    absences: Absences | None = None,
) -> Generator[None, None, RulesHeld | RulesNotHeld]:
    """Evaluate the rules on the readings at the one instant `now`; yield so that other tasks get a turn."""
    data = {name: reading.data for name, reading in readings.items()}
    result = yield from evaluate_in_turns(pipeline.rules, data, now, absences)
    saw = {name: reading.content_hash for name, reading in readings.items()}
    if not result.passed:
        return RulesNotHeld(attempt=attempt, saw=saw, reason=result.reason, result=result)
    return RulesHeld(attempt=attempt, saw=saw, baseline=baseline(pipeline, readings), readings=readings, result=result)


def baseline(pipeline: Pipeline, readings: Mapping[str, SensorReading]) -> dict[str, Json]:
    """Return the data of the sensors that drift is measured against."""
    return {name: readings[name].data for name in post_run_sensors(pipeline) if name in readings}


def judge_post_run(
    pipeline: Pipeline,
    started_on: Mapping[str, str],
    readings: Mapping[str, SensorReading],
    now: datetime,
    summary: Mapping[str, int] | None = None,
) -> Generator[None, None, GroupResult | None]:
    """Evaluate the post-run rules if one of their sensors differs from what the job was started on."""
    inputs = [name for name in post_run_sensors(pipeline) if name in readings and name in started_on]
    if pipeline.post_run is None or all(readings[name].content_hash == started_on[name] for name in inputs):
        return None
    data = with_summary({name: reading.data for name, reading in readings.items()}, summary)
    return (yield from evaluate_in_turns(pipeline.post_run.rules, data, now))


def judge_summary(
    pipeline: Pipeline,
    started_on: Mapping[str, str],
    readings: Mapping[str, SensorReading],
    summary: Mapping[str, int] | None,
    now: datetime,
) -> Generator[None, None, GroupResult | None]:
    """Evaluate post-run rules that name the job's summary, when the job has ended.

    The result is None if there is no summary, or if sensors that are not written yet may still change it.
    """
    if pipeline.post_run is None or summary is None or SUMMARY_KEY not in post_run_sensors(pipeline):
        return None
    others = [name for name in post_run_sensors(pipeline) if name != SUMMARY_KEY]
    is_new = {name: name in readings and readings[name].content_hash != started_on.get(name) for name in others}
    data: dict[str, Mapping[str, Json]] = {name: readings[name].data for name in others if is_new[name]}
    absences = {name: f"{name} was not written since the job was started" for name in others if not is_new[name]}
    rules, seen = pipeline.post_run.rules, with_summary(data, summary)
    result = yield from evaluate_in_turns(rules, seen, now, absences)
    return result if result.passed or not may_hold(result, absences) else None


def with_summary(
    data: Mapping[str, Mapping[str, Json]], summary: Mapping[str, int] | None
) -> Mapping[str, Mapping[str, Json]]:
    """Return what post-run rules see: the sensors, and under its own name the summary that the job gave."""
    return data if summary is None else {**data, SUMMARY_KEY: dict(summary)}


# --- readiness ------------------------------------------------------------------------------------------------------


def readiness_of(
    key: RunKey, fact: RulesHeld | RulesNotHeld | UpstreamsNotMet, now: datetime, version: int = 0
) -> Readiness:
    """Return the readiness that an evaluation found."""
    match fact:
        case UpstreamsNotMet(attempt=attempt, reason=reason):
            verdict, rules, total = ReadinessVerdict.WAITING, (unmet(reason),), 1
        case RulesHeld(attempt=attempt):
            reason, verdict = "", ReadinessVerdict.READY
            rules, total = _kept(fact.result)
        case RulesNotHeld(attempt=attempt, reason=reason):
            verdict = ReadinessVerdict.WAITING
            rules, total = _kept(fact.result)
    return Readiness(
        key=key,
        version=version,
        verdict=verdict,
        changed_at=now,
        attempt=attempt,
        reason=reason[:READINESS_REASON_MAX],
        rules=rules,
        rules_total=total,
    )


def _kept(result: GroupResult | None) -> tuple[tuple[RuleReport, ...], int]:
    reports = [] if result is None else list(reports_of(result))
    return tuple(sorted(reports, key=lambda report: report.holds)[:RULES_KEPT_MAX]), len(reports)


def is_news(known: Readiness | None, key: RunKey, fact: RulesHeld | RulesNotHeld | UpstreamsNotMet) -> bool:
    """Return whether an evaluation differs from what is known: in the verdict, or in the first reason.

    An older period never replaces a newer one. A schedule that is ready stays ready from period to period without a
    write; one that waits says for which period.
    """
    if known is None:
        return True
    if key.period < known.key.period:
        return False
    if isinstance(fact, RulesHeld):
        return known.verdict is not ReadinessVerdict.READY
    if known.verdict is ReadinessVerdict.READY or known.key != key:
        return True
    return _signature(_first(fact)) != _signature(known.first_missing)


def _first(fact: RulesNotHeld | UpstreamsNotMet) -> RuleReport | None:
    if isinstance(fact, UpstreamsNotMet):
        return unmet(fact.reason)
    return None if fact.result is None else next(missing_of(fact.result), None)


def _signature(report: RuleReport | None) -> RuleReport | None:
    """Return what identifies a reason. The sentence about an age changes by itself, and says nothing new."""
    return report if report is None or not report.key else replace(report, reason="")
