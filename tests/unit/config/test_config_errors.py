"""Loading a pipeline file with many mistakes: all are reported, in order and in bounds."""

import tracemalloc

import pytest

from tests.support.builders.pipeline_files import HEAD, JOB, TRIGGER, errors, load


def test_every_problem_of_a_file_is_reported_at_once() -> None:
    text = """\
pipeline: {id: orders, ownr: team}
schedule:
  timezone: Europe/Berln
  trigger: {key: a, check: exsts}
  evaluation: {window: banana}
job:
  type: glu
  maxRetries: 11
validation:
  rules:
    - {key: a, check: gt, field: n, value: many}
    - 5
"""
    expected = [
        (
            "1:24: pipeline.ownr: `ownr` is not a key here; did you mean `owner`? accepted: id, owner, description, "
            "archetype"
        ),
        (
            "7:9: job.type: must be one of glue, emr, emr-serverless, step-function, databricks, airflow, lambda, "
            'http, command; found the text "glu"; did you mean `glue`?'
        ),
        "8:15: job.maxRetries: must be between 0 and 10; found 11",
        (
            "4:28: schedule.trigger.check: must be one of exists, missing, equals, not_equals, gt, gte, lt, lte, in, "
            'between, matches, age_lt, age_gt, passes; found the text "exsts"; did you mean `exists`?'
        ),
        "12:7: validation.rules[1]: must be a mapping; found the number 5",
        '3:13: schedule.timezone: the text "Europe/Berln" is not a time zone; did you mean `Europe/Berlin`?',
        (
            '5:24: schedule.evaluation.window: the text "banana" is not a duration; '
            "write numbers with units w, d, h, m, s or ms: 90s, 1h30m, 7d"
        ),
        '11:44: validation.rules[0].value: must be a number; found the text "many"',
    ]
    assert errors(text) == expected


def test_violations_come_in_the_order_of_the_reference() -> None:
    text = """\
dryRun: true
sla: {maxDuration: 25h}
schedule: {cron: 0 6 * * *, include: {dates: [x]}}
job: {jobPollWindowSeconds: -1, maxCodeRetries: 9, maxManualReruns: 9, maxDriftReruns: 9, maxRetries: 99}
pipeline: {id: orders}
"""
    paths = [problem.path for problem in load(text).errors]

    assert paths == [
        "job.maxRetries",
        "job.maxDriftReruns",
        "job.maxManualReruns",
        "job.maxCodeRetries",
        "job.jobPollWindowSeconds",
        "schedule.include",
        "schedule.include.dates[0]",
        "sla.maxDuration",
        "sla.maxDuration",
        "job.type",
        "schedule.trigger",
    ]


def test_a_mistake_behind_an_alias_is_reported_where_it_is_used_and_shown_where_it_is_written() -> None:
    text = HEAD + JOB + TRIGGER + "validation:\n  rules: [&r {key: a, check: nope}, *r]\n"

    assert [(problem.path, problem.line, problem.column) for problem in load(text).errors] == [
        ("validation.rules[0].check", 5, 30),
        ("validation.rules[1].check", 5, 30),
    ]


def test_an_alias_that_is_wrong_in_one_place_is_right_in_another() -> None:
    text = HEAD + "x: &c {jobName: etl}\n" + TRIGGER + "job: {type: glue, config: *c}\n"

    assert [problem.path for problem in load(text).errors] == ["x"]


def test_yaml_mistakes_are_reported_together_with_the_others() -> None:
    found = errors(HEAD + "pipeline: {id: other}\n" + JOB + TRIGGER + "foo: 1\n")

    assert found[0] == "2:1: key `pipeline` is given twice; it is already given on line 1"
    assert found[1].startswith("5:1: foo: `foo` is not a key here")


def test_a_file_that_is_all_wrong_is_cut_short() -> None:
    loaded = load(HEAD + JOB + TRIGGER + "".join(f"k{n}: 1\n" for n in range(500)))

    assert len(loaded.errors) == 101
    assert loaded.errors[-1].message == "there are more than these 100 problems; fix them first"


def test_too_many_schedules_and_too_many_rules_are_refused() -> None:
    many = "schedules: [" + ", ".join(f"{{id: s{n}}}" for n in range(33)) + "]\n"
    rules = "validation: {rules: [{any: [" + "{key: a, check: exists}, " * 200 + "]}]}\n"

    assert "3:12: schedules: has 33 items; at most 32 are accepted" in errors(HEAD + JOB + many)
    assert errors(HEAD + JOB + TRIGGER + rules) == [
        "4:21: validation.rules: has 201 rules; at most 200 are accepted; use several pipelines"
    ]


HOSTILE = {
    "unknown keys": "".join(f"k{n}: 1\n" for n in range(9000)),
    "unknown operators": "validation: {rules: [" + "{key: a, check: x}, " * 3800 + "]}\n",
    "unknown zones": "schedules: [" + "{id: a, timezone: Mars/Phobos}, " * 32 + "]\n",
    "dates that are none": "exclusions: {dates: [" + "x, " * 19_000 + "]}\n",
    "unknown calendars": "calendars: {" + ", ".join(f"c{n}: {{}}" for n in range(6000)) + "}\nexclusions: {calendar: ["
    + ", ".join(f"d{n}" for n in range(5000)) + "]}\n",
    "unknown variables": "job: {type: http, config: {url: 'http://a', body: '" + "${x}" * 50_000 + "'}}\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_costs_a_bounded_amount_and_few_words(name: str) -> None:
    tracemalloc.start()
    try:
        loaded = load("pipeline: {id: p}\n" + HOSTILE[name])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert loaded.pipeline is None
    assert len(loaded.problems) <= 101
    assert peak < 32 * 1024 * 1024
