"""The rehearsal: it waits like a live run, says what it would do, and can do nothing."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import get_args

import pytest

from tests.support.builders.values import (
    BIRTH,
    HOUR,
    KEY,
    ME,
    MINUTE,
    NEW,
    NOON,
    OLD,
    a_pipeline,
    a_post_run,
    a_schedule,
)
from worker.core.model.calendars import Exclusion
from worker.core.model.deadlines import Deadline
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType
from worker.core.model.pipeline import Pipeline, Sla
from worker.core.run import dry_run, effects
from worker.core.run.drift import Drift
from worker.core.run.effects import DryEffect, EvaluateNow, KeepBaseline
from worker.core.run.facts import (
    CancelRequested,
    Fact,
    JobReport,
    JobReported,
    Origin,
    PostRunSeen,
    RerunRequested,
    RulesHeld,
    RulesNotHeld,
    RunTriggered,
    SensorSignal,
    TimerFired,
)
from worker.core.run.state import CHANGED_INPUTS_MAX, DryRun, DryState, FailureCategory

PLAIN = a_pipeline(dry_run=True, job={"max_retries": 2})
EXCLUDING = a_pipeline(schedule=a_schedule(exclusion=Exclusion(dates=frozenset({KEY.period.date}))), dry_run=True)
HELD = RulesHeld(attempt=1, saw={"orders": OLD})
NOT_HELD = RulesNotHeld(attempt=1, saw={"orders": NEW}, reason="orders.count is 5")
REQUEST = RerunRequested(key=KEY, birth=BIRTH, identity="request-1")


def wanted(content: str = OLD) -> RunTriggered:
    return RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=SensorSignal("orders", content))


def reported(report: JobReport = JobReport.FAIL, category: FailureCategory | None = None) -> JobReported:
    return JobReported(key=KEY, identity="row-1", report=report, at=NOON, category=category)


def step(
    run: DryRun | None, fact: Fact, now: datetime, pipeline: Pipeline = PLAIN
) -> tuple[DryRun | None, list[DryEffect]]:
    decided = dry_run.decide(run, pipeline, pipeline.schedules[0], fact, now)
    assert decided
    return dry_run.evolve(run, decided, now, ME), decided


def told(decided: list[DryEffect]) -> list[EmitEvent]:
    return [effect for effect in decided if isinstance(effect, EmitEvent)]


@pytest.fixture
def waiting() -> DryRun:
    run, decided = step(None, wanted(), NOON)
    assert run is not None
    assert decided[-1] == EvaluateNow()
    return run


@pytest.fixture
def triggered(waiting: DryRun) -> DryRun:
    run, _ = step(waiting, HELD, NOON)
    assert run is not None
    return run


def test_its_effects_can_hold_neither_a_job_nor_a_lock_nor_a_rerun() -> None:
    forbidden = {
        effects.Create,
        effects.MoveTo,
        effects.Retry,
        effects.Reopen,
        effects.StartJob,
        effects.StopJob,
        effects.FindJob,
        effects.PollNow,
        effects.RecordRerun,
        effects.PutRerunRequest,
        effects.LogJob,
        effects.WatchDeadline,
    }

    assert not forbidden & set(get_args(DryEffect))


def test_it_waits_for_its_rules_like_a_live_run(waiting: DryRun) -> None:
    still, decided = step(waiting, NOT_HELD, NOON + MINUTE)

    assert still == waiting
    assert isinstance(decided[0], Ignore)
    assert step(waiting, TimerFired(1), NOON + MINUTE)[1] == [EvaluateNow()]
    assert step(waiting, wanted(NEW), NOON + MINUTE)[1] == [EvaluateNow()]


def test_rules_that_hold_are_told_as_the_start_it_would_have_been(waiting: DryRun) -> None:
    run, decided = step(waiting, HELD, NOON + MINUTE)

    assert run is not None
    assert (run.state, run.started_on, run.owner) == (DryState.WOULD_TRIGGER, {"orders": OLD}, None)
    first, last = told(decided)
    assert (first.type, first.detail) == (
        EventType.DRY_RUN_WOULD_TRIGGER,
        {"triggeredAt": "2026-03-10T12:01:00Z", "rulesEvaluated": 1},
    )
    assert (last.type, last.detail["slaStatus"]) == (EventType.DRY_RUN_COMPLETED, "n/a")


@pytest.mark.parametrize(("hour", "status", "margin"), [(14, "met", 5400), (12, "breach", -1800)])
def test_a_deadline_is_projected_from_how_long_the_job_usually_takes(hour: int, status: str, margin: int) -> None:
    sla = Sla(deadline=Deadline(hour, 0), expected_duration=30 * MINUTE)
    pipeline = a_pipeline(schedule=a_schedule(sla=sla), dry_run=True)
    run, _ = step(None, wanted(), NOON, pipeline)

    _, decided = step(run, HELD, NOON + timedelta(microseconds=493280), pipeline)

    projection = told(decided)[1]
    assert projection.type is EventType.DRY_RUN_SLA_PROJECTION
    assert (projection.detail["status"], projection.detail["marginSeconds"]) == (status, margin)
    assert projection.detail["expectedDuration"] == "30m"
    in_time = "in time for" if status == "met" else "too late for"
    deadline = f"its deadline of 2026-03-10T{hour}:00:00Z"
    assert projection.message.endswith(f"the job would be done at 2026-03-10T12:30:00Z, {in_time} {deadline}")
    assert told(decided)[2].detail["slaStatus"] == status


def test_rules_that_never_hold_are_told_too(waiting: DryRun) -> None:
    run, decided = step(waiting, NOT_HELD, NOON + HOUR)

    assert run is not None
    assert run.state is DryState.EXHAUSTED
    assert [event.type for event in told(decided)] == [EventType.DRY_RUN_VALIDATION_EXHAUSTED]


def test_late_data_is_told_by_its_content_and_once(triggered: DryRun) -> None:
    run, decided = step(triggered, wanted(NEW), NOON + 45 * MINUTE)

    [event] = told(decided)
    assert (event.type, event.detail["lateBy"]) == (EventType.DRY_RUN_LATE_DATA, "45m0s")
    assert told(step(run, wanted(NEW), NOON + HOUR)[1]) == []
    assert told(step(triggered, wanted(OLD), NOON + HOUR)[1]) == []


def part(name: str, content: str, written_at: datetime | None) -> RunTriggered:
    signal = SensorSignal("orders", content, written_at, said_by=f"orders-{name}")
    return RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=signal)


def test_each_part_of_a_prefix_is_told_by_its_own_content() -> None:
    run, _ = step(None, part("eu", "eu-1", NOON), NOON)
    run, _ = step(run, replace(HELD, saw={}), NOON)
    later = NOON + MINUTE

    run, second = step(run, part("us", "us-1", later), later)

    assert run is not None
    assert [event.type for event in told(second)] == [EventType.DRY_RUN_LATE_DATA]
    assert run.changed_inputs == {"orders-eu": "eu-1", "orders-us": "us-1"}
    for again in (part("eu", "eu-1", NOON), part("us", "us-1", later), part("eu", "eu-1", None)):
        assert told(step(run, again, later)[1]) == []
    assert told(step(run, part("asia", "asia-1", None), later)[1]) == []
    assert len(told(step(run, part("eu", "eu-2", later), later)[1])) == 1


def test_the_parts_that_a_dry_run_remembers_are_bounded_and_the_newest(triggered: DryRun) -> None:
    run: DryRun | None = triggered
    for number in range(CHANGED_INPUTS_MAX + 5):
        at = NOON + number * MINUTE
        run, _ = step(run, part(str(number), f"h{number}", at), at)

    assert run is not None
    assert len(run.changed_inputs) == CHANGED_INPUTS_MAX
    assert list(run.changed_inputs)[-1] == f"orders-{CHANGED_INPUTS_MAX + 4}"


def test_the_last_late_data_of_an_older_row_is_not_told_again(triggered: DryRun) -> None:
    older = replace(triggered, late_reported="us-1", changed_inputs={})

    assert told(step(older, part("us", "us-1", NOON + MINUTE), NOON + MINUTE)[1]) == []
    assert told(step(older, part("eu", "eu-1", None), NOON + MINUTE)[1]) == []


def test_drift_is_told_once_and_measured_against_what_the_job_would_have_been_started_on(waiting: DryRun) -> None:
    pipeline = a_pipeline(post_run=a_post_run(), dry_run=True)
    baseline = RulesHeld(attempt=1, saw={"out": OLD}, baseline={"out": {"sensor_count": 7}})
    drift = Drift(sensor_key="out", field="sensor_count", previous=7, current=9, threshold=0)
    seen = PostRunSeen(sensor_key="out", content_hash=NEW, drift=drift, rules_held=True)

    run, captured = step(waiting, baseline, NOON, pipeline)
    after, decided = step(run, seen, NOON, pipeline)

    assert KeepBaseline({"out": {"sensor_count": 7}}, is_new=True) in captured
    [event] = told(decided)
    assert (event.type, event.detail["delta"]) == (EventType.DRY_RUN_DRIFT, 2)
    assert "source" not in event.detail
    assert told(step(after, seen, NOON, pipeline)[1]) == []


def test_an_excluded_period_is_told_once_and_rehearses_nothing() -> None:
    run, decided = step(None, wanted(), NOON, EXCLUDING)

    assert run is None
    [event] = told(decided)
    assert (event.type, event.once) == (EventType.PIPELINE_EXCLUDED, True)


def test_a_rerun_is_answered_with_what_would_have_become_of_it(triggered: DryRun) -> None:
    none_left = a_pipeline(dry_run=True, job={"max_manual_reruns": 0})

    run, would = step(triggered, REQUEST, NOON)
    _, over = step(triggered, REQUEST, NOON, none_left)
    _, excluded = step(triggered, REQUEST, NOON, EXCLUDING)

    [event] = told(would)
    assert event.type is EventType.DRY_RUN_WOULD_RERUN
    assert (event.detail["rerunCount"], event.detail["budget"]) == (0, 1)
    for rejected in (over, excluded):
        assert [event.type for event in told(rejected)] == [EventType.DRY_RUN_RERUN_REJECTED]
    assert told(step(run, REQUEST, NOON)[1]) == []


def test_a_rerun_that_would_find_the_same_data_would_not_be_accepted(triggered: DryRun) -> None:
    stale = replace(REQUEST, is_fresh=False)

    [rejected] = told(step(triggered, stale, NOON)[1])
    [replayed] = told(step(triggered, replace(stale, reason="replay"), NOON)[1])

    assert rejected.type is EventType.DRY_RUN_RERUN_REJECTED
    assert "circuit breaker" in str(rejected.detail["reason"])
    assert replayed.type is EventType.DRY_RUN_WOULD_RERUN


def test_a_reported_failure_is_answered_with_whether_it_would_be_retried(triggered: DryRun) -> None:
    no_code_retries = a_pipeline(dry_run=True, job={"max_retries": 2, "max_code_retries": 0})
    permanent = reported(category=FailureCategory.PERMANENT)

    run, would = step(triggered, reported(), NOON)
    [event] = told(would)

    assert (event.type, event.detail) == (EventType.DRY_RUN_WOULD_RETRY, {"retries": 0, "maxRetries": 2})
    for fact, pipeline in ((permanent, no_code_retries), (reported(), EXCLUDING)):
        [refused] = told(step(None, fact, NOON, pipeline)[1])
        assert (refused.type, refused.once) == (EventType.DRY_RUN_RETRY_EXHAUSTED, True)
    assert told(step(run, reported(), NOON)[1]) == []
    assert told(step(run, reported(JobReport.SUCCESS), NOON)[1]) == []


@pytest.mark.parametrize("fact", [HELD, TimerFired(1), CancelRequested(reason="x")], ids=["held", "time", "cancel"])
def test_what_finds_no_rehearsal_or_one_that_is_over_changes_nothing(fact: Fact, triggered: DryRun) -> None:
    for run in (None, triggered):
        assert [type(effect) for effect in step(run, fact, NOON)[1]] == [Ignore]
