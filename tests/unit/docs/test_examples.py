"""The examples are sound, complete and explained."""

from pathlib import Path

import pytest

from tests.support.builders.command_line import TODAY
from worker.config.load import load_directory
from worker.core.model.pipeline import JobType, Pipeline

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


def pipelines() -> dict[str, Pipeline]:
    return {pipeline.id: pipeline for pipeline in load_directory([EXAMPLES], today=TODAY.date()).pipelines}


def test_no_example_has_an_error_or_a_warning() -> None:
    found = load_directory([EXAMPLES], today=TODAY.date())

    assert found.problems == ()
    assert len(found.pipelines) == len(FILES) >= 6


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_explained_before_it_begins_and_named_like_its_file(path: Path) -> None:
    text = path.read_text()

    explanation = text.partition("pipeline:")[0].splitlines()
    assert len(explanation) >= 3
    assert all(line.startswith("#") for line in explanation)
    assert path.stem in pipelines()


def test_the_examples_show_each_way_to_start_and_each_kind_of_deadline() -> None:
    found = pipelines()
    schedules = [schedule for pipeline in found.values() for schedule in pipeline.schedules]

    assert any(schedule.starts_by_trigger for schedule in schedules)
    assert any(schedule.starts_by_cron for schedule in schedules)
    assert any(schedule.include_dates for schedule in schedules)
    assert any(schedule.exclusion.business_days for schedule in schedules)
    assert any(schedule.exclusion.calendars for schedule in schedules)
    assert any(schedule.sla and schedule.sla.max_duration for schedule in schedules)
    assert any(schedule.sla and schedule.sla.deadline and schedule.sla.deadline.hour is None for schedule in schedules)
    assert any(pipeline.dry_run for pipeline in found.values())
    assert any(len(pipeline.schedules) > 1 for pipeline in found.values())


def test_the_examples_show_most_job_types() -> None:
    types = {pipeline.job.type for pipeline in pipelines().values() if pipeline.job}

    assert types >= set(JobType) - {JobType.EMR}
