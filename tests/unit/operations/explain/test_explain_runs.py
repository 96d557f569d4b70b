"""The gates of a run: where it stands, its rules, its budgets and its deadline."""

import pytest

from tests.support.builders.snapshots import COUNT, FOREIGN, READY, a_sight, found, rules_pipeline
from tests.support.builders.values import HOUR, KEY, MINUTE, NOON, a_pipeline, a_run, a_schedule, a_watch
from worker.core.model.checks import Operator
from worker.core.model.deadlines import Deadline
from worker.core.model.pipeline import Sla
from worker.core.model.rules import Group, Mode, Rule
from worker.core.run.state import (
    STATE_WORDS,
    AfterStop,
    DryRun,
    DryState,
    ForeignRun,
    Outcome,
    Pause,
    Run,
    Spent,
    StartStep,
    State,
)
from worker.core.sla.state import Verdict
from worker.operations.explain.explanation import Gate, GateStatus
from worker.operations.explain.gates import explain
from worker.operations.explain.snapshot import AnyRun, RunSnapshot
from worker.store.repos.requests import RerunRequest
from worker.store.repos.sensors import Sensor

# --- run --------------------------------------------------------------------------------------------------------------


def rehearsal(state: DryState, reason: str = "") -> DryRun:
    return DryRun(key=KEY, config_hash="v1", since=NOON, window_ends_at=NOON + HOUR, state=state, reason=reason)


@pytest.mark.parametrize(
    ("run", "passage", "sentence"),
    [
        (None, GateStatus.OPEN, "there is no run yet"),
        (
            a_run(),
            GateStatus.OPEN,
            "waiting for its rules since 2026-03-10 12:00 UTC, until 2026-03-10 13:00 UTC (attempt 1)",
        ),
        (a_run(State.TRIGGERING), GateStatus.OPEN, "starting since 2026-03-10 12:00 UTC (attempt 1)"),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=2, start_after=NOON + MINUTE),
            GateStatus.OPEN,
            "starting (attempt 1): the target rejected it 2 times; the next try is at 2026-03-10 12:01 UTC",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=2, starts_unanswered=1),
            GateStatus.OPEN,
            "starting (attempt 1): the job may be running: 1 of 2 tries to start it got no answer",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED, start_failures=1, reason="no such job"),
            GateStatus.OPEN,
            "starting (attempt 1): the target rejected it once; last answer: no such job",
        ),
        (
            a_run(State.TRIGGERING, start_step=StartStep.UNANSWERED, reason="no answer in 30 s"),
            GateStatus.OPEN,
            (
                "starting (attempt 1): the job may have started at 2026-03-10 12:00 UTC; "
                "Interlock asks the target whether it did; last answer: no answer in 30 s"
            ),
        ),
        (
            a_run(State.POLLING, attempt=3),
            GateStatus.OPEN,
            "running since 2026-03-10 12:00 UTC, until 2026-03-10 13:00 UTC at the latest (attempt 3)",
        ),
        (
            a_run(State.STOPPING),
            GateStatus.CLOSED,
            (
                "stopping until 2026-03-10 12:10 UTC at the latest (attempt 1): "
                "the poll window is over; then it is retried"
            ),
        ),
        (a_run(State.COMPLETED), GateStatus.CLOSED, "completed at 2026-03-10 12:00 UTC (attempt 1)"),
        (
            a_run(State.COMPLETED, window_ends_at=NOON + 6 * HOUR),
            GateStatus.CLOSED,
            "completed at 2026-03-10 12:00 UTC (attempt 1); monitoring its results until 2026-03-10 18:00 UTC",
        ),
        (
            a_run(State.FAILED_FINAL),
            GateStatus.CLOSED,
            "failed at 2026-03-10 12:00 UTC (attempt 1): out of memory",
        ),
        (
            a_run(State.FAILED_FINAL, outcome=Outcome.CANCELLED, reason="not needed"),
            GateStatus.CLOSED,
            "cancelled at 2026-03-10 12:00 UTC (attempt 1): not needed",
        ),
        (FOREIGN, GateStatus.CLOSED, "running in another system, until 2026-03-10 13:00 UTC at the latest"),
        (
            ForeignRun(key=KEY, status="RUNNING", expires_at=NOON - HOUR),
            GateStatus.CLOSED,
            "another system's run timed out at 2026-03-10 11:00 UTC",
        ),
        (
            ForeignRun(key=KEY, status="RUNNING"),
            GateStatus.CLOSED,
            "running in another system, without a time limit",
        ),
        (ForeignRun(key=KEY, status="COMPLETED"), GateStatus.CLOSED, "completed in another system"),
        (
            rehearsal(DryState.EVALUATING),
            GateStatus.OPEN,
            "dry run: waiting for its rules since 2026-03-10 12:00 UTC, until 2026-03-10 13:00 UTC",
        ),
        (
            rehearsal(DryState.WOULD_TRIGGER),
            GateStatus.OPEN,
            "dry run: the job would have started at 2026-03-10 12:00 UTC",
        ),
        (
            rehearsal(DryState.EXHAUSTED, "too few orders"),
            GateStatus.OPEN,
            "dry run: its rules did not pass by 2026-03-10 12:00 UTC: too few orders",
        ),
    ],
)
def test_the_run_says_where_it_stands(run: AnyRun | None, passage: GateStatus, sentence: str) -> None:
    finding = found(a_sight(run=run), Gate.RUN)

    assert (finding.passage, finding.sentence) == (passage, sentence)


@pytest.mark.parametrize("after", AfterStop)
def test_a_run_that_is_stopped_says_what_comes_after(after: AfterStop) -> None:
    sentences = {
        found(a_sight(run=a_run(State.STOPPING, after_stop=other)), Gate.RUN).sentence
        for other in AfterStop
        if other is not after
    }

    assert found(a_sight(run=a_run(State.STOPPING, after_stop=after)), Gate.RUN).sentence not in sentences


@pytest.mark.parametrize("state", [State.TRIGGERING, State.POLLING, State.STOPPING])
def test_of_a_run_under_way_nothing_is_needed(state: State) -> None:
    explanation = explain(a_sight(run=a_run(state)))

    assert explanation.needed == ()
    assert explanation.summary.startswith(STATE_WORDS[state].capitalize())


def test_an_ended_run_is_rerun_and_its_rules_must_hold_again() -> None:
    explanation = explain(a_sight(run=a_run(State.COMPLETED)))

    assert explanation.needed == (
        "run `interlock rerun orders 2026-03-10`",
        "write orders.count >= 1000 for 2026-03-10",
    )


@pytest.mark.parametrize(
    ("run", "summary"),
    [
        (
            a_run(State.COMPLETED),
            "Completed at 2026-03-10 12:00 UTC (attempt 1). Use `interlock rerun orders 2026-03-10` to run it again.",
        ),
        (
            a_run(State.FAILED_FINAL, outcome=Outcome.TIMED_OUT, reason="too slow"),
            (
                "Failed (run timed out) at 2026-03-10 12:00 UTC (attempt 1): too slow. "
                "Use `interlock rerun orders 2026-03-10` to run it again."
            ),
        ),
        (
            a_run(State.COMPLETED, spent=Spent(manual=1)),
            (
                "Completed at 2026-03-10 12:00 UTC (attempt 1). "
                "Use `interlock replay orders 2026-03-10 2026-03-10` to run it again."
            ),
        ),
    ],
)
def test_the_summary_of_an_ended_run_names_the_command_that_runs_it_again(run: Run, summary: str) -> None:
    assert explain(a_sight(run=run, sensors={"ready": {"status": "done"}})).summary == summary


def test_a_waiting_run_of_a_paused_pipeline_is_shown_as_paused() -> None:
    waiting, running = a_run(), a_run(State.POLLING)

    assert explain(a_sight(run=waiting)).status == "waiting"
    assert explain(a_sight(run=waiting, pause=Pause("upgrade"))).status == "paused"
    assert explain(a_sight(run=running, pause=Pause("upgrade"))).status == "running"


# --- rules ------------------------------------------------------------------------------------------------------------


def test_every_rule_shows_the_value_seen_and_wanted() -> None:
    finding = found(a_sight(sensors={"orders#2026-03-10": {"count": 950}}), Gate.RULES)

    [condition] = finding.conditions
    assert finding.passage is GateStatus.CLOSED
    assert (condition.subject, condition.seen, condition.wanted) == ("orders.count", 950, "at least 1000")
    assert (condition.sensor, condition.passed) == ("orders#2026-03-10", False)


def test_rules_inside_groups_are_shown_too() -> None:
    inner = Group(mode=Mode.ANY, members=(COUNT, Rule(key="fx", check=Operator.EXISTS)))
    pipeline = a_pipeline(schedule=a_schedule(trigger=READY), rules=Group(members=(READY.rule, inner)))

    subjects = [condition.subject for condition in found(a_sight(pipeline), Gate.RULES).conditions]

    assert subjects == ["ready.status", "orders.count", "fx"]


def test_of_a_running_job_the_rules_are_shown_as_they_are_now_and_hold_nothing_back() -> None:
    started_on = {"orders": Sensor("orders", {"count": 1000}).content_hash}
    sight = a_sight(run=a_run(State.POLLING, started_on=started_on), sensors={"orders": {"count": 5}})

    finding = found(sight, Gate.RULES)

    assert finding.passage is GateStatus.OPEN
    assert finding.sentence.startswith("passed when the job started; now 0 of 1 conditions hold")
    assert [condition.is_news for condition in finding.conditions] == [True]


@pytest.mark.parametrize(("count", "is_news"), [(1000, False), (1200, True)])
def test_a_sensor_that_changed_since_the_job_was_started_is_news(count: int, *, is_news: bool) -> None:
    started_on = {"orders": Sensor("orders", {"count": 1000}).content_hash}
    sight = a_sight(run=a_run(State.COMPLETED, started_on=started_on), sensors={"orders": {"count": count}})

    [condition] = found(sight, Gate.RULES).conditions

    assert condition.is_news is is_news


def test_a_sensor_that_is_for_a_later_period_by_now_is_no_news_of_this_one() -> None:
    started_on = {"orders": Sensor("orders", {"count": 1000}).content_hash}
    run = a_run(State.POLLING, started_on=started_on)
    sight = a_sight(run=run, sensors={"orders": {"count": 1200, "date": "2026-03-11"}})

    [condition] = found(sight, Gate.RULES).conditions

    assert condition.is_news is False


# --- budgets ----------------------------------------------------------------------------------------------------------


def test_budgets_say_what_is_used_of_each() -> None:
    pipeline = rules_pipeline(job={"max_retries": 2, "max_manual_reruns": 3})
    run = a_run(spent=Spent(transient=1, manual=2))

    assert found(a_sight(pipeline, run=run), Gate.BUDGETS).sentence == (
        "used: 1 of 2 retries, 0 of 1 code retries, 0 of 1 drift reruns, 2 of 3 manual reruns"
    )


def test_with_the_manual_budget_used_up_a_replay_is_the_way() -> None:
    run = a_run(State.COMPLETED, spent=Spent(manual=1))

    explanation = explain(a_sight(run=run, sensors={"orders": {"count": 1000}}))

    budgets = next(finding for finding in explanation.findings if finding.gate is Gate.BUDGETS)
    assert budgets.passage is GateStatus.CLOSED
    assert explanation.needed == (
        "run `interlock replay orders 2026-03-10 2026-03-10` (the manual rerun limit is reached)",
    )


def test_a_request_that_waits_for_its_answer_is_mentioned_and_an_answered_one_is_not() -> None:
    request = RerunRequest(reason="fixed", requested_at="2026-03-10T11:59:00Z", id="a1")
    waiting = a_sight(request=request, run=a_run(State.COMPLETED))
    answered = a_sight(request=request, run=a_run(State.COMPLETED, handled=(request.identity,)))

    assert 'requested at 2026-03-10T11:59:00Z ("fixed") is still waiting' in found(waiting, Gate.BUDGETS).sentence
    assert "still waiting" not in found(answered, Gate.BUDGETS).sentence


# --- sla --------------------------------------------------------------------------------------------------------------


DAILY = a_schedule(trigger=READY, sla=Sla(deadline=Deadline(9, 0)))
RELATIVE = a_schedule(trigger=READY, sla=Sla(max_duration=HOUR))


@pytest.mark.parametrize(
    ("sight", "sentence"),
    [
        (a_sight(), "no deadline"),
        (a_sight(rules_pipeline(DAILY)), "due by 2026-03-10 09:00 UTC; not watched yet"),
        (a_sight(rules_pipeline(RELATIVE)), "its deadline counts from its first sensor"),
        (a_sight(watch=a_watch()), "due by 2026-03-10 14:00 UTC"),
        (a_sight(watch=a_watch(warned_at=NOON)), "due by 2026-03-10 14:00 UTC; the warning was sent"),
        (a_sight(watch=a_watch(breach_at=NOON)), "overdue since 2026-03-10 12:00 UTC"),
        (
            a_sight(watch=a_watch(verdict=Verdict.MET)),
            "met: due by 2026-03-10 14:00 UTC, decided at 2026-03-10 12:00 UTC",
        ),
        (
            a_sight(watch=a_watch(verdict=Verdict.BREACHED, reason="too late")),
            "breached: the run was due by 2026-03-10 14:00 UTC: too late; a deadline blocks nothing",
        ),
        (
            a_sight(watch=a_watch(verdict=Verdict.WAIVED, reason="no need")),
            "waived at 2026-03-10 12:00 UTC: no need",
        ),
    ],
)
def test_the_deadline_is_told_and_holds_nothing_back(sight: RunSnapshot, sentence: str) -> None:
    finding = found(sight, Gate.SLA)

    assert (finding.passage, finding.sentence) == (GateStatus.OPEN, sentence)
