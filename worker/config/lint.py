"""Finds what is valid in a pipeline and yet most likely a mistake."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from difflib import get_close_matches
from itertools import islice, takewhile
from typing import cast

from worker.core.model.calendars import Exclusion, reason_excluded
from worker.core.model.pipeline import Evaluation, Job, JobType, Match, Pipeline, Schedule, local_date
from worker.core.model.rules import Group, Mode, Rule, leaves
from worker.core.model.summaries import NAMES as SUMMARY_NAMES
from worker.core.model.summaries import SUMMARY_KEY
from worker.core.model.templates import RUN_VARIABLES
from worker.core.model.values import Json
from worker.core.schedule.expected_runs import expected_runs
from worker.core.time.cron import Cron, fires_between, next_fire, period_of_fire
from worker.core.time.durations import format_duration
from worker.jobs.secrets import secrets_named
from worker.yaml.document import Path

# Quotes, pipes, redirections, command lists, and expansions of a shell.
_FOR_A_SHELL = re.compile(r"""["'`|;<>]|&&|\$\(|(?<!\S)&(?!\S)|(?<!\S)~""")
# Everyone who can view a job of these types can read its arguments: no secret is ever filled in.
_SHOWN_TO_MANY = (JobType.GLUE, JobType.EMR, JobType.EMR_SERVERLESS, JobType.STEP_FUNCTION)
_NAME = re.compile(r"[A-Z_]+")
_YEAR = timedelta(days=366)
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class LintFinding:
    path: Path
    message: str
    hint: str = ""


def schedule_path(pipeline: Pipeline, index: int, *, is_list: bool) -> Path:
    """Return the path of a schedule in the file; `is_list` if the file has `schedules`."""
    return ("schedules", index) if is_list or len(pipeline.schedules) > 1 else ("schedule",)


def lint(pipeline: Pipeline, *, today: date, is_list: bool = False) -> Iterator[LintFinding]:
    """Yield everything suspicious about one pipeline in the year from `today`."""
    for index, schedule in enumerate(pipeline.schedules):
        at = schedule_path(pipeline, index, is_list=is_list)
        yield from _lint_schedule(schedule, at, today)
        if pipeline.job:
            yield from _lint_timeout(pipeline.job, schedule.evaluation, at)
    if pipeline.job:
        yield from _lint_command(pipeline.job)
        yield from _lint_secrets(pipeline.job)
    if any(schedule.sla and schedule.sla.critical for schedule in pipeline.schedules):
        yield LintFinding(("sla", "critical"), "has no effect", "every breach is an alert; leave it out")
    yield from _lint_group(pipeline.rules, ("validation",), "rules")
    yield from _lint_probes(pipeline)
    if pipeline.post_run:
        yield from _lint_group(pipeline.post_run.rules, ("postRun",), "rules")
        yield from _lint_summary(pipeline.post_run.rules, ("postRun",), "rules")
        if pipeline.post_run.evaluation:
            yield LintFinding(
                ("postRun", "evaluation"), "has no effect", "rules are evaluated when their sensor arrives"
            )


def _lint_schedule(schedule: Schedule, at: Path, today: date) -> Iterator[LintFinding]:
    yield from _lint_evaluation(schedule.evaluation, (*at, "evaluation"))
    if schedule.trigger:
        yield from _lint_key(schedule.trigger.rule, (*at, "trigger"))
    if not schedule.starts_by_cron and not schedule.starts_by_trigger and not schedule.starts_by_upstreams:
        hint = "add a trigger, `after` or a cron; without them only people and other pipelines start it"
        yield LintFinding(at, "nothing starts this schedule", hint)
    start = datetime.combine(today, time(), UTC)
    if schedule.cron and next_fire(schedule.cron, schedule.zone, start) is None:
        yield LintFinding((*at, "cron"), f"`{schedule.cron.text}` never fires", "no date fits all of its fields")
    elif _excludes_everything(schedule, today):
        yield LintFinding(
            at, "every run of the next year is excluded", "see exclude, exclusions, calendar, businessDays"
        )
    else:
        yield from _lint_deadline(schedule, at, start)


def _lint_evaluation(evaluation: Evaluation, at: Path) -> Iterator[LintFinding]:
    window, interval = format_duration(evaluation.window), format_duration(evaluation.interval)
    if evaluation.window < evaluation.interval:
        yield LintFinding(
            (*at, "window"), f"the window ({window}) is shorter than its interval ({interval})", "swap them?"
        )


def _lint_command(job: Job) -> Iterator[LintFinding]:
    text = job.config.get("command")
    if job.type is JobType.COMMAND and isinstance(text, str) and (found := _FOR_A_SHELL.search(text)):
        message = f"`{found[0]}` means nothing here: the text is split at spaces, and no shell reads it"
        yield LintFinding(("job", "config", "command"), message, "write a list, or let a shell read it: [sh, -c, '…']")


def _lint_secrets(job: Job) -> Iterator[LintFinding]:
    if job.type is JobType.COMMAND:
        shown = {name: value for name, value in job.config.items() if name != "environment"}
        reason = "everyone on the machine can read a command line"
        hint = "put it into job.config.environment, and let the command read it there"
    elif job.type in _SHOWN_TO_MANY:
        shown, reason = job.config, "everyone who can see the job can read its arguments"
        hint = "let the job itself read the secret where it is kept"
    else:
        return
    for path, text in _texts(shown, ("job", "config")):
        for reference in secrets_named(text):
            if job.type is JobType.COMMAND and _is_of_run(reference):
                continue
            yield LintFinding(path, f"`{reference}` is not filled in here: {reason}", hint)


def _is_of_run(reference: str) -> bool:
    """Return whether a program gets this reference as a variable of its run.

    A shell may do more with it: `${INTERLOCK_PERIOD%T*}`.
    """
    name = _NAME.search(reference)
    return name is not None and name[0] in RUN_VARIABLES


def _texts(value: Json, at: Path) -> Iterator[tuple[Path, str]]:
    """Yield every text inside a value with its path."""
    match value:
        case str():
            yield at, value
        case Mapping():
            for name, member in value.items():
                yield from _texts(member, (*at, name))
        case list() | tuple():
            for index, member in enumerate(cast("Sequence[Json]", value)):
                yield from _texts(member, (*at, index))
        case _:
            pass


def _lint_timeout(job: Job, evaluation: Evaluation, at: Path) -> Iterator[LintFinding]:
    together = evaluation.window + job.poll_window
    if together > job.run_timeout:
        message = (
            f"waiting ({format_duration(evaluation.window)}) and polling ({format_duration(job.poll_window)}) "
            f"take longer than the run may ({format_duration(job.run_timeout)})"
        )
        yield LintFinding(
            (*at, "evaluation", "window"), message, "raise job.runTimeoutSeconds, or shorten one of the two"
        )


def _excludes_everything(schedule: Schedule, today: date) -> bool:
    """Return whether a calendar excludes every run of the next year.

    The check goes day by day, so that its cost is the same for any cron.
    """
    exclusion = schedule.exclusion
    if exclusion == Exclusion():
        return False
    if schedule.include_dates:
        return all(reason_excluded(exclusion, day) for day in schedule.include_dates)
    days = [today + _DAY * n for n in range(_YEAR.days)]
    if schedule.cron is None:
        return all(reason_excluded(exclusion, day) for day in days)
    return not any(_fires_on(schedule, schedule.cron, day) for day in days)


def _fires_on(schedule: Schedule, cron: Cron, day: date) -> bool:
    if reason_excluded(schedule.exclusion, day):
        return False
    start = datetime.combine(day, time(), schedule.zone)
    # The first fire of a day may be for the last period of the day before; the second is for this day.
    fires = islice(fires_between(cron, schedule.zone, start, start + _DAY), 2)
    periods = [period_of_fire(cron, schedule.zone, fire.at) for fire in fires]
    return any(not reason_excluded(schedule.exclusion, local_date(period, schedule)) for period in periods)


def _lint_deadline(schedule: Schedule, at: Path, start: datetime) -> Iterator[LintFinding]:
    yield from _lint_order(schedule, at, start)
    if schedule.cron is None or schedule.sla is None or schedule.sla.deadline is None:
        return
    run = next(expected_runs(schedule, start, start + _YEAR), None)
    if run and run.at and run.breach_at and run.breach_at <= run.at:
        message = (
            f"the SLA deadline of {run.period} ({run.breach_at:%Y-%m-%d %H:%M} UTC) comes before the schedule fires "
            f"({run.at:%Y-%m-%d %H:%M} UTC)"
        )
        own = at if at[0] == "schedules" else ()
        yield LintFinding((*own, "sla", "deadline"), message, "use a later deadline, or sla.dayOffset: 1")


def _lint_order(schedule: Schedule, at: Path, start: datetime) -> Iterator[LintFinding]:
    """Find a deadline of the evaluation that is no earlier than the run's own: it reports nothing new."""
    sla = schedule.sla
    if sla is None or (sla.evaluation_deadline is None and sla.max_evaluation is None):
        return
    run = next(expected_runs(schedule, start, start + _YEAR), None) if sla.leading_deadline else None
    is_late = run and run.breach_at and run.evaluation_at and run.evaluation_at >= run.breach_at
    is_long = sla.max_evaluation and sla.max_duration and sla.max_evaluation >= sla.max_duration
    if is_late or is_long:
        named = "evaluationDeadline" if is_late else "maxEvaluation"
        own = at if at[0] == "schedules" else ()
        message = f"`{named}` comes no earlier than the deadline of the run itself"
        yield LintFinding((*own, "sla", named), message, "leave time for the job between the two")


def _lint_group(group: Group, at: Path, members_key: str) -> Iterator[LintFinding]:
    if group.mode is Mode.ANY and not group.members:
        yield LintFinding(at, "ANY without rules never holds", "add a rule, or use ALL")
    for index, member in enumerate(group.members):
        path = (*at, members_key, index)
        if isinstance(member, Rule):
            yield from _lint_key(member, path)
        else:
            yield from _lint_group(member, path, _MEMBERS[member.mode])


def _lint_probes(pipeline: Pipeline) -> Iterator[LintFinding]:
    """Yield probes whose result nothing reads: most likely, a rule misspells the key."""
    triggers = [schedule.trigger for schedule in pipeline.schedules if schedule.trigger]
    after_run = pipeline.post_run
    post_run = [rule.key for rule in leaves(after_run.rules)] if after_run else []
    exact = {rule.key for rule in leaves(pipeline.rules)}.union(post_run, (each.rule.key for each in triggers))
    prefixes = [each.rule.key for each in triggers if each.match is Match.PREFIX]
    prefixes += post_run if after_run and after_run.match is Match.PREFIX else []
    for index, probe in enumerate(pipeline.probes):
        if probe.key in exact or probe.key.startswith(tuple(prefixes)):
            continue
        close = get_close_matches(probe.key, sorted(exact), n=1)
        hint = f"a rule or trigger names `{close[0]}`: did you mean `{probe.key}`?" if close else ""
        message = f"no rule or trigger of this pipeline reads `{probe.key}`"
        yield LintFinding(("probes", index, "key"), message, hint or "name it in a rule or trigger, or remove it")


def _lint_summary(group: Group, at: Path, members_key: str) -> Iterator[LintFinding]:
    """Yield post-run rules on counts that no summary has."""
    for index, member in enumerate(group.members):
        path = (*at, members_key, index)
        if isinstance(member, Group):
            yield from _lint_summary(member, path, _MEMBERS[member.mode])
        elif member.key == SUMMARY_KEY and member.field is not None and member.field not in SUMMARY_NAMES:
            message = f"`{member.field[:60]}` is no count of a job's summary, so the rule never holds"
            close = get_close_matches(member.field, SUMMARY_NAMES, n=1)
            known = f"did you mean `{close[0]}`?" if close else f"a summary has {', '.join(SUMMARY_NAMES)}"
            yield LintFinding((*path, "field"), message, f"{known}; or give a sensor of your own another name")


_MEMBERS = {Mode.ALL: "all", Mode.ANY: "any", Mode.AT_LEAST: "rules"}


def _lint_key(rule: Rule, at: Path) -> Iterator[LintFinding]:
    if "#" in rule.key:
        message = f"`{rule.key[:60]}` can never stand for the sensor of a period, because it contains `#`"
        yield LintFinding(
            (*at, "key"), message, "name the sensor without its period: `orders`, not `orders#2026-03-03`"
        )


def lint_together(pipelines: Sequence[Pipeline]) -> Iterator[tuple[int, int, LintFinding]]:
    """Yield what is suspicious about several pipelines: pipeline index, schedule index and finding."""
    triggers = sorted(_triggers(pipelines))
    keys = [key for key, _, _ in triggers]
    for key, owner, index in triggers:
        # Keys that begin with this one directly follow it.
        behind = (triggers[place] for place in range(bisect_right(keys, key), len(triggers)))
        longer = takewhile(lambda other, key=key: other[0].startswith(key), behind)
        rival = next((other for other in longer if key and other[1] != owner), None)
        if rival:
            trigger = pipelines[owner].schedules[index].trigger
            is_prefix = trigger is not None and trigger.match is Match.PREFIX
            yield owner, index, _shared_beginning(key, rival[0], pipelines[rival[1]], is_prefix=is_prefix)


def _shared_beginning(key: str, longer: str, other: Pipeline, *, is_prefix: bool) -> LintFinding:
    effect = "it fires on that one's sensor too" if is_prefix else "the keys are easily mistaken for each other"
    hint = "use `match: exact`" if is_prefix else "with `match: prefix` it would fire on that one's sensor too"
    message = f"`{key}` is the beginning of `{longer}`, the trigger key of pipeline `{other.id}`: {effect}"
    return LintFinding(("trigger", "key"), message, hint)


def _triggers(pipelines: Iterable[Pipeline]) -> Iterator[tuple[str, int, int]]:
    for owner, pipeline in enumerate(pipelines):
        for index, schedule in enumerate(pipeline.schedules):
            if schedule.trigger:
                yield schedule.trigger.rule.key, owner, index
