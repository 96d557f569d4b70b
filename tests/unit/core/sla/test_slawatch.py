"""The watch over a deadline: one verdict, one warning at most, and never a word after the end."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.values import HOUR, KEY, ME, MINUTE, NOON, a_watch
from worker.core.model.deadlines import Deadline, SlaTimes
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType
from worker.core.model.pipeline import Sla
from worker.core.run.state import Status
from worker.core.sla.effects import ArmWatch, CloseWatch, MarkWarned, WatchEffect
from worker.core.sla.state import SlaWatch, Verdict, WatchState
from worker.core.sla.watch import (
    DeadlineMoved,
    DeadlineWaived,
    RunBegan,
    RunExpected,
    RunPassed,
    RunSucceeded,
    TimerReached,
    WatchFact,
    decide,
    evolve,
    next_due,
)

SLA = Sla(deadline=Deadline(14, 0), expected_duration=HOUR)
ONE, TWO = NOON + HOUR, NOON + 2 * HOUR
LATER = SlaTimes(NOON + 3 * HOUR, NOON + 4 * HOUR)

ARMED, WARNED, CLOSED = a_watch(), a_watch(warned_at=ONE), a_watch(verdict=Verdict.MET)
FACTS: tuple[WatchFact, ...] = (
    RunExpected(times=LATER, config_hash="v2"),
    RunBegan(times=LATER, arrived_at=NOON, config_hash="v2"),
    RunPassed(NOON),
    RunSucceeded(NOON),
    TimerReached(Status.RUNNING),
    DeadlineMoved(times=LATER, config_hash="v2", run_exists=False),
    DeadlineWaived("the consumer is on holiday"),
)
_ = "Ignore"
# At a quarter past one, between the warning and the breach.
TABLE: Mapping[str, tuple[str, str, str, str]] = {
    "": ("no watch", "ARMED", "WARNED", "CLOSED"),
    "RunExpected": ("ArmWatch", _, _, _),
    "RunBegan": ("ArmWatch", "ArmWatch", "ArmWatch", _),
    "RunPassed": (_, _, _, _),
    "RunSucceeded": (_, "CloseWatch EmitEvent", "CloseWatch EmitEvent", _),
    "TimerReached": (_, "MarkWarned EmitEvent", _, _),
    "DeadlineMoved": (_, "ArmWatch", "ArmWatch", _),
    "DeadlineWaived": (_, "CloseWatch EmitEvent", "CloseWatch EmitEvent", _),
}


def told(effects: list[WatchEffect]) -> list[EventType]:
    return [effect.type for effect in effects if isinstance(effect, EmitEvent)]


def test_the_table_has_a_row_for_every_fact_and_a_column_for_every_state() -> None:
    kinds = {kind.__name__ for kind in get_args(WatchFact)}

    assert set(TABLE) - {""} == kinds == {type(fact).__name__ for fact in FACTS}
    assert TABLE[""] == ("no watch", *WatchState)


@pytest.mark.parametrize("fact", FACTS, ids=[type(fact).__name__ for fact in FACTS])
@pytest.mark.parametrize("column", range(4), ids=TABLE[""])
def test_each_fact_has_its_outcome_in_each_state(fact: WatchFact, column: int) -> None:
    effects = decide((None, ARMED, WARNED, CLOSED)[column], SLA, fact, ONE + 15 * MINUTE)

    assert " ".join(type(effect).__name__ for effect in effects) == TABLE[type(fact).__name__][column]


@pytest.mark.parametrize(
    ("at", "verdict", "event"),
    [
        (TWO - timedelta(microseconds=1), Verdict.MET, EventType.SLA_MET),
        (TWO, Verdict.BREACHED, EventType.SLA_BREACH),
    ],
)
def test_a_success_is_judged_by_when_it_was_not_by_when_it_was_seen(
    at: datetime, verdict: Verdict, event: EventType
) -> None:
    effects = decide(ARMED, SLA, RunSucceeded(at), TWO + HOUR)

    assert [effect.verdict for effect in effects if isinstance(effect, CloseWatch)] == [verdict]
    assert told(effects) == [event]


@pytest.mark.parametrize(
    "sla",
    [
        Sla(),
        Sla(deadline=Deadline(14, 0)),
        Sla(deadline=Deadline(None, 30)),
        Sla(max_duration=HOUR),
        Sla(expected_duration=HOUR),
        Sla(deadline=Deadline(14, 0), max_duration=HOUR, expected_duration=HOUR),
    ],
)
@pytest.mark.parametrize("arrived_at", [None, NOON], ids=["arrival unknown", "arrival known"])
def test_nothing_that_an_sla_leaves_out_keeps_it_from_being_judged(sla: Sla, arrived_at: datetime | None) -> None:
    watch = a_watch(arrived_at=arrived_at, warning_at=None)

    met = decide(watch, sla, RunSucceeded(ONE), ONE)
    missed = decide(watch, sla, TimerReached(None), TWO)

    assert told(met) == [EventType.SLA_MET]
    assert told(missed) == [EventType.RELATIVE_SLA_BREACH if arrived_at else EventType.SLA_BREACH]


def test_a_deadline_that_passes_without_success_is_breached_whatever_became_of_the_run() -> None:
    for status, shown in ((None, "not started"), (Status.RUNNING, "RUNNING"), (Status.FAILED_FINAL, "FAILED_FINAL")):
        effects = decide(WARNED, SLA, TimerReached(status), TWO)

        [event] = [effect for effect in effects if isinstance(effect, EmitEvent)]
        assert event.type is EventType.SLA_BREACH
        assert event.detail["status"] == shown
        assert event.detail["breachAt"] == "2026-03-10T14:00:00Z"
        assert event.detail["deadline"] == "14:00"


def test_no_warning_is_given_once_the_breach_has_come() -> None:
    effects = decide(ARMED, SLA, TimerReached(Status.RUNNING), TWO)

    assert not any(isinstance(effect, MarkWarned) for effect in effects)
    assert told(effects) == [EventType.SLA_BREACH]


def test_a_run_that_turns_out_to_be_done_is_judged_instead_of_breached() -> None:
    effects = decide(WARNED, SLA, TimerReached(Status.COMPLETED, succeeded_at=ONE), TWO + MINUTE)

    assert told(effects) == [EventType.SLA_MET]


def test_a_relative_deadline_speaks_under_its_own_names_and_shows_what_it_counts_from() -> None:
    watch = a_watch(arrived_at=NOON)

    warning = decide(watch, SLA, TimerReached(Status.RUNNING), ONE)
    breach = decide(watch, SLA, TimerReached(Status.RUNNING), TWO)

    assert told(warning) == [EventType.RELATIVE_SLA_WARNING]
    [event] = [effect for effect in breach if isinstance(effect, EmitEvent)]
    assert event.type is EventType.RELATIVE_SLA_BREACH
    assert event.detail["sensorArrivalAt"] == "2026-03-10T12:00:00Z"
    assert event.detail["maxDuration"] == "2h"


def test_a_changed_configuration_moves_only_the_deadline_of_a_run_that_does_not_exist() -> None:
    moved = decide(ARMED, SLA, DeadlineMoved(times=LATER, config_hash="v2", run_exists=False), NOON)
    kept = decide(ARMED, SLA, DeadlineMoved(times=LATER, config_hash="v2", run_exists=True), NOON)
    gone = decide(ARMED, SLA, DeadlineMoved(times=None, config_hash="v2", run_exists=False), NOON)

    assert moved == [ArmWatch(times=LATER, arrived_at=None, config_hash="v2")]
    assert isinstance(kept[0], Ignore)
    assert isinstance(gone[0], CloseWatch)
    assert gone[0].verdict is Verdict.WAIVED


def test_the_deadline_that_holds_when_the_run_begins_replaces_the_expected_one() -> None:
    same = RunBegan(times=SlaTimes(ONE, TWO), arrived_at=None, config_hash="v1")
    relative = RunBegan(times=LATER, arrived_at=TWO, config_hash="v1")

    effects = decide(ARMED, SLA, relative, NOON)
    watch = evolve(ARMED, KEY, effects, NOON, ME)

    assert isinstance(decide(ARMED, SLA, same, NOON)[0], Ignore)
    assert watch is not None
    assert (watch.breach_at, watch.arrived_at, watch.owner) == (LATER.breach_at, TWO, ME)


def test_a_watch_is_due_at_its_warning_then_at_its_breach_then_never() -> None:
    assert next_due(ARMED, NOON) == ONE
    assert next_due(WARNED, ONE) == TWO
    assert next_due(ARMED, TWO) == TWO
    assert next_due(replace(ARMED, warning_at=None), NOON) == TWO
    assert next_due(CLOSED, NOON) is None


def some_times(warning_m: int, breach_m: int) -> SlaTimes:
    return SlaTimes(NOON + warning_m * MINUTE, NOON + (warning_m + breach_m) * MINUTE)


times = st.builds(some_times, st.integers(0, 120), st.integers(1, 120))
statuses = st.one_of(st.none(), st.sampled_from([Status.RUNNING, Status.FAILED_FINAL]))
facts: st.SearchStrategy[WatchFact] = st.one_of(
    st.builds(RunExpected, times=times, config_hash=st.just("v")),
    st.builds(RunBegan, times=times, arrived_at=st.none(), config_hash=st.just("v")),
    st.builds(RunSucceeded, st.integers(0, 240).map(lambda minutes: NOON + minutes * MINUTE)),
    st.builds(TimerReached, statuses),
    st.builds(DeadlineMoved, times=st.one_of(st.none(), times), config_hash=st.just("v"), run_exists=st.booleans()),
    st.builds(DeadlineWaived, st.just("waived")),
)


@given(st.lists(st.tuples(facts, st.integers(0, 60)), max_size=30))
def test_whatever_happens_there_is_one_verdict_one_warning_at_most_and_silence_after(
    history: list[tuple[WatchFact, int]],
) -> None:
    watch: SlaWatch | None = ARMED
    now, closed, warned = NOON, 0, 0
    for fact, minutes in [*history, (TimerReached(None), 600)]:
        now += minutes * MINUTE
        for _repeat in range(2):
            effects = decide(watch, SLA, fact, now)
            assert effects
            if watch is not None and watch.verdict is not None:
                assert told(effects) == []
            closed += sum(isinstance(effect, CloseWatch) for effect in effects)
            warned += sum(isinstance(effect, MarkWarned) for effect in effects)
            watch = evolve(watch, KEY, effects, now, ME)

    assert closed == 1
    assert warned <= 1
