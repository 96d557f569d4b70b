"""What ends badly is told with what to do about it."""

import pytest

from tests.support.builders.run_steps import step
from tests.support.builders.values import BIRTH, HOUR, KEY, NOON, a_run
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.run.facts import (
    Drift,
    Fact,
    JobFailed,
    JobRefused,
    JobRunning,
    PostRunSeen,
    RerunRequested,
    RulesNotHeld,
)
from worker.core.run.state import FailureCategory, Outcome, Run, Spent, StartStep, State

NOT_YET = RulesNotHeld(attempt=1, saw={}, reason="orders.count is 5")
FAILED = JobFailed(1, FailureCategory.TRANSIENT, "out of memory")
REFUSED = JobRefused(attempt=1, sending=3, category=FailureCategory.PERMANENT, message="no such job")
UNDRIFTED = Drift(sensor_key="out", field="rows", previous=500, current=500, threshold=10)
TOO_FEW = PostRunSeen(sensor_key="out", content_hash="new", drift=UNDRIFTED, rules_held=False, reason="too few")
STARTING = a_run(State.TRIGGERING, start_step=StartStep.SENT, start_failures=3)


@pytest.mark.parametrize(
    ("run", "fact", "hint"),
    [
        (
            a_run(),
            NOT_YET,
            "find out why the data is late or wrong (`interlock explain`); when it is right, rerun it",
        ),
        (
            a_run(State.POLLING),
            FAILED,
            "fix the job or its data, then rerun it; `interlock history` shows the job of each attempt",
        ),
        (a_run(State.POLLING), JobRunning(1), "raise job.jobPollWindowSeconds if it needs longer"),
        (a_run(State.COMPLETED), TOO_FEW, "check the result before others use it; fix it and rerun"),
        (STARTING, REFUSED, "fix what the target rejects, then rerun it"),
    ],
)
def test_an_alert_about_a_run_that_went_wrong_says_what_to_do(run: Run, fact: Fact, hint: str) -> None:
    _, effects = step(run, fact, NOON + HOUR)

    *_, told = [effect for effect in effects if isinstance(effect, EmitEvent)]
    assert told.detail["actionHint"] == hint


@pytest.mark.parametrize(
    ("run", "reason", "hint"),
    [
        (a_run(State.STOPPING), "again", "request it again when the run has ended"),
        (
            a_run(State.POLLING),
            "again",
            "wait until it ends, or stop it and start again: `interlock rerun orders 2026-03-10 --supersede`",
        ),
        (
            a_run(State.FAILED_FINAL, outcome=Outcome.CANCELLED),
            "late-data",
            "to override: `interlock rerun orders 2026-03-10`",
        ),
        (
            a_run(State.COMPLETED, spent=Spent(manual=1)),
            "again",
            "to override: `interlock replay orders 2026-03-10 2026-03-10`",
        ),
        (
            a_run(State.COMPLETED),
            "again",
            "to override: `interlock replay orders 2026-03-10 2026-03-10`",
        ),
    ],
)
def test_a_rerun_that_is_refused_is_told_with_the_way_round(run: Run, reason: str, hint: str) -> None:
    _, effects = step(run, RerunRequested(key=KEY, birth=BIRTH, identity="r1", reason=reason, is_fresh=False), NOON)

    [told] = [effect for effect in effects if isinstance(effect, EmitEvent)]
    assert (told.type, told.detail["actionHint"]) == (EventType.RERUN_REJECTED, hint)
