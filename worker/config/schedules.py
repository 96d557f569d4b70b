"""Reads schedules and their SLAs into the core's."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from worker.config.calendars import read_exclusion
from worker.config.problems import Problems, show
from worker.config.rules import read_rule
from worker.config.scalars import (
    read_clock_time,
    read_cron,
    read_date,
    read_deadline,
    read_duration,
    read_optional_duration,
    read_zone,
)
from worker.config.schema import (
    AfterItem,
    EvaluationSection,
    MisfireSection,
    PipelineFile,
    ScheduleItem,
    ScheduleSection,
    SlaSection,
    TriggerSection,
)
from worker.core.dependencies.gate import NEEDED_MAX
from worker.core.dependencies.period_mapping import GRAIN_NAMES
from worker.core.model.calendars import Calendar
from worker.core.model.deadlines import Deadline
from worker.core.model.ids import CRON_SCHEDULE, STREAM_SCHEDULE, ScheduleId
from worker.core.model.pipeline import (
    LOOK_BACK_DEFAULT,
    MAX_AHEAD,
    UTC_ZONE,
    Dependency,
    Evaluation,
    Match,
    Misfire,
    MisfirePolicy,
    OnRerun,
    PeriodMapping,
    PipelineId,
    Requirement,
    Schedule,
    Sla,
    StartBy,
    Trigger,
    Undated,
)
from worker.core.time.cron import Cron
from worker.core.time.durations import parse_duration
from worker.core.time.periods import Granularity
from worker.yaml.document import Path

_WINDOW = Evaluation().window
_INTERVAL = Evaluation().interval
_LATENESS = MisfirePolicy().max_lateness
_SLA_MAX = timedelta(hours=24)
_SECOND = timedelta(seconds=1)
GRAINS: Final = {name: grain for grain, name in GRAIN_NAMES.items()}
WITHIN_MAX: Final = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class _Given:
    """Holds one schedule of the file: its path, its id, and the SLA that applies to it."""

    at: Path
    id: ScheduleId
    section: ScheduleSection
    sla: SlaSection | None
    sla_at: Path


def read_schedules(file: PipelineFile, calendars: Mapping[str, Calendar], problems: Problems) -> tuple[Schedule, ...]:
    """Return every schedule of the file; without any, one that starts only by request or by a cascade."""
    return tuple(_read_schedule(given, file, calendars, problems) for given in _given(file, problems))


def _given(file: PipelineFile, problems: Problems) -> list[_Given]:
    if not file.schedules:
        section = file.schedule or ScheduleSection()
        schedule_id = CRON_SCHEDULE if section.cron else STREAM_SCHEDULE
        return [_Given(("schedule",), schedule_id, section, file.sla, ("sla",))]
    if file.schedule is not None:
        problems.error(("schedules",), "`schedule` and `schedules` are both given", "keep one of them", key=True)
    _check_ids(file.schedules, problems)
    return [_given_item(item, ("schedules", index), file) for index, item in enumerate(file.schedules)]


def _given_item(item: ScheduleItem, at: Path, file: PipelineFile) -> _Given:
    own = item.sla is not None
    return _Given(at, ScheduleId(item.id), item, item.sla if own else file.sla, (*at, "sla") if own else ("sla",))


def _check_ids(items: list[ScheduleItem], problems: Problems) -> None:
    seen: dict[str, int] = {}
    for index, item in enumerate(items):
        path = ("schedules", index, "id")
        if not item.id:
            problems.error(path, "is required: each of several schedules has a name")
        elif item.id in seen:
            problems.error(path, f"{show(item.id)} is also the id of schedules[{seen[item.id]}]", "ids must differ")
        else:
            seen[item.id] = index


def _read_schedule(
    given: _Given, file: PipelineFile, calendars: Mapping[str, Calendar], problems: Problems
) -> Schedule:
    section, at = given.section, given.at
    dates = _read_include(section, at, problems)
    zone = read_zone(section.timezone, (*at, "timezone"), problems, default=UTC_ZONE)
    cron = read_cron(section.cron, (*at, "cron"), problems)
    exclusion = read_exclusion(section, at, problems, everywhere=file.exclusions, calendars=calendars)
    return Schedule(
        id=given.id,
        zone=zone,
        cron=cron,
        trigger=_read_trigger(section.trigger, (*at, "trigger"), problems),
        start=_read_start(section, at, problems),
        exclusion=exclusion,
        include_dates=dates,
        expected_at=read_clock_time(section.time, (*at, "time"), problems),
        evaluation=read_evaluation(section.evaluation, (*at, "evaluation"), problems),
        misfire=_read_misfire(section, (*at, "misfire"), problems),
        sla=_read_sla(given, zone, cron, problems),
        grain=_read_grain(section, cron, at, problems),
        after=_read_after(section, file.pipeline.id, at, problems),
        max_ahead=read_duration(section.max_ahead, (*at, "maxAhead"), problems, default=MAX_AHEAD, least=timedelta(0)),
    )


def _read_include(section: ScheduleSection, at: Path, problems: Problems) -> tuple[date, ...]:
    if section.include is None:
        return ()
    if section.cron:
        message = "schedule.cron and schedule.include are both given: either regular times or irregular dates"
        problems.error((*at, "include"), message, "keep one of them; use `schedules` for both", key=True)
    path = (*at, "include", "dates")
    if not section.include.dates:
        problems.error(path, "needs at least one date")
    days: set[date] = set()
    for index, text in enumerate(section.include.dates):
        day = read_date(text)
        if day is None:
            problems.error((*path, index), f"{show(text)} is not a date", "write YYYY-MM-DD, a day that exists")
        else:
            days.add(day)
    return tuple(sorted(days))


def _read_trigger(section: TriggerSection | None, path: Path, problems: Problems) -> Trigger | None:
    if section is None:
        return None
    return Trigger(
        rule=read_rule(section, path, problems),
        match=Match(section.match),
        undated=Undated(section.undated),
        deadline=read_deadline(section.deadline, (*path, "deadline"), problems),
    )


def _read_start(section: ScheduleSection, at: Path, problems: Problems) -> StartBy:
    is_by_data = section.trigger is not None or bool(section.after)
    default = StartBy.TRIGGER if is_by_data else StartBy.CRON
    if section.start is None:
        return default
    start, path = StartBy(section.start), (*at, "start")
    if start is not StartBy.CRON and not is_by_data:
        problems.tolerate(path, f"`{start}` needs a `trigger` or `after`", instead=f"using {default}")
        return default
    if start is not StartBy.TRIGGER and not section.cron:
        problems.tolerate(path, f"`{start}` needs a `cron`", instead=f"using {default}")
        return default
    return start


def read_evaluation(section: EvaluationSection, path: Path, problems: Problems) -> Evaluation:
    return Evaluation(
        window=read_duration(section.window, (*path, "window"), problems, default=_WINDOW),
        interval=read_duration(section.interval, (*path, "interval"), problems, default=_INTERVAL, least=_SECOND),
        reopen=section.reopen,
    )


def _read_misfire(section: ScheduleSection, path: Path, problems: Problems) -> MisfirePolicy:
    given = section.misfire
    if given is None:
        return MisfirePolicy()
    if not isinstance(given, MisfireSection):
        return MisfirePolicy(policy=Misfire(given))
    lateness = read_duration(given.max_lateness, (*path, "maxLateness"), problems, default=_LATENESS)
    return MisfirePolicy(policy=Misfire(given.policy), max_lateness=lateness)


def _read_sla(given: _Given, zone: ZoneInfo, cron: Cron | None, problems: Problems) -> Sla | None:
    section, at = given.sla, given.sla_at
    if section is None:
        return None
    deadline = read_deadline(section.deadline, (*at, "deadline"), problems)
    limit = _read_max_duration(section, given, problems)
    ready_by = read_deadline(section.evaluation_deadline, (*at, "evaluationDeadline"), problems)
    ready_within = _read_limit(section.max_evaluation, (*at, "maxEvaluation"), "evaluationDeadline", problems)
    own_zone = read_zone(section.timezone, (*at, "timezone"), problems, default=zone)
    expected = read_optional_duration(section.expected_duration, (*at, "expectedDuration"), problems)
    given_any = (section.deadline, section.max_duration, section.evaluation_deadline, section.max_evaluation)
    if not any(given_any):
        needed = "needs a `deadline`, a `maxDuration`, an `evaluationDeadline` or a `maxEvaluation`"
        problems.tolerate(at, needed, instead="ignored", key=True)
    if deadline is None and limit is None and ready_by is None and ready_within is None:
        return None
    offset_by = deadline or ready_by
    return Sla(
        deadline=deadline,
        expected_duration=expected,
        max_duration=limit,
        evaluation_deadline=ready_by,
        max_evaluation=ready_within,
        zone=own_zone,
        day_offset=default_day_offset(offset_by, cron) if section.day_offset is None else section.day_offset,
        critical=section.critical,
    )


def default_day_offset(deadline: Deadline | None, cron: Cron | None) -> int:
    """Return the default offset: 1 for `HH:MM` without cron, because data is complete after its day.

    A cron says itself when its run is due, so its offset is 0.
    """
    return 1 if deadline is not None and deadline.hour is not None and cron is None else 0


def _read_max_duration(section: SlaSection, given: _Given, problems: Problems) -> timedelta | None:
    if not section.max_duration:
        return None
    path = (*given.sla_at, "maxDuration")
    if given.section.trigger is None:
        message = "counts from the first sensor, and there is no schedule.trigger"
        problems.error(path, message, "give the schedule a trigger, or use `deadline`")
    return _read_limit(section.max_duration, path, "deadline", problems)


def _read_limit(text: str, path: Path, longer: str, problems: Problems) -> timedelta | None:
    if not text:
        return None
    duration = parse_duration(text)
    if duration is None:
        problems.error(path, f"{show(text)} is not a duration", "for example 90m or 2h; 24h at most")
        return None
    if duration > _SLA_MAX:
        problems.error(path, f"is {text}, longer than 24h", f"use `{longer}` for longer spans")
    if duration <= timedelta(0):
        problems.tolerate(path, f"must be longer than zero; found {text}", instead="ignored")
        return None
    return duration


# --- dependencies -----------------------------------------------------------------------------------------------------


def _read_grain(section: ScheduleSection, cron: Cron | None, at: Path, problems: Problems) -> Granularity | None:
    if section.grain is None:
        return None
    grain = GRAINS[section.grain]
    if cron is not None and cron.granularity is not grain:
        implied = GRAIN_NAMES[cron.granularity]
        message = f"is `{section.grain}`, but the cron `{cron.text}` names a period by its {implied}"
        problems.error((*at, "grain"), message, f"write `grain: {implied}`, or change `cron`")
    if section.include is not None and grain is not Granularity.DAILY:
        problems.error((*at, "grain"), f"is `{section.grain}`, but `include` lists days", "write `grain: day`")
    return grain


def _read_after(section: ScheduleSection, own: str, at: Path, problems: Problems) -> tuple[Dependency, ...]:
    read = [_read_dependency(item, own, (*at, "after", index), problems) for index, item in enumerate(section.after)]
    seen: dict[tuple[str, str | None], int] = {}
    for index, dependency in enumerate(read):
        earlier = seen.setdefault((dependency.pipeline, dependency.schedule), index)
        if earlier != index:
            message = f"{show(str(dependency))} is also after[{earlier}]"
            problems.error((*at, "after", index, "pipeline"), message, "name each upstream once")
    return tuple(read)


def _read_dependency(item: AfterItem, own: str, at: Path, problems: Problems) -> Dependency:
    if not item.pipeline:
        problems.error((*at, "pipeline"), "is required: the pipeline whose runs must complete first")
    if item.pipeline and item.pipeline == own:
        hint = "a pipeline cannot run after itself; compare the periods in its job, or split it in two"
        problems.error((*at, "pipeline"), f"{show(own)} is this pipeline itself", hint)
    mapping = None if item.periods is None else PeriodMapping(item.periods)
    if item.within and mapping is not PeriodMapping.LATEST:
        problems.error((*at, "within"), "applies to `periods: latest` only", "remove it", key=True)
    if item.at_least is not None and mapping not in {None, PeriodMapping.ALL}:
        problems.error((*at, "atLeast"), "applies to `periods: all` only", "remove it", key=True)
    within = read_duration(
        item.within or "7d", (*at, "within"), problems, default=LOOK_BACK_DEFAULT, least=timedelta(minutes=1)
    )
    if within > WITHIN_MAX:
        problems.error((*at, "within"), f"must be at most {WITHIN_MAX.days}d, got {item.within}")
    return Dependency(
        pipeline=PipelineId(item.pipeline),
        schedule=ScheduleId(item.schedule) if item.schedule else None,
        periods=mapping,
        require=Requirement(item.require),
        within=min(within, WITHIN_MAX),
        at_least=None if item.at_least is None else min(item.at_least, NEEDED_MAX),
        on_rerun=OnRerun(item.on_rerun),
    )
