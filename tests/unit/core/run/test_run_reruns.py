"""Late data, drift and requests: what reopens an ended run, what does not, and who is told."""

from datetime import timedelta

import pytest

from tests.support.builders.run_steps import step, told
from tests.support.builders.values import (
    BIRTH,
    HOUR,
    KEY,
    MINUTE,
    NEW,
    NOON,
    OLD,
    a_pipeline,
    a_run,
    a_schedule,
)
from worker.core.model.calendars import Exclusion
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType, JobEvent
from worker.core.model.pipeline import Evaluation, PostRun
from worker.core.model.rules import Group
from worker.core.run.drift import Drift, measure
from worker.core.run.effects import Effect, LogJob, PutRerunRequest, RecordRerun, Reopen
from worker.core.run.facts import NewRun, Origin, PostRunSeen, RerunRequested, RunTriggered, SensorSignal
from worker.core.run.machine import decide
from worker.core.run.reruns import request_identity
from worker.core.run.state import HANDLED_MAX, POST_RUN_SEEN_MAX, Outcome, Run, Spent, State

COMPLETED, FAILED = a_run(State.COMPLETED), a_run(State.FAILED_FINAL)
EXHAUSTED = a_run(State.FAILED_FINAL, outcome=Outcome.EXHAUSTED, job=None)
CANCELLED = a_run(State.FAILED_FINAL, outcome=Outcome.CANCELLED)
REOPENING = a_pipeline(schedule=a_schedule(evaluation=Evaluation(reopen=True)))
EXCLUDING = a_pipeline(schedule=a_schedule(exclusion=Exclusion(dates=frozenset({KEY.period.date}))))


def signal(content: str) -> RunTriggered:
    return RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=SensorSignal("orders", content))


def request(reason: str = "manual", identity: str = "request-1", **changes: bool) -> RerunRequested:
    return RerunRequested(key=KEY, birth=NewRun("run-2", "v2"), identity=identity, reason=reason, **changes)


def requests(effects: list[Effect]) -> list[str]:
    return [effect.reason for effect in effects if isinstance(effect, PutRerunRequest)]


# --- late data --------------------------------------------------------------------------------------------------------


def test_new_content_after_a_success_is_late_data_and_asks_for_a_rerun_once() -> None:
    run, effects = step(COMPLETED, signal(NEW), NOON + HOUR)
    _, again = step(run, signal(NEW), NOON + HOUR)

    assert run.state is State.COMPLETED
    assert told(effects) == [EventType.LATE_DATA_ARRIVAL]
    assert requests(effects) == ["late-data"]
    assert isinstance(again[0], Ignore)


def test_each_further_content_is_late_data_again_whatever_was_logged_in_between() -> None:
    run, _ = step(COMPLETED, signal(NEW), NOON + HOUR)
    run, _ = step(run, request("manual", is_fresh=False), NOON + HOUR)

    _, effects = step(run, signal("hash-of-still-newer-content"), NOON + HOUR)

    assert told(effects) == [EventType.LATE_DATA_ARRIVAL]
    assert requests(effects) == ["late-data"]


def test_a_redelivered_signal_is_never_late_data() -> None:
    known_from_start = a_run(State.COMPLETED, late_reported=None)

    for run in (COMPLETED, known_from_start, EXHAUSTED):
        _, effects = step(run, signal(OLD), NOON + HOUR)

        assert isinstance(effects[0], Ignore)


def test_content_that_only_another_sensor_had_is_news_from_the_trigger() -> None:
    run = a_run(State.COMPLETED, started_on={"orders": OLD, "customers": NEW})

    _, effects = step(run, signal(NEW), NOON + HOUR)

    assert told(effects) == [EventType.LATE_DATA_ARRIVAL]


def test_data_for_a_run_whose_rules_never_held_is_told_and_reopens_it_only_if_that_is_configured() -> None:
    _, effects = step(EXHAUSTED, signal(NEW), NOON + HOUR)
    _, reopening = step(EXHAUSTED, signal(NEW), NOON + HOUR, REOPENING)

    assert (told(effects), requests(effects)) == ([EventType.LATE_DATA_ARRIVAL], [])
    assert (told(reopening), requests(reopening)) == ([EventType.LATE_DATA_ARRIVAL], ["late-data"])


@pytest.mark.parametrize("run", [FAILED, CANCELLED], ids=["failed", "cancelled"])
def test_data_for_a_failed_or_cancelled_run_does_not_reopen_it(run: Run) -> None:
    _, effects = step(run, signal(NEW), NOON + HOUR, REOPENING)

    assert isinstance(effects[0], Ignore)


def test_what_another_systems_run_was_started_on_is_unknown_so_only_the_time_makes_data_late() -> None:
    theirs = a_run(State.COMPLETED, started_on={}, late_reported=None, outcome=None)
    before, after = (
        RunTriggered(
            key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=SensorSignal("orders", NEW, written_at=NOON + shift)
        )
        for shift in (-MINUTE, MINUTE)
    )

    assert told(step(theirs, before, NOON + HOUR)[1]) == []
    assert told(step(theirs, after, NOON + HOUR)[1]) == [EventType.LATE_DATA_ARRIVAL]
    assert told(step(theirs, signal(NEW), NOON + HOUR)[1]) == []


def test_late_data_of_an_excluded_date_is_told_and_goes_no_further() -> None:
    _, effects = step(COMPLETED, signal(NEW), NOON + HOUR, EXCLUDING)

    assert told(effects) == [EventType.LATE_DATA_ARRIVAL, EventType.PIPELINE_EXCLUDED]
    assert requests(effects) == []


# --- drift ------------------------------------------------------------------------------------------------------------


def seen(current: int, content: str = NEW, *, rules_held: bool = True) -> PostRunSeen:
    drift = Drift(sensor_key="out", field="sensor_count", previous=500, current=current, threshold=10)
    return PostRunSeen(sensor_key="out", content_hash=content, drift=drift, rules_held=rules_held, reason="too few")


def test_drift_beyond_the_threshold_is_told_with_its_numbers_and_asks_for_a_rerun_once() -> None:
    run, effects = step(COMPLETED, seen(511), NOON)
    _, again = step(run, seen(511), NOON)

    [event] = [effect for effect in effects if isinstance(effect, EmitEvent)]
    assert event.type is EventType.POST_RUN_DRIFT
    assert event.detail == {
        "previousCount": 500,
        "currentCount": 511,
        "delta": 11,
        "driftThreshold": 10,
        "driftField": "sensor_count",
        "sensorKey": "out",
        "source": "post-run-stream",
    }
    assert requests(effects) == ["data-drift"]
    assert isinstance(again[0], Ignore)


@pytest.mark.parametrize(
    ("rules_held", "event"), [(True, EventType.POST_RUN_PASSED), (False, EventType.POST_RUN_FAILED)]
)
def test_within_the_threshold_the_post_run_rules_are_judged(rules_held: bool, event: EventType) -> None:
    _, effects = step(COMPLETED, seen(490, rules_held=rules_held), NOON)

    assert told(effects) == [event]
    assert requests(effects) == []


def test_drift_under_a_running_job_is_told_and_nothing_more() -> None:
    _, effects = step(a_run(State.POLLING), seen(600), NOON)
    _, within = step(a_run(State.POLLING), seen(505), NOON)

    assert told(effects) == [EventType.POST_RUN_DRIFT_INFLIGHT]
    assert requests(effects) == []
    assert isinstance(within[0], Ignore)


def test_drift_on_an_excluded_date_is_told_and_goes_no_further() -> None:
    _, effects = step(COMPLETED, seen(600), NOON, EXCLUDING)

    assert told(effects) == [EventType.POST_RUN_DRIFT, EventType.PIPELINE_EXCLUDED]
    assert requests(effects) == []


def test_drift_is_measured_exactly_and_only_between_numbers() -> None:
    post_run = PostRun(rules=Group(), drift_field="rows", drift_threshold=0.1)

    exact = measure(post_run, "out", {"rows": "0.2"}, {"rows": 0.3})

    assert exact is not None
    assert not exact.is_beyond
    assert measure(post_run, "out", {"rows": 1}, {"other": 2}) is None
    assert measure(post_run, "out", {"rows": "many"}, {"rows": 2}) is None


def test_what_is_remembered_of_post_run_sensors_is_bounded() -> None:
    run = COMPLETED
    for number in range(POST_RUN_SEEN_MAX + 5):
        fact = PostRunSeen(sensor_key=f"out-{number}", content_hash=NEW, drift=None, rules_held=True)
        run, _ = step(run, fact, NOON)

    assert len(run.post_run_seen) == POST_RUN_SEEN_MAX
    assert f"out-{POST_RUN_SEEN_MAX + 4}" in run.post_run_seen


# --- requests ---------------------------------------------------------------------------------------------------------


def test_an_accepted_request_begins_the_next_attempt_under_the_configuration_in_force() -> None:
    run, effects = step(FAILED, request(), NOON + HOUR)

    assert (run.state, run.attempt, run.config_hash) == (State.EVALUATING, 2, "v2")
    assert run.run_id == FAILED.run_id
    assert (run.spent, run.outcome, run.job) == (Spent(manual=1), None, None)
    assert run.timeout_at == NOON + 5 * HOUR
    assert RecordRerun(reason="manual") in effects
    assert told(effects) == [EventType.RERUN_ACCEPTED]


def test_a_request_is_answered_once_and_another_wish_is_another_request() -> None:
    run, _ = step(FAILED, request(), NOON)
    ended = a_run(State.FAILED_FINAL, handled=run.handled)

    _, again = step(ended, request(), NOON)
    _, another = step(ended, request(identity="request-2"), NOON)

    assert isinstance(again[0], Ignore)
    assert isinstance(another[0], Reopen)
    assert request_identity("manual", "12:00", "a") != request_identity("manual", "12:00", "b")


def test_only_the_last_requests_are_remembered() -> None:
    run = a_run(State.FAILED_FINAL, spent=Spent(manual=1))
    for number in range(HANDLED_MAX + 4):
        run, _ = step(run, request(identity=f"request-{number}"), NOON)

    assert len(run.handled) == HANDLED_MAX
    assert run.handled[-1] == f"request-{HANDLED_MAX + 3}"


@pytest.mark.parametrize(
    ("reason", "spent", "is_accepted"),
    [
        ("late-data", Spent(manual=1, transient=1, code=1), True),
        ("data-drift", Spent(drift=1), False),
        ("late-data", Spent(drift=1), False),
        ("manual", Spent(drift=1), True),
        ("manual", Spent(manual=1), False),
        ("backfill", Spent(manual=1), False),
        ("replay", Spent(manual=1, drift=1), True),
    ],
)
def test_late_data_and_drift_share_a_budget_people_have_one_and_a_replay_needs_none(
    reason: str, spent: Spent, is_accepted: bool
) -> None:
    run, effects = step(a_run(State.COMPLETED, spent=spent), request(reason), NOON)

    assert told(effects) == [EventType.RERUN_ACCEPTED if is_accepted else EventType.RERUN_REJECTED]
    assert (run.state is State.EVALUATING) is is_accepted


def test_a_success_is_not_repeated_on_the_same_data() -> None:
    stale = request(is_fresh=False)

    rejected, effects = step(COMPLETED, stale, NOON)
    after_failure, _ = step(FAILED, stale, NOON)

    assert rejected.state is State.COMPLETED
    assert told(effects) == [EventType.RERUN_REJECTED]
    assert after_failure.state is State.EVALUATING


def test_a_rejection_does_not_wear_the_breaker_out() -> None:
    run, _ = step(COMPLETED, request(identity="a", is_fresh=False), NOON)

    _, effects = step(run, request(identity="b", is_fresh=False), NOON)

    assert told(effects) == [EventType.RERUN_REJECTED]


def test_an_excluded_date_is_not_run_again_and_the_log_says_so() -> None:
    run, effects = step(COMPLETED, request(), NOON + timedelta(days=1), EXCLUDING)

    assert told(effects) == [EventType.PIPELINE_EXCLUDED]
    [line] = [effect for effect in effects if isinstance(effect, LogJob)]
    assert (line.event, bool(line.message)) == (JobEvent.RERUN_REJECTED, True)
    assert run.handled == ("request-1",)


def test_late_data_cannot_reopen_what_a_person_cancelled_but_a_person_can() -> None:
    _, by_data = step(CANCELLED, request("late-data"), NOON)
    reopened, _ = step(CANCELLED, request("manual"), NOON)

    assert told(by_data) == [EventType.RERUN_REJECTED]
    assert reopened.state is State.EVALUATING


def test_a_request_makes_the_row_it_needs() -> None:
    run, effects = step(None, request(), NOON)
    _, again = step(run, request(), NOON)

    assert (run.state, run.attempt, run.run_id, run.spent) == (State.EVALUATING, 1, "run-2", Spent())
    assert told(effects) == [EventType.RERUN_ACCEPTED]
    assert isinstance(again[0], Ignore)


def test_a_run_that_could_not_be_started_can_be_asked_for_again() -> None:
    not_started = a_run(State.FAILED_FINAL, outcome=Outcome.NOT_STARTED, job=None)
    in_a_rerun = a_run(State.FAILED_FINAL, outcome=Outcome.NOT_STARTED, job=None, attempt=2, spent=Spent(manual=1))

    asked, _ = step(not_started, request("manual"), NOON)
    replayed, _ = step(in_a_rerun, request("replay"), NOON)

    assert (asked.state, asked.attempt) == (State.EVALUATING, 2)
    assert (replayed.state, replayed.attempt) == (State.EVALUATING, 3)


def test_a_request_for_an_excluded_date_without_a_run_is_refused_once() -> None:
    effects = decide(None, EXCLUDING, EXCLUDING.schedules[0], request(), NOON).effects

    [event] = [effect for effect in effects if isinstance(effect, EmitEvent)]
    assert (event.type, event.once) == (EventType.PIPELINE_EXCLUDED, True)
