"""Loading one pipeline file: what it becomes, and what is said about what is wrong."""

import tracemalloc
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import pytest

from worker.config import Loaded, load_calendar_text, load_text
from worker.core.calendars import Calendar, Exclusion
from worker.core.pipeline import (
    Evaluation,
    Job,
    JobType,
    Match,
    Misfire,
    MisfirePolicy,
    OnUnknownStart,
    Overlap,
    Pipeline,
    Schedule,
    Sla,
    StartBy,
    Undated,
)
from worker.core.rules import Check, Group, Mode, Rule
from worker.core.sla import ClockTime, Deadline

TODAY = date(2026, 1, 5)
HEAD = "pipeline: {id: orders}\n"
JOB = "job: {type: glue, config: {jobName: etl}}\n"
TRIGGER = "schedule: {trigger: {key: orders-loaded, check: exists}}\n"
HOLIDAYS = Calendar(name="us-federal", dates={date(2026, 7, 3): "Independence Day"})


def load(text: str, *, calendars: dict[str, Calendar] | None = None) -> Loaded:
    return load_text(text, file="orders.yaml", calendars=calendars, today=TODAY)


def sound(text: str, *, calendars: dict[str, Calendar] | None = None) -> Pipeline:
    loaded = load(text, calendars=calendars)
    assert [str(problem) for problem in loaded.errors] == []
    assert loaded.pipeline is not None
    return loaded.pipeline


def schedule(text: str, *, calendars: dict[str, Calendar] | None = None) -> Schedule:
    [only] = sound(HEAD + JOB + text, calendars=calendars).schedules
    return only


def errors(text: str) -> list[str]:
    """The errors without the file's name."""
    loaded = load(text)
    assert loaded.pipeline is None
    return [str(problem).removeprefix("orders.yaml:").replace(" error:", "") for problem in loaded.errors]


def rule(text: str) -> Rule:
    [member] = sound(f"{HEAD}{JOB}{TRIGGER}validation: {{rules: [{text}]}}").rules.members
    assert isinstance(member, Rule)
    return member


# --- what a file becomes ----------------------------------------------------------------------------------------------


def test_a_whole_file_becomes_a_pipeline() -> None:
    text = """
pipeline: {id: orders, owner: team, description: Orders of a day}
schedule:
  timezone: Europe/Berlin
  trigger: {key: loaded, check: equals, field: s, value: 1, deadline: ":45", match: prefix, undated: daily}
  time: 6:30
  evaluation: {window: 90m, interval: 30s, reopen: yes}
  misfire: {policy: all, maxLateness: 3h}
sla: {deadline: "09:00", expectedDuration: 30m, maxDuration: 24h, critical: true, dayOffset: -2, timezone: Asia/Tokyo}
validation:
  trigger: {atLeast: 1}
  rules: [{any: [{key: a, check: exists}, {all: []}]}, {atLeast: 1, rules: [{key: b, check: missing, field: x}]}]
job:
  type: step-function
  config: {stateMachineArn: "arn:x", input: {day: "${DATE}"}}
  maxRetries: 3
  maxCodeRetries: 0
  maxDriftReruns: 2
  maxManualReruns: 5
  jobPollWindowSeconds: 60
  pollIntervalSeconds: 5
  runTimeoutSeconds: 7200
  onUnknownStart: restart
  overlap: allow
postRun:
  {rules: [{key: out, check: exists}], driftField: n, driftThreshold: 1.5, sensorTimeout: 1h, evaluation: {}}
"""
    pipeline = sound(text)

    [only] = pipeline.schedules
    assert (pipeline.owner, pipeline.description, pipeline.dry_run) == ("team", "Orders of a day", False)
    assert (only.id, only.zone, only.start) == ("stream", ZoneInfo("Europe/Berlin"), StartBy.TRIGGER)
    assert only.trigger is not None
    assert only.trigger.rule == Rule(key="loaded", check=Check.EQUALS, field="s", value=1)
    assert (only.trigger.match, only.trigger.undated) == (Match.PREFIX, Undated.DAILY)
    assert only.trigger.deadline == Deadline(None, 45)
    assert only.expected_at == ClockTime(6, 30)
    assert only.evaluation == Evaluation(window=timedelta(minutes=90), interval=timedelta(seconds=30), reopen=True)
    assert only.misfire == MisfirePolicy(policy=Misfire.ALL, max_lateness=timedelta(hours=3))
    assert only.sla == Sla(
        deadline=Deadline(9, 0),
        expected_duration=timedelta(minutes=30),
        max_duration=timedelta(hours=24),
        zone=ZoneInfo("Asia/Tokyo"),
        day_offset=-2,
        critical=True,
    )
    nested = Group(mode=Mode.ANY, members=(Rule(key="a", check=Check.EXISTS), Group()))
    missing = Group(mode=Mode.AT_LEAST, count=1, members=(Rule(key="b", check=Check.MISSING, field="x"),))
    assert pipeline.rules == Group(mode=Mode.AT_LEAST, count=1, members=(nested, missing))
    assert pipeline.job == Job(
        type=JobType.STEP_FUNCTION,
        config={"stateMachineArn": "arn:x", "input": {"day": "${DATE}"}},
        max_retries=3,
        max_code_retries=0,
        max_drift_reruns=2,
        max_manual_reruns=5,
        poll_window=timedelta(minutes=1),
        poll_interval=timedelta(seconds=5),
        run_timeout=timedelta(hours=2),
        on_unknown_start=OnUnknownStart.RESTART,
        overlap=Overlap.ALLOW,
    )
    assert pipeline.post_run is not None
    assert (pipeline.post_run.drift_field, pipeline.post_run.drift_threshold) == ("n", 1.5)
    assert pipeline.post_run.sensor_timeout == timedelta(hours=1)
    assert pipeline.post_run.evaluation == Evaluation()


def test_a_cron_without_a_trigger_starts_runs() -> None:
    found = schedule("schedule: {cron: 0 6 * * *}")

    assert (found.id, found.start, found.starts_by_cron) == ("cron", StartBy.CRON, True)


def test_a_cron_beside_a_trigger_only_says_what_is_expected() -> None:
    found = schedule("schedule: {cron: 0 6 * * *, trigger: {key: a, check: exists}}")

    assert (found.id, found.starts_by_cron, found.starts_by_trigger) == ("cron", False, True)


@pytest.mark.parametrize(
    ("sla", "day_offset"),
    [
        ("schedule: {trigger: {key: a, check: exists}}\nsla: {deadline: '08:00'}", 1),
        ("schedule: {trigger: {key: a, check: exists}}\nsla: {deadline: ':30'}", 0),
        ("schedule: {cron: 0 6 * * *}\nsla: {deadline: '08:00'}", 0),
        ("schedule: {trigger: {key: a, check: exists}}\nsla: {maxDuration: 2h}", 0),
        ("schedule: {cron: 0 6 * * *}\nsla: {deadline: '08:00', dayOffset: 1}", 1),
    ],
)
def test_a_days_deadline_lies_on_the_next_day_unless_a_cron_says_when(sla: str, day_offset: int) -> None:
    found = schedule(sla).sla

    assert found is not None
    assert found.day_offset == day_offset


def test_a_deadline_is_in_the_schedules_zone_unless_it_has_its_own() -> None:
    found = schedule("schedule: {cron: 0 6 * * *, timezone: Asia/Tokyo}\nsla: {deadline: '8:00'}").sla

    assert found is not None
    assert found.zone == ZoneInfo("Asia/Tokyo")


def test_several_schedules_have_ids_and_may_have_slas_of_their_own() -> None:
    text = """
schedules:
  - {id: early, cron: 0 6 * * *, sla: {deadline: "07:00"}}
  - {id: late, cron: 0 18 * * *}
sla: {deadline: "20:00"}
"""
    early, late = sound(HEAD + JOB + text).schedules

    assert early.sla is not None
    assert late.sla is not None
    assert (early.id, early.sla.deadline) == ("early", Deadline(7, 0))
    assert (late.id, late.sla.deadline) == ("late", Deadline(20, 0))


def test_everything_left_out_is_gathered_from_the_schedule_and_the_file() -> None:
    text = """
schedule:
  cron: 0 6 * * *
  exclude: {weekends: on, dates: [2026-12-24], holidays: us-federal, days: [Friday]}
  calendar: us-federal
  businessDays: [first, -2]
exclusions: {days: [tue], dates: [2026-12-31], calendar: [us-federal, own]}
calendars: {own: {days: [sunday], dates: [{date: 2026-05-01, name: May Day}]}}
"""
    own = Calendar(name="own", weekdays=frozenset({6}), dates={date(2026, 5, 1): "May Day"})

    assert schedule(text, calendars={"us-federal": HOLIDAYS}).exclusion == Exclusion(
        weekends=True,
        weekdays=frozenset({1, 4}),
        dates=frozenset({date(2026, 12, 24), date(2026, 12, 31)}),
        calendars=(own, HOLIDAYS),
        business_days=frozenset({1, -2}),
    )


def test_a_calendar_of_the_file_comes_before_a_calendar_file_of_that_name() -> None:
    text = "schedule: {cron: 0 6 * * *, calendar: us-federal}\ncalendars: {us-federal: {dates: [2026-01-01]}}"

    [found] = schedule(text, calendars={"us-federal": HOLIDAYS}).exclusion.calendars

    assert list(found.dates) == [date(2026, 1, 1)]


def test_a_key_without_a_value_counts_as_absent() -> None:
    pipeline = sound(HEAD + JOB + TRIGGER + "validation:\n  rules:\nsla:\npostRun:\n")

    assert (pipeline.rules, pipeline.post_run) == (Group(), None)


def test_no_poll_window_means_the_default_one() -> None:
    job = sound(HEAD + TRIGGER + "job: {type: glue, config: {jobName: e}, jobPollWindowSeconds: 0}").job

    assert job is not None
    assert job.poll_window == timedelta(hours=1)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("{key: a, check: exists, field: '', value: null}", Rule(key="a", check=Check.EXISTS)),
        ("{key: a, check: missing}", Rule(key="a", check=Check.MISSING)),
        ("{key: a, check: equals, field: '', value: null}", Rule(key="a", check=Check.EQUALS, field="")),
        ("{key: a, check: gt, field: n, value: '1e3'}", Rule(key="a", check=Check.GT, field="n", value="1e3")),
        ("{key: a, check: in, field: n, value: [1, x]}", Rule(key="a", check=Check.IN, field="n", value=[1, "x"])),
        (
            "{key: a, check: between, field: n, value: [1, 1]}",
            Rule(key="a", check=Check.BETWEEN, field="n", value=[1, 1]),
        ),
        ("{key: a, check: matches, field: n, value: a+}", Rule(key="a", check=Check.MATCHES, field="n", value="a+")),
        (
            "{key: a, check: age_lt, field: t, value: 24h, maxFutureSkew: 0s}",
            Rule(key="a", check=Check.AGE_LT, field="t", value="24h", max_future=timedelta(0)),
        ),
    ],
)
def test_a_rule_is_read_with_the_value_its_operator_takes(text: str, found: Rule) -> None:
    assert rule(text) == found


@pytest.mark.parametrize(("text", "mode"), [("any", Mode.ANY), ("All", Mode.ALL), ("ANY", Mode.ANY)])
def test_the_mode_of_the_rules_is_read_in_any_case(text: str, mode: Mode) -> None:
    rules = "rules: [{key: a, check: exists}]"

    assert sound(f"{HEAD}{JOB}{TRIGGER}validation: {{trigger: {text}, {rules}}}").rules.mode is mode


# --- what is said about what is wrong ---------------------------------------------------------------------------------


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
        "1:24: pipeline.ownr: `ownr` is not a key here; did you mean `owner`? accepted: id, owner, description",
        (
            "7:9: job.type: must be one of glue, emr, emr-serverless, step-function, databricks, airflow, lambda, "
            'http, command; found the text "glu"; did you mean `glue`?'
        ),
        "8:15: job.maxRetries: 11 is outside [0,10]",
        (
            "4:28: schedule.trigger.check: must be one of exists, missing, equals, not_equals, gt, gte, lt, lte, in, "
            'between, matches, age_lt, age_gt; found the text "exsts"; did you mean `exists`?'
        ),
        "12:7: validation.rules[1]: must be a mapping; found the number 5",
        '3:13: schedule.timezone: the text "Europe/Berln" is not a time zone; did you mean `Europe/Berlin`?',
        (
            '5:24: schedule.evaluation.window: the text "banana" is not a duration; '
            "write numbers with units h, m, s or ms: 90s, 1h30m"
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
                "must be a mapping; found nothing; the file is empty; accepted: pipeline, job, schedule, schedules, "
                "exclusions, calendars, sla, validation, postRun, dryRun"
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
                "archetype: `archetype` is a key of an older generation; an archetype's conditions are written out "
                "as validation.rules"
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
                "`calendars` beside the pipeline files"
            ),
        ),
        (_in_schedule("start: @both"), "schedule.start: `both` needs a `cron`"),
        (
            _in_schedule("businessDays: @[0]"),
            "schedule.businessDays: there is no business day 0; the first is 1, the last is -1",
        ),
        (_in_schedule("businessDays: @24"), "schedule.businessDays: 24 is outside [-23,23]"),
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
        (HEAD + JOB + TRIGGER + "@sla: {critical: true}\n", "sla: needs a `deadline` or a `maxDuration`"),
        (
            HEAD + JOB + TRIGGER + "sla: {deadline: @25:99}\n",
            'sla.deadline: must be HH:MM or :MM; found the text "25:99"; hours 0 to 23, minutes 00 to 59, in quotes',
        ),
        (HEAD + JOB + TRIGGER + "sla: {deadline: 8:00, dayOffset: @8}\n", "sla.dayOffset: 8 is outside [-7,7]"),
        (
            HEAD + JOB + TRIGGER + "sla: {maxDuration: @1d}\n",
            'sla.maxDuration: the text "1d" is not a duration; for example 90m or 2h; 24h at most',
        ),
        (
            HEAD + JOB + TRIGGER + "sla: {deadline: 8:00, expectedDuration: @45}\n",
            "sla.expectedDuration: must be a duration; found the number 45; add a unit: 45s, 45m or 45h",
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
            _in_rule("check: age_gt, field: f, value: @1d"),
            'validation.rules[0].value: must be a duration such as 24h, not less than zero; found the text "1d"',
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
            "job.jobPollWindowSeconds: 59 is outside [60,86400]; 0 stands for the default",
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
    assert loaded.errors[-1].message == "there are more than these 100 problems; mend them first"


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


def test_a_problem_reads_as_one_line_that_editors_can_jump_to() -> None:
    [problem] = load(HEAD + JOB + TRIGGER + "validation: {trigger: SOME}").errors

    assert str(problem) == (
        'orders.yaml:4:23: error: validation.trigger: must be one of ALL, ANY; found the text "SOME"'
    )


def test_values_of_an_exists_rule_are_a_warning() -> None:
    loaded = load(_in_rule("check: exists, field: f, value: 3"))

    assert [problem.path for problem in loaded.warnings] == ["validation.rules[0].value", "validation.rules[0].field"]
    assert loaded.pipeline is not None


# --- calendars --------------------------------------------------------------------------------------------------------


def test_a_calendar_file_gives_weekdays_and_dates_with_their_names() -> None:
    text = "name: us\ndescription: d\ndays: [Sat, sunday]\ndates: [2026-12-25, {date: 2026-07-04, name: Fourth}]\n"

    calendar, problems = load_calendar_text(text)

    assert problems == ()
    assert calendar == Calendar(
        name="us", weekdays=frozenset({5, 6}), dates={date(2026, 12, 25): "", date(2026, 7, 4): "Fourth"}
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("dates: []", "name"),
        ("name: a\ndates: [x]", "dates[0]"),
        ("name: a\ndates: [{name: x}]", "dates[0]"),
        ("name: a\ndays: [x]", "days[0]"),
        ("name: a\nfoo: 1", "foo"),
        ("[", ""),
    ],
)
def test_a_bad_calendar_is_refused_with_its_place(text: str, path: str) -> None:
    calendar, problems = load_calendar_text(text)

    assert calendar is None
    assert [problem.path for problem in problems] == [path]
