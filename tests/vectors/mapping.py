"""How the vectors, written for the reference, are put to this program: the only place that translates.

It may translate, never skip. A case whose expectation we do not meet on purpose is listed, with its reason, in
`DEVIATIONS.md`; `tests/unit/test_vectors.py` fails for a deviation that is not listed, and for a listed one that no
longer deviates.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

from tests.vectors.classify import classify
from tests.vectors.scenarios import play, wanted
from tests.vectors.steps import play_step, wanted_of_step
from worker.config.cron_text import BadCron, parse_cron
from worker.config.load import load_text
from worker.core.model.calendars import Calendar, past_inclusion_dates, reason_excluded
from worker.core.model.deadlines import SlaTimes
from worker.core.model.keys import RunKey, pipeline_pk, trigger_sk
from worker.core.model.pipeline import Job, Pipeline, PipelineId, Schedule, local_date
from worker.core.model.rules import Group, Mode, Operator, Rule, evaluate
from worker.core.model.sla_times import relative_times, times_for_run
from worker.core.run.state import start_token
from worker.core.schedule.expected_runs import ExpectedRun, expected_runs, overdue
from worker.core.time.cron import previous_fire
from worker.core.time.durations import format_duration
from worker.core.time.local_time import wall_at
from worker.core.time.periods import Period, period_of_sensor, sensor_keys, split_key
from worker.core.time.timestamps import parse_rfc3339

Case: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What this program says, and the answers the vector accepts."""

    got: object
    accepted: tuple[object, ...]

    @property
    def is_met(self) -> bool:
        return self.got in self.accepted


def expected(case: Case) -> tuple[object, ...]:
    return (case["expect"], *case.get("alsoAcceptable", ()))


# --- rules.json -------------------------------------------------------------------------------------------------------


def judge_rules(case: Case) -> Outcome:
    now = datetime.fromisoformat(case["now"])
    if "rule" in case:
        return Outcome({"pass": _is_rule_met(case["rule"], case["sensors"], now)}, expected(case))
    group = Group(mode=_mode(case["mode"]), members=tuple(_rule(raw) for raw in case["rules"]))
    result = evaluate(group, case["sensors"], now)
    return Outcome({"pass": result.passed, "results": [member.passed for member in result.members]}, expected(case))


def _is_rule_met(raw: Case, sensors: Case, now: datetime) -> bool:
    """A rule with an operator that does not exist is refused when it is loaded, and so never passes."""
    return raw["check"] in set(Operator) and evaluate(Group(members=(_rule(raw),)), sensors, now).passed


def _rule(raw: Case) -> Rule:
    return Rule(key=raw["key"], check=Operator(raw["check"]), field=raw.get("field"), value=raw.get("value"))


def _mode(text: str) -> Mode:
    """Old files are loaded leniently: what is not `any`, in whatever case, means all."""
    return Mode.ANY if text.upper() == "ANY" else Mode.ALL


# --- sla.json ---------------------------------------------------------------------------------------------------------

JOB = {"type": "command", "config": {"command": "true"}}


def judge_sla(case: Case) -> Outcome:
    raw = case["input"]
    answer = {"watchdog": _plan_watch, "cancel": _judge_completion, "reconcile": _judge_now}.get(raw["mode"], _times)
    return Outcome(answer(raw) or {"error": True}, expected(case))


def _times(raw: Case) -> dict[str, object] | None:
    times = _times_of(raw)
    return times and _shown(times)


def _judge_completion(raw: Case) -> dict[str, object] | None:
    """A verdict is the completion's time against instants that were fixed before; here it succeeded at `now`."""
    given = SlaTimes(_instant(raw["warningAt"]), _instant(raw["breachAt"])) if "breachAt" in raw else None
    times = given or _times_of(raw)
    return times and {**_shown(times), "verdict": "SLA_BREACH" if times.is_breached(_now(raw)) else "SLA_MET"}


def _judge_now(raw: Case) -> dict[str, object] | None:
    times, now = _times_of(raw), _now(raw)
    if times is None:
        return None
    verdict = "SLA_BREACH" if times.is_breached(now) else "SLA_WARNING" if times.is_warning_due(now) else "SLA_MET"
    return {**_shown(times), "verdict": verdict}


def _plan_watch(raw: Case) -> dict[str, object] | None:
    """A watch is armed for the first expected run whose deadline has not passed."""
    schedule = _sla_schedule(raw)
    run = schedule and _next_due(schedule, _now(raw))
    if not run or not run.breach_at or not schedule or not schedule.sla:
        return None
    days_later = timedelta(days=schedule.sla.day_offset)
    name = f"{raw['pipelineId']}-{run.schedule_id}-{run.period}"
    return {
        "date": str(run.period),
        "slaDate": str(replace(run.period, date=run.period.date + days_later)),
        **_shown(SlaTimes(run.warning_at, run.breach_at)),
        "scheduled": run.breach_at > _now(raw),
        "names": [f"{name}-sla-warning", f"{name}-sla-breach"],
    }


def _times_of(raw: Case) -> SlaTimes | None:
    """None where the calculation is refused: a bad setting, arrival or date. No date means the next deadline's."""
    schedule = _sla_schedule(raw)
    if schedule is None or schedule.sla is None:
        return None
    if arrival := raw.get("sensorArrivalAt"):
        arrived_at = parse_rfc3339(arrival)
        return arrived_at and relative_times(schedule.sla, arrived_at)
    if raw.get("date"):
        period = Period.parse(raw["date"])
        return period and times_for_run(schedule.sla, schedule, period, None)
    run = _next_due(schedule, _now(raw))
    return SlaTimes(run.warning_at, run.breach_at) if run and run.breach_at else None


def _next_due(schedule: Schedule, now: datetime) -> ExpectedRun | None:
    runs = expected_runs(schedule, now - timedelta(days=1), now + timedelta(days=2))
    return next((run for run in runs if run.breach_at and run.breach_at >= now), None)


def _sla_schedule(raw: Case) -> Schedule | None:
    """The pipeline file that asks for this; what the reference refuses when it computes is refused when it is loaded.

    The formulae take the date as it is, so there the offset is none; the watchdog adds the default one.
    """
    offset = {} if raw["mode"] == "watchdog" else {"dayOffset": 0}
    settings = {key: raw.get(key) for key in ("deadline", "expectedDuration", "maxDuration", "timezone")}
    start = {"cron": raw.get("cron"), "timezone": raw.get("timezone"), "trigger": {"key": "orders", "check": "exists"}}
    return _schedule({"schedule": _filled(start), "sla": {**_filled(settings), **offset}, "job": JOB}, lenient=False)


def _schedule(config: Case, *, lenient: bool) -> Schedule | None:
    pipeline = _pipeline(config, lenient=lenient)
    return pipeline and pipeline.schedules[0]


def _pipeline(config: Case, *, lenient: bool) -> Pipeline | None:
    text = json.dumps({"pipeline": {"id": "p1"}, **config})
    return load_text(text, calendars=CALENDARS, lenient=lenient, today=date(2026, 1, 1)).pipeline


def _filled(settings: Case) -> Case:
    """An empty setting means in the reference what an absent one means here."""
    return {key: value for key, value in settings.items() if value}


def _shown(times: SlaTimes) -> dict[str, object]:
    breach_at = times.breach_at and _text(times.breach_at)
    return {"warningAt": times.warning_at and _text(times.warning_at), "breachAt": breach_at}


def _now(raw: Case) -> datetime:
    return _instant(raw["now"])


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


# --- config.json ------------------------------------------------------------------------------------------------------

# The vectors name a calendar that the reference never looks up; here it has to exist.
CALENDARS = {"us-federal": Calendar(name="us-federal", dates={date(2026, 12, 25): "Christmas Day"})}


def judge_config(case: Case) -> Outcome:
    """A file is valid, or every text the vector asks for is in some error, as many errors as it counts."""
    errors = [str(problem) for problem in load_text(case["yaml"], calendars=CALENDARS).errors]
    unmentioned = [wanted for wanted in case["errorMentions"] if not any(wanted in error for error in errors)]
    counted = {"errors": len(errors)} if "errorCount" in case else {}
    got = {"valid": not errors, "unmentioned": unmentioned, **counted}
    wanted_count = {"errors": case["errorCount"]} if counted else {}
    return Outcome(got=got, accepted=({"valid": case["valid"], "unmentioned": [], **wanted_count},))


# --- calendar.json ----------------------------------------------------------------------------------------------------


def judge_calendar(case: Case) -> Outcome:
    if case["kind"] == "pastInclusionDates":
        return Outcome(_past_inclusions(case), expected(case))
    settings = {"exclude": case["exclude"], "timezone": case["timezone"]}
    schedule = _schedule({"schedule": _filled(settings)}, lenient=True)
    assert schedule is not None
    if case["kind"] == "excludedNow":
        # A date is judged, never the moment: the one that the pipeline's clock shows.
        period = Period(wall_at(_now(case), schedule.zone).date())
    else:
        period = Period.parse(case["date"])
    reason = period and reason_excluded(schedule.exclusion, local_date(period, schedule))
    return Outcome({"excluded": reason is not None}, expected(case))


def _past_inclusions(case: Case) -> dict[str, object]:
    periods = [Period.parse(text) for text in case["dates"]]
    past = past_inclusion_dates([period.date for period in periods if period], _now(case).date())
    dates = [day.isoformat() for day in past]
    return {"dates": dates, "mostRecent": dates[0] if dates else None}


# --- schedule.json ----------------------------------------------------------------------------------------------------


def judge_schedule(case: Case) -> Outcome:
    answers: Mapping[str, Callable[[Case], object]] = {
        "executionDate": lambda raw: {"date": str(period_of_sensor(raw["sensorData"], None, _now(raw).date()))},
        "scheduleId": lambda raw: {"scheduleId": _found(_schedule(raw["config"], lenient=True)).id},
        "lastFire": _last_fire,
        "missedSchedule": _missed_schedule,
        "missedInclusion": _missed_inclusions,
        "triggerDeadline": _trigger_deadline,
        "remap": _remap,
        # Step Functions limited names to 80 characters; targets are given a token of fixed length instead.
        "executionName": lambda raw: {"name": start_token(raw["name"], 1)},
        "lockTtl": _run_timeout,
        "loopConfig": _loop_config,
    }
    return Outcome(answers[case["kind"]](case), expected(case))


def _found(schedule: Schedule | None) -> Schedule:
    assert schedule is not None
    return schedule


def _last_fire(case: Case) -> dict[str, object]:
    try:
        cron = parse_cron(case["cron"])
    except BadCron:
        return {"lastFire": None}
    zone = ZoneInfo(case["timezone"] or "UTC")
    fire = previous_fire(cron, zone, _now(case) + timedelta.resolution)
    return {"lastFire": fire and _text(fire)}


def _missed_schedule(case: Case) -> dict[str, object]:
    """What is overdue since the process began, else since the day did, and has no run."""
    now = _now(case)
    since = _instant(case["startedAt"]) if case["startedAt"] else now.replace(hour=0, minute=0)
    missed = next(_overdue_without_run(case, since), None)
    return {"event": "SCHEDULE_MISSED" if missed else None, "date": missed and str(missed.period)}


def _missed_inclusions(case: Case) -> dict[str, object]:
    """Those that were told already have a mark; the reference kept its marks as sensors."""
    marked = {row["SK"].removeprefix("SENSOR#irregular-missed-check#") for row in case["controlRows"]}
    runs = _overdue_without_run(case, _now(case))
    dates = [str(run.period) for run in runs if str(run.period) not in marked]
    return {"event": "IRREGULAR_SCHEDULE_MISSED", "dates": dates}


def _overdue_without_run(case: Case, since: datetime) -> Iterator[ExpectedRun]:
    pipeline = _pipeline(case["config"], lenient=True)
    if pipeline is None or pipeline.dry_run:
        return
    taken = {row["SK"] for row in case["controlRows"]}
    for run in overdue(pipeline.schedules[0], since, _now(case)):
        if _run_row(run) not in taken:
            yield run


def _run_row(run: ExpectedRun) -> str:
    return trigger_sk(RunKey(PipelineId("p1"), run.schedule_id, run.period))


def _trigger_deadline(case: Case) -> dict[str, object]:
    """The deadline of this day, or of this hour, and whether the run that it is about has begun in time."""
    schedule, now = _found(_schedule(case["config"], lenient=True)), _now(case)
    if schedule.trigger is None or schedule.trigger.deadline is None:
        return {"checked": False, "expired": False}
    hourly = schedule.trigger.deadline.hour is None
    start = now.replace(minute=0) if hourly else now.replace(hour=0, minute=0)
    end = start + (timedelta(hours=1) if hourly else timedelta(days=1))
    runs = expected_runs(schedule, start - timedelta(days=2), end + timedelta(days=2))
    [(run, at)] = [(run, at) for run in runs if (at := run.trigger_deadline_at) and start <= at < end]
    row = {"PK": pipeline_pk("p1"), "SK": _run_row(run), "status": "FAILED_FINAL"}
    # The run's row alone says whether it began; the job log is a record, not a source of decisions.
    expired = at <= now and row["SK"] not in {other["SK"] for other in case["controlRows"]}
    answer = {"checked": True, "date": str(run.period), "scheduleId": run.schedule_id, "expired": expired}
    closed = {"event": "SENSOR_DEADLINE_EXPIRED", "rowCreated": row} if expired else {}
    return {**answer, "deadlineAt": _text(at), **closed}


def _remap(case: Case) -> dict[str, object]:
    period = Period.parse(case["date"])
    return {"sensors": _as_read(case["sensors"], period) if period else case["sensors"]}


def _as_read(sensors: Case, period: Period) -> Case:
    """Return the sensors as rules of one period see them: each name's data under the first key that exists."""
    names = {name for key in sensors for name, dated in [split_key(key)] if dated == period}
    found = {name: next(key for key in sensor_keys(name, period) if key in sensors) for name in names}
    return {**sensors, **{name: sensors[key] for name, key in found.items()}}


def _run_timeout(case: Case) -> dict[str, object]:
    """The lock's lifetime stood for how long a run may take; that is a setting of the job here, and no row expires."""
    timeout = case["env"].get("SFN_TIMEOUT_SECONDS")
    own = {"runTimeoutSeconds": int(timeout) if timeout.isdecimal() else timeout} if timeout else {}
    job = _job({"job": own})
    return {"seconds": job.run_timeout.total_seconds()} if job else {"refused": timeout}


def _loop_config(case: Case) -> dict[str, object]:
    schedule, job = _found(_schedule(case["config"], lenient=True)), _job(case["config"])
    assert job is not None
    evaluation, sla = schedule.evaluation, schedule.sla
    answer: dict[str, object] = {
        "evaluationIntervalSeconds": evaluation.interval.total_seconds(),
        "evaluationWindowSeconds": evaluation.window.total_seconds(),
        "jobCheckIntervalSeconds": job.poll_interval.total_seconds(),
        "jobPollWindowSeconds": job.poll_window.total_seconds(),
    }
    if sla is None:
        return answer
    duration = format_duration(sla.expected_duration) if sla.expected_duration else None
    shown = {"deadline": str(sla.deadline), "expectedDuration": duration, "timezone": sla.zone.key}
    return {**answer, "sla": shown}


def _job(config: Case) -> Job | None:
    pipeline = _pipeline({**config, "job": {**JOB, **config.get("job", {})}}, lenient=True)
    return pipeline and pipeline.job


# --- classify.json ----------------------------------------------------------------------------------------------------


def judge_classify(case: Case) -> Outcome:
    return Outcome(classify(case), expected(case))


# --- scenarios.json ---------------------------------------------------------------------------------------------------


def judge_scenario(case: Case) -> Outcome:
    """One record on the real router, or one step of an execution on the real engine."""
    if "record" in case["when"]:
        return Outcome(play(case), (wanted(case),))
    return Outcome(play_step(case), (wanted_of_step(case),))


def is_elsewhere(case: Case) -> bool:
    """The watchdog's scenarios are whole passes, played twice each by `tests/scenario/test_watchdog_vectors.py`."""
    return "watchdogCheck" in case.get("when", {})


TRANSLATORS: Mapping[str, Callable[[Case], Outcome]] = {
    "rules": judge_rules,
    "config": judge_config,
    "sla": judge_sla,
    "calendar": judge_calendar,
    "schedule": judge_schedule,
    "classify": judge_classify,
    "scenarios": judge_scenario,
}
