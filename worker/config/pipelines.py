"""Reads a whole file into the core's pipeline."""

from collections.abc import Mapping

from worker.config.calendars import read_calendar
from worker.config.job_section import check_dry_run, read_job
from worker.config.probe_section import check_probes_used, read_monitor, read_probes
from worker.config.problems import Problems
from worker.config.rules import read_rules, read_validation
from worker.config.scalars import read_duration
from worker.config.schedules import read_evaluation, read_schedules
from worker.config.schema import PipelineFile, PostRunSection
from worker.core.model.calendars import Calendar
from worker.core.model.pipeline import ArchetypeRef, Match, Pipeline, PipelineId, PostRun
from worker.core.model.rules import Group

_SENSOR_TIMEOUT = PostRun(rules=Group()).sensor_timeout


def read_pipeline(file: PipelineFile, calendars: Mapping[str, Calendar], problems: Problems) -> Pipeline:
    """Return what could be read of a file; report problems of its meaning in the Lambda edition's order."""
    if not file.pipeline.id:
        problems.error(("pipeline", "id"), "is required: the name of the pipeline")
    schedules = read_schedules(file, {**calendars, **_own_calendars(file, problems)}, problems)
    rules = read_validation(file.validation, ("validation",), problems)
    post_run = _read_post_run(file.post_run, problems)
    job = read_job(file, problems)
    probes = read_probes(file, problems)
    check_probes_used(file, problems)
    check_dry_run(file, problems)
    made_from = file.pipeline.archetype
    return Pipeline(
        id=PipelineId(file.pipeline.id),
        owner=file.pipeline.owner,
        description=file.pipeline.description,
        schedules=schedules,
        rules=rules,
        job=job,
        post_run=post_run,
        dry_run=file.dry_run,
        archetype=ArchetypeRef(made_from.id, made_from.hash) if made_from else None,
        probes=probes,
    )


def _own_calendars(file: PipelineFile, problems: Problems) -> dict[str, Calendar]:
    bodies = file.calendars.items()
    return {name: read_calendar(name, body, ("calendars", name), problems) for name, body in bodies}


def _read_post_run(section: PostRunSection | None, problems: Problems) -> PostRun | None:
    if section is None:
        return None
    at = ("postRun",)
    evaluation = section.evaluation
    return PostRun(
        rules=read_rules(section.rules, (*at, "rules"), problems),
        match=Match(section.match),
        drift_field=section.drift_field,
        drift_threshold=section.drift_threshold,
        sensor_timeout=read_duration(section.sensor_timeout, (*at, "sensorTimeout"), problems, default=_SENSOR_TIMEOUT),
        evaluation=None if evaluation is None else read_evaluation(evaluation, (*at, "evaluation"), problems),
        monitor=None if section.monitor is None else read_monitor(section.monitor, (*at, "monitor"), problems),
    )
