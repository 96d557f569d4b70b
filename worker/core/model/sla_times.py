"""SLA times: a run's deadline as instants, fixed once and never moved to another day."""

from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from worker.core.model.deadlines import Deadline, SlaTimes
from worker.core.model.pipeline import Schedule, Sla
from worker.core.time.local_time import offset_at, reached_at, shifted_instant, wall_at
from worker.core.time.periods import Period, date_in_zone

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


def deadline_at(
    deadline: Deadline, period: Period, *, zone: ZoneInfo, hour_zone: ZoneInfo, day_offset: int
) -> datetime:
    """Return the deadline of a period as an instant.

    `hour_zone` is the clock that named the period, `zone` the deadline's. `HH:MM` is that time `day_offset` days after
    the period's date. A time that the clocks skip is moved by the length of the gap; of a repeated time, the first
    counts. `:MM` is the first time the clock shows that minute after the period's hour (or its day) is over. A later
    period never has an earlier deadline.
    """
    shift = day_offset * _DAY
    if deadline.hour is None:
        return _first_minute(_end_of_hour(period, zone=zone, hour_zone=hour_zone, shift=shift), deadline.minute, zone)
    business_date = date_in_zone(period, zone=zone, hour_zone=hour_zone)
    return shifted_instant(datetime.combine(business_date, time(deadline.hour, deadline.minute)) + shift, zone)


def absolute_times(sla: Sla, schedule: Schedule, period: Period) -> SlaTimes | None:
    """Return the times that follow from the period alone; None without a deadline.

    There is a warning only if an expected duration is configured.
    """
    breach_at, evaluation_at = (
        None
        if deadline is None
        else deadline_at(deadline, period, zone=sla.zone, hour_zone=schedule.hour_zone, day_offset=sla.day_offset)
        for deadline in (sla.deadline, sla.evaluation_deadline)
    )
    if breach_at is None and evaluation_at is None:
        return None
    early = None if breach_at is None or sla.expected_duration is None else breach_at - sla.expected_duration
    return SlaTimes(early, breach_at, evaluation_at)


def relative_times(sla: Sla, arrived_at: datetime) -> SlaTimes | None:
    """Return the times that follow from the first sensor's arrival; None if nothing counts from it."""
    evaluation_at = None if sla.max_evaluation is None else arrived_at + sla.max_evaluation
    if sla.max_duration is None:
        return None if evaluation_at is None else SlaTimes(None, None, evaluation_at)
    breach_at = arrived_at + sla.max_duration
    early = sla.max_duration / 4 if sla.expected_duration is None else sla.expected_duration
    return SlaTimes(breach_at - early, breach_at, evaluation_at)


def times_for_run(
    sla: Sla,
    schedule: Schedule,
    period: Period,
    arrived_at: datetime | None,
    *,
    begun_at: datetime | None = None,
) -> SlaTimes | None:
    """Return a run's times: from the arrival if that is known and limited, else from the deadline.

    The run's deadline and that of its evaluation are chosen apart. A run that no sensor started has its rules evaluated
    since `begun_at`.
    """
    counted = arrived_at or begun_at
    relative = relative_times(sla, counted) if counted else None
    absolute = absolute_times(sla, schedule, period)
    judged = relative if relative and relative.breach_at and arrived_at else absolute
    evaluated = relative if relative and relative.evaluation_at else absolute
    warning_at, breach_at = (judged.warning_at, judged.breach_at) if judged else (None, None)
    evaluation_at = evaluated.evaluation_at if evaluated else None
    return SlaTimes(warning_at, breach_at, evaluation_at) if breach_at or evaluation_at else None


def trigger_deadline_at(schedule: Schedule, period: Period) -> datetime | None:
    """Return when the trigger's data is too late; None without a trigger deadline.

    It uses the business date and clock of the SLA's deadline, if there is one.
    """
    if schedule.trigger is None or schedule.trigger.deadline is None:
        return None
    deadline, sla = schedule.trigger.deadline, schedule.sla
    if sla is not None and sla.leading_deadline is not None:
        zone, day_offset = sla.zone, sla.day_offset
    else:
        # A whole day's data that arrives without a cron schedule is complete, and due, on the next day.
        next_day = deadline.hour is not None and schedule.cron is None
        zone, day_offset = schedule.zone, 1 if next_day else 0
    return deadline_at(deadline, period, zone=zone, hour_zone=schedule.hour_zone, day_offset=day_offset)


def _end_of_hour(period: Period, *, zone: ZoneInfo, hour_zone: ZoneInfo, shift: timedelta) -> datetime:
    if period.hour is None:
        return reached_at(period.begins + _DAY + shift, zone)
    return reached_at(period.begins.replace(minute=0) + _HOUR + shift, hour_zone)


def _first_minute(earliest: datetime, minute: int, zone: ZoneInfo) -> datetime:
    """Return the first instant from `earliest` on at which the zone's clock shows this minute of any hour."""
    at = earliest + (minute - wall_at(earliest, zone).minute) % 60 * _MINUTE
    if offset_at(at, zone) == offset_at(earliest, zone):
        return at
    # The clock changed in between, and not all zones change by whole hours. Within two hours every minute is shown.
    candidates = (earliest + passed * _MINUTE for passed in range(121))
    return next(each for each in candidates if wall_at(each, zone).minute == minute)
