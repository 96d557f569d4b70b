"""Rows another system left behind: respected while they live, closed when they outlive it, and then ordinary runs."""

from tests.support.builders.run_steps import step, told
from tests.support.builders.values import BIRTH, HOUR, KEY, MINUTE, NEW, NOON
from worker.core.model.effects import Ignore
from worker.core.model.events import EventType
from worker.core.run.effects import Create
from worker.core.run.facts import Origin, RerunRequested, RunTriggered, SensorSignal
from worker.core.run.foreign import as_run, respect
from worker.core.run.state import ForeignRun, Outcome, Spent, State

RUNNING = ForeignRun(key=KEY, status="RUNNING", expires_at=NOON)
COMPLETED = ForeignRun(key=KEY, status="COMPLETED")
FAILED = ForeignRun(key=KEY, status="FAILED_FINAL")


def test_a_running_row_is_respected_until_its_lifetime_is_over() -> None:
    still = respect(RUNNING, BIRTH, NOON)
    endless = respect(ForeignRun(key=KEY, status="RUNNING"), BIRTH, NOON + 1000 * HOUR)

    for decision in (still, endless):
        assert decision is not None
        assert [type(effect) for effect in decision.effects] == [Ignore]


def test_a_running_row_past_its_lifetime_is_closed_as_timed_out() -> None:
    decision = respect(RUNNING, BIRTH, NOON + MINUTE)

    assert decision is not None
    assert isinstance(decision.main, Create)
    assert (decision.main.run.state, decision.main.run.outcome) == (State.FAILED_FINAL, Outcome.TIMED_OUT)
    assert told(decision.effects) == [EventType.SFN_TIMEOUT]


def test_an_ended_row_may_be_rerun_within_what_its_record_leaves_of_the_budget() -> None:
    request = RerunRequested(key=KEY, birth=BIRTH, identity="request-1")

    for foreign in (COMPLETED, FAILED):
        assert respect(foreign, BIRTH, NOON) is None
        fresh = as_run(foreign, BIRTH, NOON, ended_at=NOON - HOUR, spent=Spent())
        used = as_run(foreign, BIRTH, NOON, ended_at=NOON - HOUR, spent=Spent(manual=1))

        assert step(fresh, request, NOON)[0].state is State.EVALUATING
        assert told(step(used, request, NOON)[1]) == [EventType.RERUN_REJECTED]


def test_data_is_late_for_a_completed_row_only_if_it_is_known_when_that_was() -> None:
    written = SensorSignal("orders", NEW, written_at=NOON - MINUTE)
    late = RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=written)
    dated = as_run(COMPLETED, BIRTH, NOON, ended_at=NOON - HOUR, spent=Spent())
    undated = as_run(COMPLETED, BIRTH, NOON, ended_at=None, spent=Spent())

    assert told(step(dated, late, NOON)[1]) == [EventType.LATE_DATA_ARRIVAL]
    assert told(step(undated, late, NOON)[1]) == []
