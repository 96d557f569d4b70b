"""How a run stands after each event, as the first message of its thread shows it."""

from dataclasses import replace

import pytest

from consumers.alerts.run_status import SEVERITIES, RunStatus, standing_after, standing_of
from tests.support.worlds.alerts import FAILED
from worker.core.model.events import EventType

E, S = EventType, RunStatus


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([E.SLA_WARNING], S.RUNNING),
        ([E.JOB_FAILED], S.RETRYING),
        ([E.JOB_FAILED, E.JOB_COMPLETED], S.RECOVERED),
        ([E.JOB_FAILED, E.RETRY_EXHAUSTED], S.FAILED),
        ([E.JOB_POLL_EXHAUSTED], S.RETRYING),
        ([E.JOB_POLL_EXHAUSTED, E.RETRY_EXHAUSTED], S.FAILED),
        ([E.RETRY_EXHAUSTED, E.RERUN_ACCEPTED], S.RETRYING),
        ([E.RETRY_EXHAUSTED, E.RERUN_ACCEPTED, E.JOB_COMPLETED], S.RECOVERED),
        ([E.SLA_BREACH], S.BREACHED),
        ([E.SLA_BREACH, E.JOB_FAILED], S.BREACHED),
        ([E.SLA_BREACH, E.RERUN_ACCEPTED], S.BREACHED),
        ([E.SLA_BREACH, E.JOB_COMPLETED], S.RECOVERED),
        ([E.JOB_COMPLETED], S.DONE),
        ([E.SLA_WARNING, E.JOB_COMPLETED, E.SLA_MET], S.DONE),
        ([E.JOB_FAILED, E.JOB_COMPLETED, E.SLA_MET], S.RECOVERED),
        # A run that ended too late: its end and its verdict are one commit.
        ([E.JOB_COMPLETED, E.SLA_BREACH], S.RECOVERED),
        ([E.SLA_BREACH, E.JOB_COMPLETED, E.RETRY_EXHAUSTED], S.FAILED),
        ([E.SCHEDULE_MISSED, E.TRIGGER_RECOVERED], S.BREACHED),
        ([E.RUN_CANCELLED], S.CANCELLED),
        ([E.LATE_DATA_ARRIVAL], S.NOTED),
        ([E.JOB_COMPLETED, E.LATE_DATA_ARRIVAL], S.DONE),
        (["SOMETHING_NEW"], S.NOTED),
    ],
)
def test_what_events_make_of_a_run(events: list[str], expected: RunStatus) -> None:
    standing = ""
    for event in events:
        standing = standing_after(standing, replace(FAILED, type=event))

    assert standing == expected


def test_a_failure_that_the_calendar_does_not_let_be_retried_is_final() -> None:
    excluded = replace(FAILED, type=E.PIPELINE_EXCLUDED)

    assert standing_after(S.RETRYING, excluded) is S.RETRYING
    assert standing_after(S.RETRYING, replace(excluded, detail={"final": True})) is S.FAILED


def test_a_word_that_no_version_of_ours_wrote_is_nothing_known() -> None:
    assert standing_of("sleeping") is RunStatus.NOTED


def test_each_standing_has_a_colour() -> None:
    assert set(SEVERITIES) == set(RunStatus)
