"""What is legal and yet most likely not meant."""

import json
from datetime import date
from pathlib import Path

import pytest

from tests.support.builders.runners import TOKEN, a_request
from worker.config.lint import lint_together
from worker.config.load import load_text
from worker.core.model.templates import RUN_VARIABLES
from worker.jobs.command.runner import context_environment

TODAY = date(2026, 1, 5)
HEAD = "pipeline: {id: p}\n"
JOB = "job: {type: glue, config: {jobName: e}}\n"
TRIGGER = "schedule: {trigger: {key: a, check: exists}}\n"


def warnings(text: str) -> list[tuple[str, str]]:
    loaded = load_text(text, today=TODAY)
    assert [str(problem) for problem in loaded.errors] == []
    return [(problem.path, problem.message) for problem in loaded.warnings]


def schedule_warnings(text: str) -> list[tuple[str, str]]:
    return warnings(f"{HEAD}{JOB}schedule: {text}\n")


@pytest.mark.parametrize(
    "text",
    [
        "{trigger: {key: a, check: exists}}",
        "{cron: 0 6 * * *, exclude: {weekends: true}}",
        "{cron: 0 0 29 2 *}",
        "{cron: 0 6 * * *, businessDays: first}",
        "{trigger: {key: a, check: exists}, include: {dates: [2026-03-31]}, exclude: {weekends: true}}",
        "{cron: '0 * * * *', exclude: {days: [mon, tue, wed, thu, fri, sat]}}",
        "{trigger: {key: a, check: exists}, evaluation: {window: 5m, interval: 5m}}",
    ],
)
def test_a_sensible_schedule_gets_no_warning(text: str) -> None:
    assert schedule_warnings(text) == []


def test_a_window_shorter_than_its_interval() -> None:
    text = "{trigger: {key: a, check: exists}, evaluation: {window: 1m, interval: 5m}}"

    assert schedule_warnings(text) == [
        ("schedule.evaluation.window", "the window (1m) is shorter than its interval (5m)")
    ]


@pytest.mark.parametrize(
    ("job", "path", "reference"),
    [
        ("glue, config: {jobName: e, arguments: {--key: '${INTERLOCK_KEY}'}}", "arguments.--key", "${INTERLOCK_KEY}"),
        (
            "step-function, config: {stateMachineArn: a, arguments: {key: 'secretsmanager://db#key'}}",
            "arguments.key",
            "secretsmanager://db#key",
        ),
        ("command, config: {command: [load, --key, $INTERLOCK_KEY]}", "command[2]", "$INTERLOCK_KEY"),
    ],
)
def test_a_secret_where_none_is_filled_in(job: str, path: str, reference: str) -> None:
    found = warnings(f"{HEAD}{TRIGGER}job: {{type: {job}}}\n")

    assert [(where, what.partition(": ")[0]) for where, what in found] == [
        (f"job.config.{path}", f"`{reference}` is not filled in here")
    ]


@pytest.mark.parametrize(
    "job",
    [
        "glue, config: {jobName: e, arguments: {--key: '$${INTERLOCK_KEY}', --day: '${DATE}'}}",
        "command, config: {command: load, environment: {KEY: '${INTERLOCK_KEY}'}}",
        "http, config: {url: 'https://example.com', headers: {X-Key: '${INTERLOCK_KEY}'}}",
    ],
)
def test_a_secret_where_it_is_filled_in_or_not_meant_gets_no_warning(job: str) -> None:
    assert warnings(f"{HEAD}{TRIGGER}job: {{type: {job}}}\n") == []


@pytest.mark.parametrize("name", RUN_VARIABLES)
@pytest.mark.parametrize("form", ["${}", "${{{}}}", "${{{}:-none}}"])
def test_what_a_program_is_told_about_its_run_is_no_secret_in_its_command(name: str, form: str) -> None:
    for command in (f"load {form.format(name)}", ["sh", "-c", f"load {form.format(name)}"]):
        config = {"command": command, "arguments": [form.format(name)], "environment": {"X": form.format(name)}}
        text = HEAD + TRIGGER + f"job: {{type: command, config: {json.dumps(config)}}}\n"

        assert warnings(text) == []


def test_the_page_of_commands_names_what_a_program_is_told_about_its_run() -> None:
    page = (Path(__file__).parents[3] / "docs/jobs/command.md").read_text()
    told = context_environment(TOKEN, a_request({}).context)

    assert tuple(told) == (*RUN_VARIABLES, "TRACEPARENT")
    assert ", ".join(f"`{name}`" for name in RUN_VARIABLES) in " ".join(page.split())


@pytest.mark.parametrize("job", ["glue, config: {jobName: e, arguments: {--p: $INTERLOCK_PERIOD}}"])
def test_to_other_jobs_such_a_name_means_nothing(job: str) -> None:
    assert len(warnings(f"{HEAD}{TRIGGER}job: {{type: {job}}}\n")) == 1


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ('sh -c "echo a"', '"'),
        ("load it's", "'"),
        ("load | gzip", "|"),
        ("load && check", "&&"),
        ("load > out.txt", ">"),
        ("load; check", ";"),
        ("load $(date)", "$("),
        ("load &", "&"),
        ("~/load", "~"),
    ],
)
def test_a_command_that_is_written_for_a_shell(command: str, found: str) -> None:
    text = HEAD + TRIGGER + f"job: {{type: command, config: {{command: {json.dumps(command)}}}}}\n"

    assert warnings(text) == [
        ("job.config.command", f"`{found}` means nothing here: the text is split at spaces, and no shell reads it")
    ]


@pytest.mark.parametrize(
    "command", ["load --day ${DATE}", "load a&b=c", "load *.csv#x~y", ["sh", "-c", "load | gzip > 'a b'"]]
)
def test_a_command_without_a_shell_gets_no_warning(command: object) -> None:
    text = HEAD + TRIGGER + f"job: {{type: command, config: {{command: {json.dumps(command)}}}}}\n"

    assert warnings(text) == []


def test_waiting_and_polling_longer_than_the_run_may_take() -> None:
    job = "job: {type: glue, config: {jobName: e}, jobPollWindowSeconds: 7200, runTimeoutSeconds: 10000}\n"

    assert warnings(HEAD + job + TRIGGER) == [
        ("schedule.evaluation.window", "waiting (1h) and polling (2h) take longer than the run may (2h46m40s)")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "{cron: 0 6 * * 6, exclude: {weekends: true}}",
        "{cron: '* * * * *', exclude: {days: [mon, tue, wed, thu, fri], weekends: true}}",
        "{trigger: {key: a, check: exists}, exclude: {days: [mon, tue, wed, thu, fri], weekends: true}}",
        "{trigger: {key: a, check: exists}, include: {dates: [2026-03-01]}, exclude: {weekends: true}}",
        "{cron: 0 6 25 12 *, exclude: {dates: [2026-12-25]}}",
        "{cron: 0 6 20 * *, businessDays: 1}",
    ],
)
def test_a_calendar_that_excludes_every_run_of_the_next_year(text: str) -> None:
    assert schedule_warnings(text) == [("schedule", "every run of the next year is excluded")]


@pytest.mark.parametrize("cron", ["0 6 31 2 *", "0 6 30 2 *"])
def test_a_cron_that_never_fires(cron: str) -> None:
    assert schedule_warnings(f"{{cron: {cron}}}") == [("schedule.cron", f"`{cron}` never fires")]


def test_an_sla_deadline_before_the_schedule_can_fire() -> None:
    text = HEAD + JOB + "schedule: {cron: 0 9 * * *}\nsla: {deadline: '08:00'}\n"

    assert warnings(text) == [
        (
            "sla.deadline",
            (
                "the SLA deadline of 2026-01-05 (2026-01-05 08:00 UTC) comes before the schedule fires "
                "(2026-01-05 09:00 UTC)"
            ),
        )
    ]


@pytest.mark.parametrize("sla", ["{deadline: '08:00', dayOffset: 1}", "{deadline: '09:30'}", "{deadline: ':30'}"])
def test_an_sla_deadline_after_the_schedule_fires_is_fine(sla: str) -> None:
    assert warnings(f"{HEAD}{JOB}schedule: {{cron: 0 9 * * *}}\nsla: {sla}\n") == []


def test_of_several_schedules_the_one_is_named() -> None:
    text = HEAD + JOB + "schedules: [{id: a, cron: 0 6 * * *}, {id: b, cron: 0 9 * * *, sla: {deadline: '08:00'}}]\n"

    assert [path for path, _ in warnings(text)] == ["schedules[1].sla.deadline"]


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("schedule: {trigger: {key: 'a#1', check: exists}}\n", "schedule.trigger.key"),
        (TRIGGER + "validation: {rules: [{any: [{key: 'a#b', check: exists}]}]}\n", "validation.rules[0].any[0].key"),
        (TRIGGER + "postRun: {rules: [{key: 'a#b', check: exists}]}\n", "postRun.rules[0].key"),
    ],
)
def test_a_key_that_can_never_stand_for_a_period(text: str, path: str) -> None:
    [(found, message)] = warnings(HEAD + JOB + text)

    assert found == path
    assert "can never stand for the sensor of a period" in message


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("validation: {trigger: ANY}\n", "validation"),
        ("validation: {rules: [{all: [{any: []}]}]}\n", "validation.rules[0].all[0]"),
    ],
)
def test_any_of_no_rules(text: str, path: str) -> None:
    assert warnings(HEAD + JOB + TRIGGER + text) == [(path, "ANY without rules never holds")]


@pytest.mark.parametrize("text", ["{}", "{timezone: Europe/Berlin}", "{include: {dates: [2026-03-31]}}"])
def test_a_schedule_that_nothing_starts(text: str) -> None:
    assert schedule_warnings(text) == [("schedule", "nothing starts this schedule")]


def test_a_prefix_match_says_that_it_fires_on_anothers_sensor() -> None:
    texts = [
        (
            "schedules: [{id: a, trigger: {key: orders, check: exists, match: prefix}},"
            " {id: b, trigger: {key: orders-b, check: exists}}]\n"
        ),
        "schedule: {trigger: {key: orders-debug, check: exists}}\n",
    ]
    loaded = [load_text(f"pipeline: {{id: p{n}}}\n{JOB}{text}") for n, text in enumerate(texts)]

    [(owner, schedule, finding)] = lint_together([each.pipeline for each in loaded if each.pipeline])

    assert (owner, schedule, finding.path) == (0, 0, ("trigger", "key"))
    assert finding.message.endswith("it fires on that one's sensor too")


def test_a_key_that_does_nothing_is_said_to_do_nothing() -> None:
    found = warnings(
        f"{HEAD}{JOB}{TRIGGER}sla: {{deadline: '06:00', critical: true}}\n"
        "postRun: {evaluation: {window: 1h, interval: 5m}, rules: [{key: a, check: exists}]}\n"
    )

    assert ("sla.critical", "has no effect") in found
    assert ("postRun.evaluation", "has no effect") in found


def test_a_post_run_rule_on_a_count_that_no_summary_has_is_most_likely_mistyped() -> None:
    rules = "{key: summary, field: FIELD, check: lte, value: 10}"
    text = f"{HEAD}{JOB}{TRIGGER}postRun: {{rules: [{{any: [{rules}]}}]}}\n"

    assert warnings(text.replace("FIELD", "errored")) == []
    [(path, message)] = warnings(text.replace("FIELD", "errors"))
    assert path == "postRun.rules[0].any[0].field"
    assert message == "`errors` is no count of a job's summary, so the rule never holds"


PROBE = "probes: [{key: rates, type: command, config: {command: [cat, rates.json]}}]\n"


@pytest.mark.parametrize(
    ("rules", "hint"),
    [
        (
            "validation: {rules: [{key: rate, check: exists}]}\n",
            "a rule or trigger names `rate`: did you mean `rates`?",
        ),
        ("validation: {rules: [{key: other, check: exists}]}\n", "name it in a rule or trigger, or remove it"),
        ("", "name it in a rule or trigger, or remove it"),
    ],
)
def test_a_probe_that_nothing_reads(rules: str, hint: str) -> None:
    [problem] = load_text(HEAD + JOB + TRIGGER + PROBE + rules, today=TODAY).warnings

    assert (problem.path, problem.message) == ("probes[0].key", "no rule or trigger of this pipeline reads `rates`")
    assert problem.hint == hint


@pytest.mark.parametrize(
    "reader",
    [
        "validation: {rules: [{any: [{key: a, check: exists}, {key: rates, check: passes}]}]}\n",
        "postRun: {monitor: {for: 1h}, rules: [{key: rates, check: exists}]}\n",
        "postRun: {match: prefix, rules: [{key: rat, check: exists}]}\n",
    ],
)
def test_a_probe_that_a_rule_reads_gets_no_warning(reader: str) -> None:
    assert warnings(HEAD + JOB + TRIGGER + PROBE + reader) == []


def test_a_probe_that_a_trigger_reads_gets_no_warning() -> None:
    always = PROBE.replace("type:", "run: always, type:")

    assert warnings(f"{HEAD}{JOB}schedule: {{trigger: {{key: rates, check: exists}}}}\n{always}") == []
