"""Reads the job section into the core's job."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import cast

from worker.config.problems import Problems
from worker.config.schema import JobSection, PipelineFile
from worker.config.shape import read_shape
from worker.config.suggestions import suggest
from worker.core.model.pipeline import Job, JobType, OnUnknownStart, Overlap
from worker.core.model.rules import Json
from worker.core.model.templates import VARIABLES, unclosed_names, unknown_names
from worker.jobs.specs import AUTH_NEEDS, JOB_CONFIGS, JobConfig
from worker.yaml.document import Path, texts

_POLL_WINDOW = Job(type=JobType.COMMAND, config={}).poll_window


def read_job(file: PipelineFile, problems: Problems) -> Job | None:
    section = file.job
    if section is None or not section.type:
        _report_no_job(file, problems)
        return None
    job_type = JobType(section.type)
    config = _read_config(job_type, section, problems)
    poll_interval = _poll_seconds(section, config.pop("pollInterval", None))
    return Job(
        type=job_type,
        config=config,
        max_retries=section.max_retries,
        max_code_retries=section.max_code_retries,
        max_drift_reruns=section.max_drift_reruns,
        max_manual_reruns=section.max_manual_reruns,
        poll_window=_read_poll_window(section, problems),
        poll_interval=timedelta(seconds=poll_interval),
        run_timeout=timedelta(seconds=section.run_timeout_seconds),
        on_unknown_start=OnUnknownStart(section.on_unknown_start),
        overlap=Overlap(section.overlap),
    )


def _report_no_job(file: PipelineFile, problems: Problems) -> None:
    path = ("job", "type")
    hint = f"one of {', '.join(JobType)}"
    if file.dry_run:
        problems.error(path, "is required: a dry run says what it would have started", hint)
    else:
        problems.tolerate(path, "is required: what to run", hint, instead="there is no job to start")


def _read_poll_window(section: JobSection, problems: Problems) -> timedelta:
    seconds = section.job_poll_window_seconds
    if 0 < seconds < 60:
        problems.error(
            ("job", "jobPollWindowSeconds"), f"must be between 60 and 86400, or 0 for the default; found {seconds}"
        )
    return timedelta(seconds=seconds) if seconds else _POLL_WINDOW


def _poll_seconds(section: JobSection, of_target: Json) -> int:
    """Return the poll interval: `pollIntervalSeconds` if given, else the target's own key for it."""
    is_given = "poll_interval_seconds" in section.model_fields_set
    return section.poll_interval_seconds if is_given or not isinstance(of_target, int) else of_target


def _read_config(job_type: JobType, section: JobSection, problems: Problems) -> dict[str, Json]:
    path = ("job", "config")
    canonical = read_target_config(f"{job_type} jobs", JOB_CONFIGS[job_type], section.config, path, problems)
    check_templates(section.config, path, problems)
    return canonical


def read_target_config(
    users: str, model: type[JobConfig], given: Mapping[str, object], path: Path, problems: Problems
) -> dict[str, Json]:
    """Read the configuration of a job or a probe; `users` names those that need its keys."""
    config = read_shape(model, given, problems, path)
    if config is None:
        return {}
    canonical = config.model_dump(by_alias=True, exclude_defaults=True)
    _check_keys(users, model, canonical, path, problems)
    return cast("dict[str, Json]", canonical)


def _check_keys(
    users: str, model: type[JobConfig], config: Mapping[str, object], path: Path, problems: Problems
) -> None:
    for name in model.required:
        if _is_blank(config.get(name)):
            problems.tolerate((*path, name), f"is required by {users}", instead="it cannot be started")
    if model.either and not any(name in config for name in model.either):
        names = " or ".join(f"`{name}`" for name in model.either)
        problems.tolerate(path, f"{users} need {names}", instead="it cannot be started")
    for name, value, needed in model.needing:
        if config.get(name) == value and needed not in config:
            message = f"is required where `{name}` is {value}"
            problems.tolerate((*path, needed), message, instead="it cannot be started")
    _check_auth(config.get("auth"), path, problems)
    for names in (model.either, model.conflicting):
        given = [name for name in names if name in config]
        if len(given) > 1:
            message = " and ".join(f"`{name}`" for name in given) + " exclude each other"
            problems.tolerate((*path, given[1]), message, "keep one of them", instead=f"`{given[0]}` is used")


def _is_blank(value: object) -> bool:
    """Return whether a value names nothing. For a list the first item decides: the program to run."""
    if isinstance(value, list):
        items = cast("list[object]", value)
        return not items or _is_blank(items[0])
    return value is None or (isinstance(value, str) and not value.strip())


def _check_auth(auth: object, path: Path, problems: Problems) -> None:
    given = cast("dict[str, str]", auth or {})
    for name in AUTH_NEEDS.get(given.get("type", ""), ()):
        if name not in given:
            problems.tolerate((*path, "auth", name), f"is required for {given['type']}", instead="it cannot be started")


def check_templates(
    config: Mapping[str, object], path: Path, problems: Problems, variables: Sequence[str] = VARIABLES
) -> None:
    """Report variables that are unknown, not available here, or never closed."""
    for below, text in texts(dict(config)):
        if "${" not in text:
            continue
        at = (*path, *below)
        for name in unknown_names(text, variables):
            message, hint = f"`${{{name[:64]}}}` is not a variable", partial(_advise_variable, name, variables)
            problems.tolerate(at, message, hint, instead="left as it is")
        for name in unclosed_names(text):
            hint = "close it, or write `$${` for a plain `${`"
            problems.tolerate(at, f"`${{{name[:64]}` is never closed", hint, instead="left as it is")


def _advise_variable(name: str, variables: Sequence[str]) -> str:
    if name in VARIABLES:
        return f"runs share the results of a probe, so it may use only {', '.join(variables)}"
    known = f"known: {', '.join(variables)} and secrets, ${{INTERLOCK_…}}; write $${{ for a plain ${{"
    return suggest(name, variables) or known


def check_dry_run(file: PipelineFile, problems: Problems) -> None:
    """Report schedules without a trigger: a dry run evaluates sensors, so every schedule needs one."""
    if not file.dry_run:
        return
    sections = enumerate(file.schedules) if file.schedules else [(None, file.schedule)]
    for index, section in sections:
        if section is None or section.trigger is None:
            at: Path = ("schedule",) if index is None else ("schedules", index)
            hint = "a dry run says what a sensor would have started"
            problems.error((*at, "trigger"), "is required for a dry run", hint)
