"""What a look at tables of the reference finds, pipeline by pipeline."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.model.values import Json
from worker.core.run.reruns import request_identity
from worker.core.run.state import Run
from worker.core.time.periods import Period
from worker.core.time.timestamps import format_rfc3339
from worker.operations.migrate.agreement import AgreementResult
from worker.operations.migrate.check import check
from worker.operations.migrate.findings import MigrationFinding, Topic, Weight
from worker.operations.migrate.survey import SensorRow, Surveyed
from worker.store.repos.run_rows import run_to_row
from worker.store.repos.sensors import Sensor
from worker.store.table import Row

NOW = datetime(2027, 3, 22, 12, tzinfo=UTC)
TRIGGER: dict[str, Json] = {"key": "ready", "check": "equals", "field": "status", "value": "done"}
DONE: Mapping[str, Json] = {"status": "done"}


def a_config(**sections: Json) -> str:
    given: dict[str, Json] = {
        "pipeline": {"id": "orders"},
        "schedule": {"trigger": TRIGGER},
        "job": {"type": "glue", "config": {"jobName": "load"}},
    }
    return json.dumps(given | sections)


def a_survey(
    config: str | None = None, *, sensors: tuple[SensorRow, ...] = (), triggers: tuple[Row, ...] = ()
) -> Surveyed:
    return Surveyed(
        pipeline=PipelineId("orders"),
        config=config or a_config(),
        is_listed=True,
        is_accepted=False,
        sensors=sensors,
        triggers=triggers,
        requests=(),
    )


def a_sensor(key: str, data: Mapping[str, Json] = DONE, *, is_flat: bool = False) -> SensorRow:
    return SensorRow(Sensor(key, data), is_flat)


def a_trigger_row(status: str, period: str = "2027-03-22", **more: Json) -> Row:
    return {"PK": "PIPELINE#orders", "SK": f"TRIGGER#stream#{period}", "status": status, **more}


def about(topic: Topic, found: Surveyed) -> list[MigrationFinding]:
    return [finding for finding in check(found, NOW) if finding.topic is topic]


def test_a_pipeline_that_means_the_same_is_understood_and_nothing_else_is_said() -> None:
    found = a_survey(sensors=(a_sensor("ready#2027-03-22"),), triggers=(a_trigger_row("COMPLETED"),))

    assert {finding.weight for finding in check(found, NOW)} == {Weight.UNDERSTOOD}


def test_a_pipeline_without_a_configuration_is_refused() -> None:
    [finding] = check(replace(a_survey(), config=None), NOW)

    assert (finding.topic, finding.weight) == (Topic.CONFIG, Weight.REFUSED)


def test_a_value_out_of_range_is_refused_with_its_place() -> None:
    job: Json = {"type": "glue", "config": {"jobName": "load"}, "maxRetries": 99}

    [finding] = about(Topic.CONFIG, a_survey(a_config(job=job)))

    assert finding.weight is Weight.REFUSED
    assert finding.what.startswith("job.maxRetries: must be between 0 and 10; found 99")


def test_a_text_stored_under_the_name_of_its_file_is_refused() -> None:
    [finding] = about(Topic.CONFIG, a_survey(a_config(pipeline={"id": "orders-daily"})))

    assert finding.weight is Weight.REFUSED
    assert "pipeline orders-daily, but stored as orders" in finding.what


def test_every_unknown_key_is_named() -> None:
    found = about(Topic.IGNORED, a_survey(a_config(traits=[], pipeline={"id": "orders", "colour": "red"})))

    assert [finding.what.partition(":")[0] for finding in found] == ["pipeline.colour", "traits"]


def test_cron_alone_would_start_runs_once_accepted_and_the_next_time_is_said() -> None:
    found = a_survey(a_config(schedule={"cron": "0 6 * * *"}))

    [waiting] = about(Topic.CRON, found)
    [accepted] = about(Topic.CRON, replace(found, is_accepted=True))

    assert waiting.weight is accepted.weight is Weight.CHANGES
    assert "would here once accepted; next: 2027-03-23T06:00:00Z" in waiting.what
    assert "interlock migrate accept orders" in waiting.remedy
    assert "starts cron here" in accepted.what


def test_cron_beside_a_trigger_says_what_is_expected_as_before() -> None:
    [finding] = about(Topic.CRON, a_survey(a_config(schedule={"cron": "0 6 * * *", "trigger": TRIGGER})))

    assert finding.weight is Weight.UNDERSTOOD


def test_a_calendar_that_had_no_effect_and_gets_one_is_named() -> None:
    calendars: Json = {"holidays": {"dates": ["2027-12-25"]}}
    config = a_config(schedule={"trigger": TRIGGER, "calendar": "holidays"}, calendars=calendars)

    [finding] = about(Topic.CALENDAR, a_survey(config))

    assert "`calendar`" in finding.what


def test_a_calendar_that_does_not_exist_here_either_gets_no_effect() -> None:
    config = a_config(schedule={"trigger": TRIGGER, "calendar": "holidays", "exclude": {"weekends": True}})

    assert about(Topic.CALENDAR, a_survey(config)) == []
    assert [finding.what.partition(":")[0] for finding in about(Topic.IGNORED, a_survey(config))] == [
        "schedule.calendar"
    ]


def test_days_that_were_excluded_before_are_no_news() -> None:
    config = a_config(schedule={"trigger": TRIGGER, "exclude": {"weekends": True}})

    assert about(Topic.CALENDAR, a_survey(config)) == []


def test_the_day_of_a_deadline_is_said_where_it_is_not_the_periods_own() -> None:
    [finding] = about(Topic.SLA, a_survey(a_config(sla={"deadline": "08:00", "expectedDuration": "30m"})))
    said = a_config(sla={"deadline": "08:00", "expectedDuration": "30m", "dayOffset": 0})

    assert "on the day after its period" in finding.what
    assert about(Topic.SLA, a_survey(said)) == []


@pytest.mark.parametrize(
    ("zone", "sla", "changes"),
    [
        ("Europe/Berlin", {"deadline": "08:00"}, True),
        ("Europe/Berlin", {"Deadline": "08:00", "TimeZone": "Europe/Berlin"}, False),
        ("Europe/Berlin", {"deadline": "08:00", "timezone": "UTC"}, False),
        ("Europe/Berlin", {"maxDuration": "2h"}, False),
        ("UTC", {"deadline": "08:00"}, False),
        ("", {"deadline": "08:00"}, False),
    ],
)
def test_a_deadline_that_was_in_utc_and_is_in_the_schedules_zone_is_told(
    zone: str, sla: dict[str, Json], changes: bool
) -> None:
    config = a_config(schedule={"trigger": TRIGGER, "timezone": zone}, sla={"dayOffset": 0, **sla})

    found = [finding.what for finding in about(Topic.SLA, a_survey(config))]

    said = "the deadline 08:00 of stream is in Europe/Berlin, as its schedule; before it was in UTC"
    assert found == ([said] if changes else [])


def test_a_pipeline_that_no_list_has_yet_is_told() -> None:
    [finding] = about(Topic.LISTED, replace(a_survey(), is_listed=False))

    assert "interlock migrate accept orders" in finding.remedy


def test_sensors_that_only_a_prefix_would_match_are_counted_and_some_are_shown() -> None:
    sensors = (a_sensor("ready#2027-03-22"), *(a_sensor(f"ready-debug-{number}") for number in range(7)))

    [finding] = about(Topic.PREFIX, a_survey(sensors=sensors))
    kept = a_config(schedule={"trigger": {**TRIGGER, "match": "prefix"}})

    assert "7 sensors: `ready-debug-0`" in finding.what
    assert "and 2 more" in finding.what
    assert about(Topic.PREFIX, a_survey(kept, sensors=sensors)) == []


def test_post_run_keys_that_only_a_prefix_would_match_are_told_apart() -> None:
    post_run: Json = {"rules": [{"key": "count", "check": "exists"}]}
    sensors = (a_sensor("count#2027-03-22"), a_sensor("counter"))

    [finding] = about(Topic.PREFIX, a_survey(a_config(postRun=post_run), sensors=sensors))

    assert "sensor `counter` only begin" in finding.what


def test_marks_that_the_reference_kept_among_the_sensors_are_no_sensors() -> None:
    config = a_config(schedule={"trigger": {**TRIGGER, "key": "post"}})

    assert about(Topic.PREFIX, a_survey(config, sensors=(a_sensor("postrun-baseline#2027-03-22"),))) == []


def test_an_undated_sensor_that_would_start_a_run_counts_once() -> None:
    [finding] = about(Topic.UNDATED, a_survey(sensors=(a_sensor("ready"),)))
    every_day = a_config(schedule={"trigger": {**TRIGGER, "undated": "daily"}})

    assert "counts once" in finding.what
    assert about(Topic.UNDATED, a_survey(every_day, sensors=(a_sensor("ready"),))) == []


def test_a_dated_sensor_or_one_that_does_not_hold_is_not_undated() -> None:
    dated, waiting = a_sensor("ready", {**DONE, "date": "2027-03-22"}), a_sensor("ready", {"status": "busy"})

    assert about(Topic.UNDATED, a_survey(sensors=(dated,))) == []
    assert about(Topic.UNDATED, a_survey(sensors=(waiting,))) == []


def test_a_post_run_key_that_the_trigger_hid_is_told() -> None:
    post_run: Json = {"rules": [{"key": "ready-count", "check": "exists"}]}

    [finding] = about(Topic.SHADOWED, a_survey(a_config(postRun=post_run)))

    assert "`ready-count`" in finding.what


def test_fields_on_the_row_itself_begin_to_satisfy_rules() -> None:
    validation: Json = {"rules": [{"key": "export", "check": "exists"}]}
    flat, other = a_sensor("export#2027-03-22", is_flat=True), a_sensor("elsewhere", is_flat=True)

    [finding] = about(Topic.SHAPE, a_survey(a_config(validation=validation), sensors=(flat, other)))

    assert "`export#2027-03-22`" in finding.what
    assert "elsewhere" not in finding.what


@pytest.mark.parametrize(
    "sections",
    [
        {"schedule": {"trigger": {"key": "k", "check": "equals", "field": "a.b", "value": 1}}},
        {"validation": {"rules": [{"key": "k", "check": "gte", "field": "a.b", "value": 1}]}},
        {
            "validation": {
                "trigger": "ANY",
                "rules": [{"key": "k", "check": "age_lt", "field": "a.b", "value": "1h"}] * 2,
            }
        },
        {"postRun": {"rules": [{"key": "k", "check": "lt", "field": "a.b", "value": 1}]}},
    ],
)
def test_a_rule_on_a_field_with_dots_means_something_else(sections: dict[str, Json]) -> None:
    [finding] = about(Topic.DOTTED, a_survey(a_config(**sections)))

    assert finding.weight is Weight.CHANGES
    assert "the rule on `k` reads `a.b` as a path" in finding.what


@pytest.mark.parametrize(
    "rule",
    [
        {"key": "a.b", "check": "gte", "field": "rows", "value": 1},
        {"key": "k", "check": "exists", "field": "a.b"},
        {"key": "k", "check": "equals", "field": "rows", "value": "a.b"},
    ],
)
def test_dots_elsewhere_change_nothing(rule: dict[str, Json]) -> None:
    config = a_config(validation={"rules": [rule]}, postRun={"driftField": "a.b", "rules": []})

    assert about(Topic.DOTTED, a_survey(config)) == []


def test_a_leftover_list_of_schedules_is_said_to_be_ignored_and_not_to_count() -> None:
    survey = a_survey(a_config(schedules=[{"id": "old", "cron": "0 6 * * *"}]))

    assert about(Topic.CALENDAR, survey) == []
    assert [finding.what for finding in about(Topic.IGNORED, survey)] == ["schedules: `schedule` is given too; ignored"]


def test_a_run_of_the_old_system_is_left_alone_until_its_lifetime_is_over() -> None:
    later, earlier = int((NOW + timedelta(hours=1)).timestamp()), int((NOW - timedelta(hours=1)).timestamp())

    [respected] = about(Topic.RUNNING, a_survey(triggers=(a_trigger_row("RUNNING", ttl=later),)))
    [closed] = about(Topic.RUNNING, a_survey(triggers=(a_trigger_row("RUNNING", ttl=earlier),)))
    [endless] = about(Topic.RUNNING, a_survey(triggers=(a_trigger_row("RUNNING"),)))

    assert "left alone until 2027-03-22T13:00:00Z" in respected.what
    assert respected.weight is Weight.UNDERSTOOD
    assert "SFN_TIMEOUT" in closed.what
    assert "respected for ever" in endless.what


def test_a_run_under_way_with_a_deadline_may_have_timers_in_the_old_system() -> None:
    running = (a_trigger_row("RUNNING", ttl=int(NOW.timestamp()) + 60),)
    config = a_config(sla={"deadline": "08:00", "expectedDuration": "30m", "dayOffset": 0})

    [finding] = about(Topic.TIMERS, a_survey(config, triggers=running))

    assert "orders/stream/2027-03-22" in finding.what
    assert about(Topic.TIMERS, a_survey(triggers=running)) == []


def test_ended_runs_are_counted_as_done() -> None:
    rows = (a_trigger_row("COMPLETED"), a_trigger_row("FAILED_FINAL", "2027-03-21"))

    [finding] = about(Topic.ENDED, a_survey(triggers=rows))

    assert finding.what.startswith("2 ended runs count as done")


def test_rows_that_cannot_be_read_are_named() -> None:
    rows = (a_trigger_row("COMPLETED", "yesterday"), a_trigger_row("PAUSED"))

    nameless, unknown = about(Topic.UNREADABLE, a_survey(triggers=rows))

    assert nameless.weight is Weight.REFUSED
    assert "the status PAUSED" in unknown.what


def a_request(period: str = "2027-03-22", **attributes: Json) -> Row:
    return {"PK": "PIPELINE#orders", "SK": f"RERUN_REQUEST#stream#{period}", **attributes}


def our_run(period: str = "2027-03-22", *, handled: tuple[str, ...] = (), attempt_at: datetime | None = None) -> Row:
    parsed = Period.parse(period)
    assert parsed is not None
    run = Run(
        key=RunKey(PipelineId("orders"), ScheduleId("stream"), parsed),
        run_id="run-1",
        config_hash="c",
        created_at=NOW - timedelta(days=5),
        attempt_at=attempt_at or NOW - timedelta(days=5),
        since=NOW,
        timeout_at=NOW,
        handled=handled,
    )
    return run_to_row(run)


ASKED = format_rfc3339(NOW - timedelta(hours=1))
IDENTITY = request_identity("again", ASKED, "r1")


@pytest.mark.parametrize(
    ("request_row", "triggers", "began_at", "said"),
    [
        (a_request(), (), None, "older than the first start"),
        (a_request(requestedAt=ASKED), (), None, "older than the first start"),
        (a_request(requestedAt=ASKED), (), NOW, "older than the first start"),
        (a_request(requestedAt=ASKED), (), NOW - timedelta(days=1), "newer than the first start"),
        (a_request(), (our_run(),), NOW - timedelta(days=1), "older than the first start"),
        (
            a_request(reason="again", requestedAt=ASKED, id="r1"),
            (our_run(handled=(IDENTITY,)),),
            NOW - timedelta(days=1),
            "answered",
        ),
        (
            a_request(reason="again", requestedAt=ASKED, id="r2"),
            (our_run(handled=(IDENTITY,)),),
            NOW - timedelta(days=1),
            "newer than the first start",
        ),
        # The run remembers only some of those that it answered.
        (
            a_request(reason="again", requestedAt=ASKED),
            (our_run(attempt_at=NOW),),
            NOW - timedelta(days=1),
            "answered",
        ),
        (
            a_request(reason="again", requestedAt=ASKED, id="r1"),
            (our_run("2027-03-21", handled=(IDENTITY,)),),
            NOW - timedelta(days=1),
            "newer than the first start",
        ),
    ],
)
def test_a_request_is_called_what_it_is(
    request_row: Row, triggers: tuple[Row, ...], began_at: datetime | None, said: str
) -> None:
    survey = replace(a_survey(triggers=triggers), requests=(request_row,), began_at=began_at)

    [finding] = about(Topic.REQUESTS, survey)

    assert finding.weight is Weight.UNDERSTOOD
    assert finding.what.startswith(f"1 rerun request is {said}")


def test_requests_are_counted_by_what_became_of_them() -> None:
    asked = {"reason": "again", "requestedAt": ASKED, "id": "r1"}
    rows = (a_request(**asked), a_request("2027-03-21"), a_request("2027-03-20"))
    survey = replace(a_survey(triggers=(our_run(handled=(IDENTITY,)),)), requests=rows, began_at=NOW)

    found = [finding.what for finding in about(Topic.REQUESTS, survey)]

    assert found == [
        "1 rerun request is answered, and changes nothing any more",
        "2 rerun requests, each older than the first start: it is kept, and starts nothing",
    ]


def test_it_is_said_where_not_everything_was_read() -> None:
    assert about(Topic.TOO_MANY, a_survey()) == []
    assert len(about(Topic.TOO_MANY, replace(a_survey(), is_cut=True))) == 1


def test_the_page_has_a_line_on_each_topic_and_each_result() -> None:
    page = (Path(__file__).parents[4] / "docs" / "migration.md").read_text(encoding="utf-8")

    named = re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)

    assert named == [*(topic.value for topic in Topic), *(result.value for result in AgreementResult)]
