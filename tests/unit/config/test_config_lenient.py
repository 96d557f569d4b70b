"""Rows already in a store and files of the reference: what it ignored or defaulted is a warning here."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.mapping import CALENDARS
from worker.config.load import Loaded, load_text
from worker.config.render import to_yaml
from worker.core.model.pipeline import Evaluation, Pipeline, StartBy
from worker.core.model.rules import Mode, Operator, Rule, evaluate
from worker.core.time.timestamps import parse_rfc3339

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "vectors" / "config.json").read_text())
HEAD = "pipeline: {id: orders}\n"
JOB = "job: {type: glue, config: {jobName: etl}}\n"
TRIGGER = "schedule: {trigger: {key: a, check: exists}}\n"
ACCEPTED_HERE = {"sla-max-duration-days"}  # the reference knows no days


def load(text: str) -> Loaded:
    return load_text(text, lenient=True)


def sound(text: str) -> Pipeline:
    loaded = load(text)
    assert [str(problem) for problem in loaded.errors] == []
    assert loaded.pipeline is not None
    return loaded.pipeline


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["id"])
def test_a_file_loads_leniently_exactly_if_the_reference_accepts_it(case: dict[str, Any]) -> None:
    loaded = load_text(case["yaml"], calendars=CALENDARS, lenient=True)

    if case["id"] in ACCEPTED_HERE:
        assert not case["valid"]
        assert loaded.problems == ()
        return
    assert (loaded.pipeline is not None) == case["valid"]
    assert all(any(wanted in str(error) for error in loaded.errors) for wanted in case["errorMentions"])
    if "errorCount" in case:
        assert len(loaded.errors) == case["errorCount"]


def test_keys_match_in_any_case_at_any_depth() -> None:
    text = """{"PIPELINE": {"Id": "orders"}, "Schedule": {"TRIGGER": {"KEY": "a", "check": "exists"}},
      "validation": {"Rules": [{"ANY": [{"Key": "b", "CHECK": "exists"}]}]}, "Job": {"Type": "glue", "MaxRetries": 2,
      "config": {"JOBNAME": "e"}}, "postrun": {"DriftField": "n"}}"""

    pipeline = sound(text)

    assert pipeline.id == "orders"
    assert pipeline.schedules[0].trigger is not None
    assert [member.mode for member in pipeline.rules.members if not isinstance(member, Rule)] == [Mode.ANY]
    assert pipeline.job is not None
    assert (pipeline.job.max_retries, pipeline.job.config) == (2, {"jobName": "e"})
    assert pipeline.post_run is not None
    assert pipeline.post_run.drift_field == "n"
    assert load(text).warnings == ()


def test_a_strict_reading_does_not_match_other_cases() -> None:
    loaded = load_text(HEAD + JOB + "Schedule: {}\n")

    assert [problem.hint.split("?")[0] for problem in loaded.errors] == ["did you mean `schedule`"]


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("archetype: x\n", "archetype: `archetype` is a key of an older generation; ignored"),
        ("foo: {bar: 1}\n", "foo: `foo` is not a key here; ignored"),
        (
            "postRun: {sensorTimeout: someday}\n",
            'postRun.sensorTimeout: the text "someday" is not a duration; using 2h',
        ),
        ("sla: {deadline: '25:99'}\n", 'sla.deadline: must be HH:MM or :MM; found the text "25:99"; ignored'),
        ("sla: {deadline: '9:00', timezone: Mars}\n", 'sla.timezone: the text "Mars" is not a time zone; using UTC'),
        ("exclusions: {calendar: nope}\n", 'exclusions.calendar: there is no calendar "nope"; ignored'),
        ("exclusions: {dates: [25 Dec]}\n", 'exclusions.dates[0]: the text "25 Dec" is not a date; ignored'),
        ("validation: {trigger: SOME}\n", "validation.trigger: must be one of ALL, ANY"),
    ],
)
def test_what_the_reference_ignored_is_a_warning_that_says_what_happens_instead(text: str, warning: str) -> None:
    loaded = load(HEAD + JOB + TRIGGER + text)

    assert loaded.pipeline is not None
    assert any(warning in str(problem) for problem in loaded.warnings)


@pytest.mark.parametrize("lenient", [True, False])
@pytest.mark.parametrize("text", ["0s", '"0"', "0h0m"])
def test_an_expected_duration_of_zero_is_one(text: str, lenient: bool) -> None:
    loaded = load_text(HEAD + JOB + TRIGGER + f"sla: {{deadline: '9:00', expectedDuration: {text}}}\n", lenient=lenient)

    assert loaded.problems == ()
    assert loaded.pipeline is not None
    assert loaded.pipeline.schedules[0].sla is not None
    assert loaded.pipeline.schedules[0].sla.expected_duration == timedelta(0)
    assert load_text(to_yaml(loaded.pipeline)).pipeline == loaded.pipeline


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("-5m", "must not be less than zero; found -5m"),
        ("soon", 'the text "soon" is not a duration'),
        ("1x", 'the text "1x" is not a duration'),
    ],
)
def test_an_expected_duration_that_is_none_is_left_out_with_a_warning_and_refused_in_a_file(
    text: str, said: str
) -> None:
    given = HEAD + JOB + TRIGGER + f"sla: {{deadline: '9:00', expectedDuration: {text}}}\n"

    [warning] = load(given).warnings
    [error] = load_text(given).errors

    sla = sound(given).schedules[0].sla
    assert sla is not None
    assert sla.expected_duration is None
    assert warning.message == f"{said}; ignored"
    assert error.message == said


@pytest.mark.parametrize(
    "leftover",
    [
        "schedules: [{id: a, cron: 0 6 * * *}]\n",
        "schedules: [{name: nightly, at: midnight}]\n",
        "schedules: nightly\n",
        "schedules: {daily: {deadline: '9:00'}}\n",
        "Schedules: [1, 2]\n",
        "schedules: [" + "{id: a}, " * 40 + "]\n",
    ],
)
def test_a_leftover_list_of_schedules_is_ignored_with_a_warning_whatever_is_in_it(leftover: str) -> None:
    loaded = load(HEAD + JOB + TRIGGER + leftover)

    [schedule] = sound(HEAD + JOB + TRIGGER + leftover).schedules
    assert schedule.id == "stream"
    assert schedule.trigger is not None
    [warning] = loaded.warnings
    assert (warning.path.lower(), warning.line) == ("schedules", 4)
    assert warning.message == "`schedule` is given too; ignored"


@pytest.mark.parametrize("text", ["", "schedule:\n", "schedules: []\n"])
def test_schedules_alone_and_none_at_all_are_no_leftovers(text: str) -> None:
    several = "" if "schedules" in text else "schedules: [{id: a, cron: 0 6 * * *}]\n"

    assert len(sound(HEAD + JOB + text + several).schedules) == 1
    assert load(HEAD + JOB + text + several).warnings == ()


def test_in_a_file_both_kinds_of_schedules_are_an_error() -> None:
    [error] = load_text(HEAD + JOB + TRIGGER + "schedules: [{id: a}]\n").errors

    assert str(error).endswith("`schedule` and `schedules` are both given; keep one of them")


def test_a_bad_window_and_interval_fall_back_to_the_reference() -> None:
    text = HEAD + JOB + "schedule: {trigger: {key: a, check: exists}, evaluation: {window: banana, interval: -5m}}\n"

    assert sound(text).schedules[0].evaluation == Evaluation(window=timedelta(hours=1), interval=timedelta(minutes=5))


def test_a_cron_that_cannot_be_read_keeps_the_schedules_name_and_never_fires() -> None:
    [schedule] = sound(HEAD + JOB + "schedule: {cron: whenever}\n").schedules

    assert (schedule.id, schedule.cron, schedule.starts_by_cron) == ("cron", None, False)


def test_a_trigger_that_cannot_be_understood_never_fires_and_keeps_cron_from_starting() -> None:
    [schedule] = sound(HEAD + JOB + "schedule: {cron: 0 6 * * *, trigger: {type: cron}}\n").schedules

    assert schedule.trigger is not None
    assert (schedule.start, schedule.starts_by_cron) == (StartBy.TRIGGER, False)
    assert schedule.trigger.rule.check is Operator.IN
    assert schedule.trigger.rule.value == []


@pytest.mark.parametrize(
    "rule",
    [
        "{key: a, check: regex, field: f, value: x}",
        "{key: a}",
        "{check: exists}",
        "{key: a, check: gt, field: f, value: many}",
        "{key: a, check: age_lt, field: f, value: 1x}",
        "{key: a, check: in, field: f, value: x}",
    ],
)
def test_a_rule_that_the_reference_can_never_pass_never_passes(rule: str) -> None:
    group = sound(f"{HEAD}{JOB}{TRIGGER}validation: {{rules: [{rule}]}}\n").rules
    now = parse_rfc3339("2026-01-01T00:00:00Z")

    assert now is not None
    assert not evaluate(group, {"a": {"f": "x", "": "x"}, "": {"f": 1}}, now).passed


@pytest.mark.parametrize("job", ["", "job: {type: spark-on-mars}\n", "job: {config: {}}\n"])
def test_a_job_that_cannot_be_known_is_left_out_with_a_warning(job: str) -> None:
    loaded = load(HEAD + TRIGGER + job)

    assert loaded.pipeline is not None
    assert loaded.pipeline.job is None
    assert "job.type" in [problem.path for problem in loaded.warnings]


def test_what_is_understood_of_a_job_is_kept() -> None:
    loaded = load(HEAD + TRIGGER + "job: {type: emr, config: {clusterId: c, foo: 1, stepName: [x]}}\n")

    # A list where a text belongs cannot be understood at all, in any reading.
    assert [problem.path for problem in loaded.errors] == ["job.config.stepName"]
    job = sound(HEAD + TRIGGER + "job: {type: emr, config: {clusterId: c, foo: 1, stepName: 5}}\n").job
    assert job is not None
    assert job.config == {"clusterId": "c", "stepName": "5"}


def test_an_unknown_variable_is_left_as_it_is() -> None:
    loaded = load(HEAD + TRIGGER + "job: {type: glue, config: {jobName: '${environment}-etl'}}\n")

    assert loaded.pipeline is not None
    assert loaded.pipeline.job is not None
    assert loaded.pipeline.job.config == {"jobName": "${environment}-etl"}
    assert [problem.path for problem in loaded.warnings] == ["job.config.jobName"]
