"""Explains the gates before a run exists: configuration, schedule, calendar, pause and trigger."""

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta

from worker.core.model.calendars import reason_excluded
from worker.core.model.pipeline import Match, Schedule, Undated, local_date
from worker.core.model.rules import RuleResult, evaluate_rule
from worker.core.model.run_names import rerun_command
from worker.core.model.sla_times import trigger_deadline_at
from worker.core.run.state import State
from worker.core.schedule.expected_runs import ExpectedRun, expected_runs
from worker.core.schedule.period_range import OutOfRange, out_of_range
from worker.core.time.local_time import reached_at, wall_at
from worker.core.time.periods import LAST_DATE, Period, period_of_sensor
from worker.operations.explain.conditions import condition_of
from worker.operations.explain.explanation import Gate, GateFinding, is_closed, is_open, is_unknown
from worker.operations.explain.remedies import change_for
from worker.operations.explain.snapshot import RunSnapshot, moment
from worker.operations.explain.timing import why_not_begun
from worker.store import retention
from worker.store.repos.sensors import Sensor

LOOK_AROUND = timedelta(days=3)  # a period's own time is this close to it, in any zone and with any offset
LOOK_AHEAD = timedelta(days=62)  # for the next expected run: the longest gap of a monthly schedule
DAYS_TRIED_MAX = 366
HASH_SHOWN = 12


def config(sight: RunSnapshot) -> GateFinding:
    seen, pipeline = sight.config, sight.pipeline
    sentence = f"version {seen.applied[:HASH_SHOWN]}"
    if seen.applied != seen.in_force:
        sentence += f", with which the run started; later runs use {seen.in_force[:HASH_SHOWN]}"
    if seen.problems:
        # The version in force stays: a bad deployment stops nothing.
        sentence += f"; the configuration deployed since is invalid: {seen.problems[0]}"
    if pipeline.dry_run:
        return is_closed(
            Gate.CONFIG,
            f"{sentence}; dry run: no job starts",
            f"set dryRun to false and push {pipeline.id}",
        )
    if pipeline.job is None:
        return is_closed(Gate.CONFIG, f"{sentence}; it has no job to start", f"add a job to {pipeline.id} and push it")
    return is_open(Gate.CONFIG, sentence)


# --- schedule ---------------------------------------------------------------------------------------------------------


def schedule(sight: RunSnapshot) -> GateFinding:
    period, zone = sight.key.period, sight.schedule.zone
    refusal = refused(period, sight.schedule, sight.now, exists=sight.run is not None)
    expected = None if sight.run is not None else expected_run(sight.schedule, sight)
    # A cron time needs no action.
    is_awaited = expected is not None and not sight.schedule.starts_by_trigger
    if refusal is not None and not (refusal.is_ahead and is_awaited):
        return is_closed(Gate.SCHEDULE, refusal.reason, refusal.hint)
    if sight.run is not None:
        return is_open(Gate.SCHEDULE, f"{_started_by(sight.schedule)}; the run exists")
    if sight.schedule.starts_by_trigger or (sight.schedule.starts_by_upstreams and not sight.schedule.starts_by_cron):
        due = f"; expected at {moment(expected.at, zone)}" if expected and expected.at else ""
        return is_open(Gate.SCHEDULE, f"{_started_by(sight.schedule)}{due}{_next(sight.schedule, sight.now)}")
    if sight.schedule.starts_by_cron:
        return _by_cron(sight, expected)
    return is_closed(Gate.SCHEDULE, "only a rerun starts it: it has neither cron nor trigger", _rerun(sight))


def refused(period: Period, schedule: Schedule, now: datetime, *, exists: bool) -> OutOfRange | None:
    """Return why no run can start for a period; None if it can or did."""
    found = out_of_range(period, schedule, now, kept_for=retention.RUNS_BEGIN)
    return None if found is None or (found.is_ahead and exists) else found


def expected_run(schedule: Schedule, sight: RunSnapshot) -> ExpectedRun | None:
    """Return the expected run of the period; None if the schedule expects none."""
    begins = reached_at(sight.key.period.begins, schedule.hour_zone)
    around = expected_runs(schedule, begins - LOOK_AROUND, begins + LOOK_AROUND)
    return next((run for run in around if run.period == sight.key.period), None)


def _by_cron(sight: RunSnapshot, expected: ExpectedRun | None) -> GateFinding:
    zone, begun_by = sight.schedule.zone, _started_by(sight.schedule)
    if expected is None or expected.at is None:
        return is_closed(
            Gate.SCHEDULE,
            f"{begun_by}, and never for {sight.key.period}{_next(sight.schedule, sight.now)}",
            _rerun(sight),
        )
    at = moment(expected.at, zone)
    if expected.excluded is not None:
        # The calendar is what blocks it, and says so: to wait for this time alone would be in vain.
        return is_open(Gate.SCHEDULE, f"{begun_by}; the time of this period is {at}")
    if expected.at > sight.now:
        return is_closed(Gate.SCHEDULE, f"{begun_by} at {at}", f"wait until {at}")
    reason = why_not_begun(expected.at, sight.timing, sight.now) if sight.timing else "the reason was not recorded"
    came = f"{begun_by}; it was due at {at}, but no run started: {reason}"
    return is_unknown(Gate.SCHEDULE, f"{came}{_next(sight.schedule, sight.now)}", _rerun(sight))


def _started_by(schedule: Schedule) -> str:
    cron = f"cron {schedule.cron.text!r} in {schedule.zone.key}" if schedule.cron else ""
    trigger = f"sensor {schedule.trigger.rule.key}" if schedule.trigger else ""
    if schedule.starts_by_trigger:
        also = f", and so does {cron}" if schedule.starts_by_cron else ""
        return f"{trigger} starts it{also}"
    if schedule.starts_by_upstreams:
        also = f", and so does {cron}" if schedule.starts_by_cron else ""
        return (
            f"{', '.join(str(each) for each in schedule.after)} start{'s' if len(schedule.after) == 1 else ''} it{also}"
        )
    return f"{cron} starts it" if schedule.starts_by_cron else "only a rerun starts it"


def _next(schedule: Schedule, now: datetime) -> str:
    coming = (run for run in expected_runs(schedule, now, now + LOOK_AHEAD) if run.excluded is None)
    run = next(coming, None)
    if run is None:
        return ""
    when = run.at or run.deadline_at
    by = "" if when is None else f" {'at' if run.at else 'by'} {moment(when, schedule.zone)}"
    return f"; next is {run.period}{by}"


def _rerun(sight: RunSnapshot) -> str:
    return f"run `{rerun_command(sight.key, sight.pipeline)}`"


# --- calendar and pause -----------------------------------------------------------------------------------------------


def calendar(sight: RunSnapshot) -> GateFinding:
    day = local_date(sight.key.period, sight.schedule)
    reason = reason_excluded(sight.schedule.exclusion, day)
    if reason is None:
        return is_open(Gate.CALENDAR, f"{day} is not excluded")
    later = _next_included(sight.schedule, day)
    instead = f", or take {later}, the next date that runs" if later else ""
    change = f"take {day} out of the exclusions and push{instead}"
    return is_closed(Gate.CALENDAR, f"{day} is excluded: {reason}", change, *_start_by_cron(sight))


def _start_by_cron(sight: RunSnapshot) -> Iterator[str]:
    """Yield what starts a period that only cron starts, once its date is no longer excluded."""
    if sight.run is not None or not sight.schedule.starts_by_cron or sight.schedule.starts_by_trigger:
        return
    expected = expected_run(sight.schedule, sight)
    if expected is not None and expected.at is not None:
        is_ahead = expected.at > sight.now
        yield f"wait until {moment(expected.at, sight.schedule.zone)}" if is_ahead else _rerun(sight)


def _next_included(schedule: Schedule, day: date) -> date | None:
    """Return the next date for which a run may start; None if there is none soon."""
    if schedule.cron is not None or schedule.include_dates:
        tomorrow = reached_at(datetime.combine(day + timedelta(days=1), time()), schedule.zone)
        coming = (run for run in expected_runs(schedule, tomorrow, tomorrow + LOOK_AHEAD) if run.excluded is None)
        dates = (local_date(run.period, schedule) for run in coming)
        # A cron at several hours names the hour before: its first period after midnight is still of the excluded day.
        return next((later for later in dates if later > day), None)
    days = (day + timedelta(days=number) for number in range(1, min(DAYS_TRIED_MAX, (LAST_DATE - day).days + 1)))
    return next((later for later in days if reason_excluded(schedule.exclusion, later) is None), None)


def pause(sight: RunSnapshot) -> GateFinding:
    seen, zone = sight.pause, sight.schedule.zone
    if seen is None:
        return is_open(Gate.PAUSE, "not paused")
    if seen.is_over(sight.now):
        return is_open(Gate.PAUSE, "the last pause has ended")
    resume = f"resume the pipeline: `interlock resume {sight.key.pipeline}`"
    if seen.until is None:
        return is_closed(Gate.PAUSE, f"paused until someone resumes it: {seen.reason}", resume)
    at = moment(seen.until, zone)
    return is_closed(Gate.PAUSE, f"paused until {at}: {seen.reason}", f"{resume}, or wait until {at}")


# --- upstreams --------------------------------------------------------------------------------------------------------


def after(sight: RunSnapshot) -> GateFinding:
    seen, run = sight.upstreams, sight.own_run
    if run is not None and run.state is not State.EVALUATING:
        number = len(run.started_after)
        return is_open(Gate.AFTER, f"started on {number} upstream run{'' if number == 1 else 's'}")
    if seen.gate.is_passed:
        return is_open(Gate.AFTER, seen.sentence)
    return is_closed(Gate.AFTER, seen.sentence, *seen.changes)


# --- trigger ----------------------------------------------------------------------------------------------------------


def trigger(sight: RunSnapshot) -> GateFinding:
    wanted = sight.schedule.trigger
    if wanted is None or not sight.schedule.starts_by_trigger:
        return is_open(Gate.TRIGGER, "no sensor is needed to start it")
    if sight.run is not None:
        return is_open(Gate.TRIGGER, f"the run exists, so {wanted.rule.key} is no longer needed")
    sensor = sight.sensors.get(wanted.rule.key)
    result = evaluate_rule(wanted.rule, None if sensor is None else sensor.data, sight.now)
    if absent := sight.absences.get(wanted.rule.key):
        result = RuleResult(wanted.rule, passed=False, seen=None, at=sight.now, problem=absent)
    if not result.passed and wanted.match is Match.PREFIX:
        listing = f"interlock sensor list {sight.key.pipeline} --prefix {wanted.rule.key}"
        return is_unknown(
            Gate.TRIGGER, f"any sensor whose key begins with {wanted.rule.key} starts it: see `{listing}`"
        )
    conditions = (condition_of(result, sensor, None, sight.probes.get(wanted.rule.key, "")),)
    problem = (_given_up(sight) or result.reason) if not result.passed else _not_about(sight, sensor)
    if problem is None:
        return is_open(Gate.TRIGGER, f"{result.reason}; a worker creates the run when it reads the sensor", conditions)
    return is_closed(Gate.TRIGGER, problem, _write(sight, result), conditions=conditions)


def _write(sight: RunSnapshot, result: RuleResult) -> str:
    if not result.passed:
        probes = {probe.key for probe in sight.pipeline.probes}
        return change_for(result, sight.key.period, sight.schedule.zone, probes)
    return f"write sensor {result.rule.key}#{sight.key.period}"


def _given_up(sight: RunSnapshot) -> str | None:
    at = trigger_deadline_at(sight.schedule, sight.key.period)
    if at is None or sight.schedule.trigger is None or sight.now < at:
        return None
    return f"{sight.schedule.trigger.rule.key} did not arrive by its deadline, {moment(at, sight.schedule.zone)}"


def _not_about(sight: RunSnapshot, sensor: Sensor | None) -> str | None:
    """Return why a sensor that passes the rule does not apply to this period."""
    wanted = sight.schedule.trigger
    if sensor is None or wanted is None or sensor.key != wanted.rule.key:
        return None  # its key names the period
    today = wall_at(sight.now, sight.schedule.zone).date()
    spoken_of = period_of_sensor(sensor.data, None, today)
    taken = sight.consumed
    is_taken = taken is not None and taken.content_hash == sensor.content_hash and wanted.undated is Undated.ONCE
    if taken is not None and is_taken and taken.period != sight.key.period:
        of = f" of {taken.period}" if taken.period else ""
        return f"{sensor.key} passes, but has already triggered the run{of} and counts once"
    if spoken_of != sight.key.period:
        return f"{sensor.key} passes, but is for {spoken_of}"
    return None
