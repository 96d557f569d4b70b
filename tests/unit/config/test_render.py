"""Writing a pipeline back: minimal, stable, and read as the same pipeline."""

import json
from collections.abc import Callable
from datetime import date
from functools import reduce

import pytest

from tests.vectors.mapping import CALENDARS
from worker.config.load import load_text
from worker.config.render import config_hash, to_json, to_mapping, to_yaml
from worker.core.model.calendars import Calendar
from worker.core.model.pipeline import Pipeline

JOB = "job: {type: glue, config: {jobName: etl}}\n"


def load(text: str, **calendars: Calendar) -> Pipeline:
    loaded = load_text(text, calendars=calendars)
    assert [str(problem) for problem in loaded.errors] == []
    assert loaded.pipeline is not None
    return loaded.pipeline


FILES = {
    "minimal": "pipeline: {id: p}\n" + JOB,
    "everything": """
pipeline: {id: p, owner: o, description: "line\\nline: 'x' \\u2028 \\U0001F600"}
schedule:
  timezone: America/New_York
  trigger: {key: a, check: between, field: "", value: [1, 2.5], deadline: ":05", match: prefix, undated: daily}
  exclude: {weekends: true, days: [friday, monday], dates: [2026-12-25, 2026-01-01]}
  businessDays: [last, 3, first]
  include: {dates: [2026-03-31, 2026-01-30]}
  time: 6:05
  evaluation: {window: 90m, interval: 30s, reopen: true}
  misfire: {policy: skip, maxLateness: 1h}
sla: {deadline: "8:00", expectedDuration: 1.5h, maxDuration: 2h, timezone: Asia/Tokyo, critical: true, dayOffset: 3}
validation:
  trigger: {atLeast: 1}
  rules:
    - {key: a, check: equals, field: f, value: null}
    - {any: [{key: a, check: in, field: f, value: [1, "1e3", "on", "", "~", 1.0e+20]}, {all: []}]}
    - {atLeast: 1, rules: [{key: t, check: age_gt, field: f, value: 1h, maxFutureSkew: 1m}]}
    - {key: m, check: missing, field: f}
job:
  type: http
  config: {url: "https://x", body: {a: [1, {b: null}]}, headers: {"<<": "1"}, status_url: "https://y"}
  maxRetries: 1
  maxCodeRetries: 0
  maxDriftReruns: 0
  maxManualReruns: 0
  jobPollWindowSeconds: 60
  pollIntervalSeconds: 1
  runTimeoutSeconds: 60
  onUnknownStart: restart
  overlap: allow
postRun:
  {rules: [{key: o, check: exists}], driftField: n, driftThreshold: 0.5, sensorTimeout: 1m, evaluation: {}}
dryRun: true
""",
    "several schedules": """
pipeline: {id: p}
schedules:
  - {id: a, cron: 0 6 * * *, sla: {deadline: "07:00"}, misfire: all}
  - {id: b, cron: 0 7 * * *, trigger: {key: k, check: exists}, start: both}
sla: {deadline: "20:00"}
exclusions: {days: [sun]}
"""
    + JOB,
    "one schedule with a name": "pipeline: {id: p}\nschedules: [{id: nightly, cron: 0 1 * * *}]\n" + JOB,
    "an empty post run": "pipeline: {id: p}\npostRun: {}\n" + JOB,
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("write", [to_yaml, to_json])
def test_what_is_written_is_read_as_the_same_pipeline_and_written_the_same(
    name: str, write: Callable[[Pipeline], str]
) -> None:
    pipeline = load(FILES[name])

    text = write(pipeline)

    assert load(text) == pipeline
    assert write(load(text)) == text


def test_only_what_differs_from_its_default_is_written() -> None:
    text = """
pipeline: {id: p, owner: ""}
schedule: {cron: 0 6 * * *, timezone: UTC, start: cron, evaluation: {window: 60m, interval: 300s}, misfire: latest}
sla: {deadline: "08:00", timezone: UTC, dayOffset: 0, critical: no}
validation: {trigger: all, rules: []}
job: {type: glue, config: {job_name: etl, arguments: {}}, maxRetries: 0, jobPollWindowSeconds: 0}
dryRun: off
"""
    assert to_mapping(load(text)) == {
        "pipeline": {"id": "p"},
        "schedule": {"cron": "0 6 * * *"},
        "sla": {"deadline": "08:00"},
        "job": {"type": "glue", "config": {"jobName": "etl"}},
    }


def test_one_text_of_its_parts_serves_people() -> None:
    text = "pipeline: {id: p}\nschedule: {cron: 30 6 * * *, exclude: {weekends: true}}\nsla: {deadline: 9:00}\n" + JOB

    assert to_yaml(load(text)) == (
        "pipeline:\n  id: p\nschedule:\n  cron: 30 6 * * *\n  exclude:\n    weekends: true\nsla:\n  deadline: 09:00\n"
        "job:\n  type: glue\n  config:\n    jobName: etl\n"
    )


def test_calendars_are_written_into_the_text_so_that_it_stands_alone() -> None:
    named = Calendar(name="named", weekdays=frozenset({6}), dates={date(2026, 7, 4): "Fourth", date(2026, 1, 1): ""})
    text = "pipeline: {id: p}\nschedule: {cron: 0 6 * * *, calendar: named, exclude: {holidays: us-federal}}\n" + JOB
    pipeline = load(text, named=named, **CALENDARS)

    assert to_mapping(pipeline)["calendars"] == {
        "named": {"days": ["sunday"], "dates": ["2026-01-01", {"date": "2026-07-04", "name": "Fourth"}]},
        "us-federal": {"dates": [{"date": "2026-12-25", "name": "Christmas Day"}]},
    }
    assert load(to_yaml(pipeline)) == pipeline
    # A calendar file that changed since does not change what was written.
    assert load(to_json(pipeline), named=Calendar(name="named")) == pipeline


def test_what_a_lenient_reading_understood_is_written_so_that_it_is_understood_again() -> None:
    text = "pipeline: {id: p}\nschedule: {cron: soon, trigger: {}}\nvalidation: {rules: [{key: a, check: x}]}\n"
    pipeline = load_text(text, lenient=True).pipeline

    assert pipeline is not None
    assert load_text(to_json(pipeline), lenient=True).pipeline == pipeline


def test_days_and_weeks_are_read_everywhere_in_a_file_and_written_in_hours() -> None:
    text = """
pipeline: {id: p}
schedule:
  cron: 0 6 * * *
  maxAhead: 2w
  misfire: {policy: all, maxLateness: 3d}
  evaluation: {window: 1.5d, interval: 1d}
  trigger: {key: a, check: exists}
sla: {expectedDuration: 1d, maxDuration: 1d}
validation: {rules: [{key: a, check: age_lt, field: at, value: 7d, maxFutureSkew: 1d}]}
postRun: {sensorTimeout: 1w, rules: [{key: b, check: exists}]}
"""
    in_days = load(text + JOB)
    hours = {"2w": "336h", "3d": "72h", "1.5d": "36h", "1d": "24h", "1w": "168h"}
    in_hours = load(reduce(lambda written, unit: written.replace(unit, hours[unit]), hours, text) + JOB)

    assert in_days == in_hours
    assert config_hash(in_days) == config_hash(in_hours)
    assert [written for written in hours.values() if written not in to_yaml(in_days)] == []
    assert "7d" in to_yaml(in_days)  # a rule's value is kept as it was written


def test_the_hash_names_what_a_pipeline_does_not_how_it_is_written() -> None:
    one = load("pipeline: {id: p}\nschedule: {cron: 0 6 * * *, evaluation: {window: 60m}}\n" + JOB)
    same = load(JOB + "schedule:\n  cron: 0 6 * * *\npipeline:\n  id: p\n")
    other = load("pipeline: {id: p}\nschedule: {cron: 0 7 * * *}\n" + JOB)

    assert config_hash(one) == config_hash(same)
    assert config_hash(one) != config_hash(other)
    assert len(config_hash(one)) == 64


def test_the_hash_covers_the_days_of_a_calendar() -> None:
    text = "pipeline: {id: p}\nschedule: {cron: 0 6 * * *, calendar: c}\n" + JOB

    hashes = {config_hash(load(text, c=Calendar(name="c", weekdays=frozenset(days)))) for days in ([], [1], [2])}

    assert len(hashes) == 3


def test_the_hash_never_changes() -> None:
    text = to_json(load(FILES["minimal"]))

    assert json.loads(text) == {"job": {"config": {"jobName": "etl"}, "type": "glue"}, "pipeline": {"id": "p"}}
    assert config_hash(load(FILES["minimal"])) == "07950f0029a3e983679c2f8f1e21d74eea3f45c721e1ca0d443698751329fa46"
