"""Keys: spelled as the reference spells them, and read back as they were meant."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.model import keys
from worker.core.model.keys import JobStamp, RowKind, RunKey, SessionId
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.time.periods import FIRST_DATE, LAST_DATE, Period

SEVEN = Period(date(2026, 3, 3), 7)
RUN = RunKey(PipelineId("orders"), ScheduleId("cron"), SEVEN)
AT = datetime(2026, 3, 3, 8, 0, 0, 123456, tzinfo=UTC)

PERIODS = st.builds(Period, st.dates(FIRST_DATE, LAST_DATE), st.none() | st.integers(0, 23)) | st.builds(
    Period, st.dates(FIRST_DATE, LAST_DATE), st.integers(0, 23), st.integers(0, 59)
)
NAMES = st.text(min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("key", "spelling"),
    [
        (keys.pipeline_pk("orders"), "PIPELINE#orders"),
        (keys.config_version_sk("ab12"), "CONFIGVER#ab12"),
        (keys.sensor_sk("done#2026-03-03"), "SENSOR#done#2026-03-03"),
        (keys.trigger_sk(RUN), "TRIGGER#cron#2026-03-03T07"),
        (keys.rerun_request_sk(RUN), "RERUN_REQUEST#cron#2026-03-03T07"),
        (keys.dry_run_sk(RUN), "DRY_RUN#cron#2026-03-03T07"),
        (keys.sla_sk(RUN), "SLA#cron#2026-03-03T07"),
        (keys.shadow_sk(keys.trigger_sk(RUN)), "SHADOW#TRIGGER#cron#2026-03-03T07"),
        (keys.signal_mark_sk("done"), "MARK#SIGNAL#done"),
        (keys.told_mark_sk("SCHEDULE_MISSED", RUN), "MARK#TOLD#SCHEDULE_MISSED#cron#2026-03-03T07"),
        (keys.marker_pk(RUN.pipeline), "MARKER#orders"),
        (keys.job_sk(RUN, at=AT, attempt=2, entry_id="x1"), "JOB#cron#2026-03-03T07#1772524800123#2#x1"),
        (keys.rerun_sk(RUN, 3), "RERUN#cron#2026-03-03T07#3"),
        (keys.stamped_sk(AT, "JOB_FAILED", "e1"), "1772524800123#JOB_FAILED#e1"),
        (keys.thread_sk("cron", "2026-03-03"), "THREAD#cron#2026-03-03"),
        (keys.group_pk("main"), "GROUP#main"),
        (keys.session_sk(SessionId("s1")), "W#s1"),
        (keys.lease_sk("control", "shard-1"), "L#control#shard-1"),
        (keys.parked_sk("control", "9f"), "P#control#9f"),
        (keys.ended_bucket("COMPLETED", date(2026, 3, 3), 5), "STATUS#COMPLETED#2026-03-03#5"),
    ],
)
def test_a_key_is_spelled_as_existing_tables_have_it(key: str, spelling: str) -> None:
    assert key == spelling


@given(NAMES, NAMES, PERIODS)
def test_every_row_about_a_period_is_read_back_whatever_its_names_hold(
    pipeline: str, schedule: str, period: Period
) -> None:
    run = RunKey(PipelineId(pipeline), ScheduleId(schedule), period)

    pk = keys.pipeline_pk(run.pipeline)

    assert keys.run_row_of(pk, keys.trigger_sk(run)) == (RowKind.TRIGGER, run)
    assert keys.run_row_of(pk, keys.sla_sk(run)) == (RowKind.SLA, run)
    assert keys.run_row_of(pk, keys.dry_run_sk(run)) == (RowKind.DRY_RUN, run)
    assert keys.run_row_of(pk, keys.rerun_request_sk(run)) == (RowKind.RERUN_REQUEST, run)
    assert keys.run_row_of(pk, keys.trigger_request_sk(run)) == (RowKind.TRIGGER_REQUEST, run)
    assert keys.trigger_request_sk(run).startswith(keys.REQUESTS)  # one read finds all that waits for a pause to end


@pytest.mark.parametrize(
    ("pk", "sk"),
    [
        ("PIPELINE#orders", "CONFIG"),
        ("PIPELINE#orders", "SENSOR#done#2026-03-03"),
        ("PIPELINE#orders", "TRIGGER#2026-03-03"),
        ("PIPELINE#orders", "TRIGGER##2026-03-03"),
        ("PIPELINE#orders", "TRIGGER#cron#yesterday"),
        ("PIPELINE#orders", "TRIGGER#cron#2026-02-30"),
        ("PIPELINE#orders", "RERUN#cron#2026-03-03#0"),
        ("GROUP#main", "TRIGGER#cron#2026-03-03"),
    ],
)
def test_a_row_about_anything_else_is_not_taken_for_one_about_a_period(pk: str, sk: str) -> None:
    assert keys.run_row_of(pk, sk) is None


def test_a_job_log_key_is_read_back_with_its_attempt() -> None:
    sk = keys.job_sk(RUN, at=AT, attempt=12, entry_id="x1")

    assert keys.job_stamp_of(RUN, sk) == JobStamp(AT.replace(microsecond=123000), 12, "x1")


def test_a_job_log_key_of_the_reference_has_a_time_only() -> None:
    stamp = keys.job_stamp_of(RUN, "JOB#cron#2026-03-03T07#1772524800123")

    assert stamp == JobStamp(AT.replace(microsecond=123000))


@pytest.mark.parametrize("end", ["", "soon", "12", "17725248001234", "1772524800123x"])
def test_a_job_log_key_without_a_time_is_not_one(end: str) -> None:
    assert keys.job_stamp_of(RUN, f"JOB#cron#2026-03-03T07#{end}") is None


def test_a_rerun_number_is_read_back_and_anything_else_is_none() -> None:
    assert keys.rerun_number_of(RUN, keys.rerun_sk(RUN, 17)) == 17
    assert keys.rerun_number_of(RUN, "RERUN#cron#2026-03-03T07#x") is None


def test_a_lease_is_read_back_even_if_its_stream_has_a_hash_in_its_name() -> None:
    assert keys.lease_of(keys.lease_sk("a#b", "shard-1")) == ("a#b", "shard-1")
    assert keys.lease_of("W#session") is None
    assert keys.lease_of("L#shard-1") is None


@given(st.datetimes(datetime(2001, 9, 10), datetime(2286, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_time_in_a_key_is_exact_to_the_millisecond(at: datetime) -> None:
    back = keys.stamp_of(keys.stamped_sk(at, "x"))

    assert back is not None
    assert timedelta(0) <= at - back < timedelta(milliseconds=1)


def test_keys_in_order_of_time_sort_as_text() -> None:
    times = [AT + timedelta(days=400 * step, milliseconds=step) for step in range(-20, 20)]

    stamps = [keys.millis_text(at) for at in times]

    assert stamps == sorted(stamps)


def test_a_bucket_is_the_same_for_ever() -> None:
    assert keys.active_bucket_of("PIPELINE#orders", "TRIGGER#cron#2026-03-03") == "ACTIVE#45"
    assert keys.ended_bucket_of(RUN, "COMPLETED", date(2026, 3, 3)) == "STATUS#COMPLETED#2026-03-03#8"


def test_buckets_fill_evenly() -> None:
    filled = Counter(keys.active_bucket_of(f"PIPELINE#p{n}", "TRIGGER#cron#2026-03-03") for n in range(6400))

    assert len(filled) == keys.ACTIVE_BUCKETS
    assert max(filled.values()) < 160
