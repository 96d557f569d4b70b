"""The deadline of an evaluation: one verdict, judged apart from the run's, and no breach once the rules held."""

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.values import HOUR, KEY, ME, MINUTE, NOON, a_watch
from worker.core.model.deadlines import Deadline, SlaTimes
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.pipeline import Sla
from worker.core.model.rule_report import RULES_REPORTED_MAX, unmet
from worker.core.run.state import Status
from worker.core.sla.effects import CloseEvaluation, WatchEffect
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

BREACH = EventType.EVALUATION_SLA_BREACH
HALF, ONE, TWO = NOON + 30 * MINUTE, NOON + HOUR, NOON + 2 * HOUR
SLA = Sla(deadline=Deadline(14, 0), evaluation_deadline=Deadline(12, 30))
BOTH = a_watch(evaluation_at=HALF)
ALONE = SlaWatch(key=KEY, version=1, config_hash="v1", since=NOON, evaluation_at=HALF)
MISSING = (unmet("count.rows is 5, which is not at least 100", "count"), unmet("sensor b is missing", "b"))


def told(effects: list[WatchEffect]) -> list[EventType]:
    return [effect.type for effect in effects if isinstance(effect, EmitEvent)]


def after(watch: SlaWatch, fact: WatchFact, now: datetime) -> SlaWatch:
    changed = evolve(watch, KEY, decide(watch, SLA, fact, now), now, ME)
    assert changed is not None
    return changed


def test_a_breach_lists_what_was_missing_and_leaves_the_runs_own_deadline_open() -> None:
    effects = decide(BOTH, SLA, TimerReached(Status.RUNNING, missing=MISSING), HALF)
    watch = evolve(BOTH, KEY, effects, HALF, ME)

    [event] = [effect for effect in effects if isinstance(effect, EmitEvent)]
    assert event.type is BREACH
    assert event.detail["missing"] == [each.record() for each in MISSING]
    assert (event.detail["missingCount"], event.detail["evaluationDeadline"]) == (2, "12:30")
    assert event.detail["deadlineAt"] == "2026-03-10T12:30:00Z"
    assert "count.rows is 5, which is not at least 100, and 1 more" in event.message
    assert watch is not None
    assert (watch.evaluation_verdict, watch.verdict, watch.is_closed) == (Verdict.BREACHED, None, False)
    assert next_due(watch, HALF) == ONE


def test_a_long_list_of_missing_rules_is_cut_and_says_how_many_there_are() -> None:
    many = tuple(unmet(f"sensor s{number} is missing") for number in range(300))

    effects = decide(BOTH, SLA, TimerReached(None, missing=many), HALF)

    [event] = [effect for effect in effects if isinstance(effect, EmitEvent)]
    shown = event.detail["missing"]
    assert isinstance(shown, list)
    assert (len(shown), event.detail["missingCount"]) == (RULES_REPORTED_MAX, 300)


@pytest.mark.parametrize("watch", [BOTH, ALONE], ids=["with a deadline", "alone"])
def test_without_an_evaluation_after_the_deadline_nothing_is_declared(watch: SlaWatch) -> None:
    assert BREACH not in told(decide(watch, SLA, TimerReached(Status.RUNNING), HALF))
    assert BREACH not in told(decide(watch, SLA, TimerReached(Status.RUNNING, missing=MISSING), HALF - MINUTE))


def test_a_watch_of_an_evaluation_alone_is_closed_by_its_verdict() -> None:
    held, missed = after(ALONE, RunPassed(NOON), NOON), after(ALONE, TimerReached(None, missing=MISSING), HALF)

    assert next_due(ALONE, NOON) == HALF
    for watch, verdict in ((held, Verdict.MET), (missed, Verdict.BREACHED)):
        assert (watch.evaluation_verdict, watch.state, watch.owner) == (verdict, WatchState.CLOSED, None)
        assert next_due(watch, HALF) is None


def test_the_first_evaluation_after_an_outage_decides() -> None:
    late = after(ALONE, RunPassed(TWO), TWO)

    assert late.evaluation_verdict is Verdict.MET
    assert "first evaluated after the deadline" in late.evaluation_reason


def test_a_success_or_a_waiver_closes_the_evaluation_with_the_deadline() -> None:
    done, waived = after(BOTH, RunSucceeded(NOON), NOON), after(BOTH, DeadlineWaived("not needed"), NOON)

    assert (done.verdict, done.evaluation_verdict) == (Verdict.MET, Verdict.MET)
    assert (waived.verdict, waived.evaluation_verdict) == (Verdict.WAIVED, Verdict.WAIVED)


def test_a_waiver_after_the_runs_own_verdict_is_one_of_the_evaluation_alone() -> None:
    judged = replace(BOTH, verdict=Verdict.BREACHED, evaluation_at=TWO + HOUR)
    effects = decide(judged, SLA, DeadlineWaived("not needed"), TWO)
    waived = evolve(judged, KEY, effects, TWO, ME)

    [event] = [effect for effect in effects if isinstance(effect, EmitEvent)]
    assert "the deadline of its evaluation was waived: not needed" in event.message
    assert waived is not None
    assert (waived.verdict, waived.evaluation_verdict) == (Verdict.BREACHED, Verdict.WAIVED)


def test_what_was_judged_keeps_the_time_it_was_judged_by() -> None:
    judged = after(BOTH, TimerReached(None, missing=MISSING), HALF)
    moved = after(judged, RunBegan(times=SlaTimes(None, TWO + HOUR, TWO), arrived_at=None, config_hash="v2"), ONE)

    assert (moved.evaluation_at, moved.evaluation_verdict, moved.breach_at) == (HALF, Verdict.BREACHED, TWO + HOUR)


instants = st.integers(0, 240).map(lambda minutes: NOON + minutes * MINUTE)
times = st.one_of(
    st.builds(SlaTimes, st.none(), instants, instants),
    st.builds(SlaTimes, st.none(), st.none(), instants),
    st.builds(SlaTimes, st.none(), instants),
)
findings = st.one_of(st.none(), st.just(()), st.just(MISSING))
facts: st.SearchStrategy[WatchFact] = st.one_of(
    st.builds(RunExpected, times=times, config_hash=st.just("v")),
    st.builds(RunBegan, times=times, arrived_at=st.none(), config_hash=st.just("v")),
    st.builds(RunPassed, instants),
    st.builds(RunSucceeded, instants),
    st.builds(TimerReached, st.sampled_from([None, Status.RUNNING, Status.FAILED_FINAL]), missing=findings),
    st.builds(DeadlineMoved, times=st.one_of(st.none(), times), config_hash=st.just("v"), run_exists=st.booleans()),
    st.builds(DeadlineWaived, st.just("waived")),
)


@given(st.booleans(), st.lists(st.tuples(facts, st.integers(0, 60)), max_size=30))
def test_whatever_happens_there_is_one_verdict_and_no_breach_after_the_rules_held(
    alone: bool, history: list[tuple[WatchFact, int]]
) -> None:
    watch: SlaWatch | None = ALONE if alone else BOTH
    now, verdicts, breaches, has_held = NOON, 0, 0, False
    for fact, minutes in [*history, (TimerReached(None, missing=MISSING), 600)]:
        now += minutes * MINUTE
        for _repeat in range(2):
            before = watch
            effects = decide(watch, SLA, fact, now)
            watch = evolve(watch, KEY, effects, now, ME)
            assert before is not None
            assert watch is not None
            verdicts += sum(isinstance(effect, CloseEvaluation) for effect in effects)
            if BREACH in told(effects):
                breaches += 1
                assert not has_held
                assert before.evaluation_at is not None
                assert now >= before.evaluation_at
            if before.evaluation_verdict is not None:
                judged = (before.evaluation_verdict, before.evaluation_at)
                assert (watch.evaluation_verdict, watch.evaluation_at) == judged
            # A fact about an evaluation without a deadline says nothing about one that is armed later.
            is_about = before.evaluation_at is not None
            has_held = has_held or (is_about and isinstance(fact, RunPassed | RunSucceeded))

    assert watch is not None
    assert verdicts <= 1
    assert breaches <= 1
    assert watch.is_closed
    assert not watch.is_evaluation_open
