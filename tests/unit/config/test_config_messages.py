"""What is said about what is wrong in a pipeline file: where it is, what was found and what to do."""

import pytest

from tests.support.builders.pipeline_files import HEAD, JOB, TRIGGER, errors, load


def _in_schedule(text: str) -> str:
    return HEAD + JOB + f"schedule: {{trigger: {{key: a, check: exists}}, {text}}}\n"


def _in_rule(text: str, *, place: str = "") -> str:
    return HEAD + JOB + TRIGGER + f"validation: {{rules: [{place}{{key: a, {text}}}]}}\n"


def _in_job(text: str) -> str:
    return HEAD + TRIGGER + f"job: {{{text}}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@- a\n- b\n", "must be a mapping; found a list"),
        (
            "@",
            (
                "must be a mapping; found nothing; the file is empty; accepted: pipeline, extends, job, schedule, "
                "schedules, exclusions, calendars, sla, validation, probes, postRun, dryRun"
            ),
        ),
        ("@" + JOB + TRIGGER, "pipeline.id: is required: the name of the pipeline"),
        (
            "@pipeline: {id: orders}\nschedule: {trigger: {key: orders-loaded, check: exists}}\n",
            (
                "job.type: is required: what to run; one of glue, emr, emr-serverless, step-function, databricks, "
                "airflow, lambda, http, command"
            ),
        ),
        (
            HEAD + JOB + TRIGGER + "@archetype: batch\n",
            (
                "archetype: `archetype` is a key of an older generation; a file builds on an archetype with "
                "`extends: {archetype: NAME}`"
            ),
        ),
        (
            "pipeline: {id: @a#b}\n" + JOB + TRIGGER,
            (
                'pipeline.id: is not a name; found the text "a#b"; a name has 1 to 64 letters, digits, `.`, `_` or '
                "`-`, and begins with a letter or digit"
            ),
        ),
        ("pipeline: {id: @5}\n" + JOB + TRIGGER, "pipeline.id: must be text; found the number 5; put it in quotes"),
        (
            _in_schedule("evaluation: {interval: @500ms}"),
            "schedule.evaluation.interval: must be at least 1s; found 500ms",
        ),
        (_in_schedule("evaluation: {window: @0s}"), "schedule.evaluation.window: must be longer than zero; found 0s"),
        (
            _in_schedule("evaluation: {reopen: @maybe}"),
            'schedule.evaluation.reopen: must be true or false; found the text "maybe"',
        ),
        (
            _in_schedule("cron: @whenever"),
            (
                "schedule.cron: the text \"whenever\" is not a cron expression: 'whenever' has 1 fields; a cron "
                "expression has 5: minute, hour, day of month, month, day of week"
            ),
        ),
        (_in_schedule("include: {dates: @[]}"), "schedule.include.dates: needs at least one date"),
        (
            _in_schedule("exclude: {dates: [@2026-02-30]}"),
            'schedule.exclude.dates[0]: the text "2026-02-30" is not a date; write YYYY-MM-DD, a day that exists',
        ),
        (
            _in_schedule("exclude: {days: [@caturday]}"),
            'schedule.exclude.days[0]: the text "caturday" is not a weekday; did you mean `saturday`?',
        ),
        (
            _in_schedule("calendar: @us-fedral"),
            (
                'schedule.calendar: there is no calendar "us-fedral"; put calendar files into a directory '
                "`calendars` next to the pipeline files"
            ),
        ),
        (_in_schedule("start: @both"), "schedule.start: `both` needs a `cron`"),
        (
            _in_schedule("businessDays: @[0]"),
            "schedule.businessDays: there is no business day 0; the first is 1, the last is -1",
        ),
        (_in_schedule("businessDays: @24"), "schedule.businessDays: must be between -23 and 23; found 24"),
        (
            _in_schedule("maxAhead: @48"),
            "schedule.maxAhead: must be a duration; found the number 48; add a unit: 48s, 48m, 48h or 48d",
        ),
        (
            _in_schedule("after: [{pipeline: x, within: @7}]"),
            "schedule.after[0].within: must be a duration; found the number 7; add a unit: 7s, 7m, 7h or 7d",
        ),
        (
            _in_schedule("after: @{pipeline: x}"),
            "schedule.after: must be a list; found a mapping; begin each item with `- `, or put the items in [ ]",
        ),
        (
            _in_schedule("misfire: @last"),
            (
                "schedule.misfire: must be one of skip, latest, all, or a mapping with policy, maxLateness; "
                'found the text "last"; did you mean `latest`?'
            ),
        ),
        (_in_schedule("misfire: @5"), "schedule.misfire: must be text or a mapping; found the number 5"),
        (
            _in_schedule("time: @':30'"),
            'schedule.time: must be HH:MM; found the text ":30"; hours 0 to 23, minutes 00 to 59, in quotes',
        ),
        (
            _in_schedule("cron: 0 6 * * *, @include: {dates: [2026-01-01]}"),
            (
                "schedule.include: schedule.cron and schedule.include are both given: either regular times or "
                "irregular dates; keep one of them; use `schedules` for both"
            ),
        ),
        (
            HEAD + JOB + TRIGGER + "@schedules: [{id: a}]\n",
            "schedules: `schedule` and `schedules` are both given; keep one of them",
        ),
        (
            HEAD + JOB + "schedules: [{id: a}, {id: @a}]\n",
            'schedules[1].id: the text "a" is also the id of schedules[0]; ids must differ',
        ),
        (
            HEAD + JOB + "schedules: [@{cron: 0 6 * * *}]\n",
            "schedules[0].id: is required: each of several schedules has a name",
        ),
        (
            HEAD + JOB + TRIGGER + "@sla: {critical: true}\n",
            "sla: needs a `deadline`, a `maxDuration`, an `evaluationDeadline` or a `maxEvaluation`",
        ),
        (
            HEAD + JOB + TRIGGER + "sla: {deadline: @25:99}\n",
            'sla.deadline: must be HH:MM or :MM; found the text "25:99"; hours 0 to 23, minutes 00 to 59, in quotes',
        ),
        (
            HEAD + JOB + TRIGGER + "sla: {deadline: 8:00, dayOffset: @8}\n",
            "sla.dayOffset: must be between -7 and 7; found 8",
        ),
        (
            HEAD + JOB + TRIGGER + "sla: {maxDuration: @1x}\n",
            'sla.maxDuration: the text "1x" is not a duration; for example 90m or 2h; 24h at most',
        ),
        (
            HEAD + JOB + TRIGGER + "sla: {deadline: 8:00, expectedDuration: @45}\n",
            "sla.expectedDuration: must be a duration; found the number 45; add a unit: 45s, 45m, 45h or 45d",
        ),
        (
            HEAD + JOB + TRIGGER + "postRun: {rules: [{key: a, check: exists}], driftThreshold: @-1}\n",
            "postRun.driftThreshold: must be at least 0; found -1",
        ),
        (_in_rule("check: equals, value: 1", place="@"), "validation.rules[0]: `equals` needs a `field` to look at"),
        (
            _in_rule("check: equals, field: f", place="@"),
            "validation.rules[0].value: `equals` needs a `value` (`value: null` compares with nothing)",
        ),
        (
            _in_rule("check: between, field: f, value: @[2, 1]"),
            "validation.rules[0].value: the lower bound comes first: [low, high]",
        ),
        (
            _in_rule("check: in, field: f, value: @[]"),
            "validation.rules[0].value: must be a list of at least one value",
        ),
        (
            _in_rule("check: age_gt, field: f, value: @1x"),
            'validation.rules[0].value: must be a duration such as 24h or 7d, not less than zero; found the text "1x"',
        ),
        (_in_rule("check: gt, field: f, value: @true"), "validation.rules[0].value: must be a number; found true"),
        (
            HEAD + JOB + TRIGGER + "validation: {trigger: {atLeast: @2}, rules: [{key: a, check: exists}]}\n",
            "validation.trigger.atLeast: asks for 2 of 1 rules; ask for no more than there are",
        ),
        (
            HEAD + JOB + TRIGGER + "validation: {rules: [{any: [{key: a, @chek: exists}]}]}\n",
            (
                "validation.rules[0].any[0].chek: `chek` is not a key here; did you mean `check`? accepted: key, "
                "check, field, value, maxFutureSkew, any, all, atLeast, rules"
            ),
        ),
        (
            _in_job("type: glue, config: {jobName: e}, jobPollWindowSeconds: @59"),
            "job.jobPollWindowSeconds: must be between 60 and 86400, or 0 for the default; found 59",
        ),
        (
            _in_job("type: glue, config: {jobName: e}, maxRetries: @'3'"),
            'job.maxRetries: must be a whole number; found the text "3"; write the number without quotes or a unit',
        ),
        (
            _in_job("type: glue, config: {jobName: @'${DAET}'}"),
            "job.config.jobName: `${DAET}` is not a variable; did you mean `DATE`?",
        ),
        (HEAD + TRIGGER + "@job: {type: glue}\n", "job.config.jobName: is required by glue jobs"),
        (
            "@pipeline: {id: orders}\njob: {type: glue, config: {jobName: etl}}\ndryRun: true\n",
            "schedule.trigger: is required for a dry run; a dry run says what a sensor would have started",
        ),
    ],
)
def test_a_message_says_where_what_was_found_and_what_to_do(text: str, message: str) -> None:
    """The `@` in a text is not part of it: it shows the place that must be named."""
    before, _, after = text.partition("@")
    place = f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"

    assert errors(before + after) == [f"{place}: {message}"]


def test_one_mistake_is_one_message() -> None:
    assert len(errors(_in_rule("check: 5, value: 3"))) == 1
    assert len(errors("pipeline: {id: []}\n" + JOB + TRIGGER)) == 1
    assert len(errors(HEAD + TRIGGER + "job: 5\n")) == 1


def test_a_sensor_without_a_key_is_refused() -> None:
    schedule = "schedule: {trigger: {key: '', check: exists}}\n"

    assert errors(HEAD + JOB + schedule) == ["3:27: schedule.trigger.key: is required: the key of a sensor"]


def test_a_problem_reads_as_one_line_that_editors_can_jump_to() -> None:
    [problem] = load(HEAD + JOB + TRIGGER + "validation: {trigger: SOME}").errors

    assert str(problem) == (
        "orders.yaml:4:23: error: validation.trigger: must be one of ALL, ANY, or a mapping with atLeast; "
        'found the text "SOME"'
    )


def test_values_of_an_exists_rule_are_a_warning() -> None:
    loaded = load(_in_rule("check: exists, field: f, value: 3"))

    assert [problem.path for problem in loaded.warnings] == ["validation.rules[0].value", "validation.rules[0].field"]
    assert loaded.pipeline is not None
