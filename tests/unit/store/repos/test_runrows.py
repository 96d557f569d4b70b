"""Whatever a run or a watch knows survives its row."""

from dataclasses import MISSING, fields, replace
from datetime import timedelta

from tests.support.builders.values import HANDLE, HOUR, KEY, ME, NEW, NOON, OLD, a_watch
from worker.core.run.state import AfterStop, EarlierAttempt, FailureCategory, Outcome, Run, Spent, StartStep, State
from worker.core.sla.state import Verdict
from worker.store.repos.run_rows import run_from_row, run_to_row
from worker.store.repos.sla_watches import watch_from_row, watch_to_row

FULL = Run(
    key=KEY,
    run_id="run-1",
    version=7,
    state=State.STOPPING,
    attempt=3,
    attempt_at=NOON - HOUR,
    spent=Spent(transient=1, code=2, drift=3, manual=4),
    config_hash="v1",
    created_at=NOON - 2 * HOUR,
    since=NOON,
    window_ends_at=NOON + HOUR,
    timeout_at=NOON + 2 * HOUR,
    owner=ME,
    starter=ME,
    start_step=StartStep.ABANDONED,
    start_failures=2,
    starts_unanswered=1,
    start_after=NOON + timedelta(seconds=30),
    started_on={"orders": OLD},
    started_after={"bronze/stream/2026-03-10": "run-0.1"},
    path=("raw", "bronze"),
    is_followed=True,
    upstream_reported="h7",
    late_reported=NEW,
    late_attempt=1,
    changed_inputs={"orders": "h9"},
    post_run_seen={"out": NEW},
    told_at={"out": NOON},
    handled=("a", "b"),
    job=HANDLE,
    after_stop=AfterStop.SUPERSEDE,
    rerun_reason="manual",
    outcome=Outcome.FAILED,
    reason="out of memory",
    origin="sensor",
    pipeline_owner="commerce",
    job_type="glue",
    summary={"seen": 3, "errored": 1},
    started_at=NOON - HOUR,
    category=FailureCategory.TRANSIENT,
    attempts=(
        EarlierAttempt(
            number=2,
            job_type="glue",
            job="jr_1",
            url="https://example.com/jr_1",
            started_at=NOON - 2 * HOUR,
            ended_at=NOON - HOUR,
            outcome="failed",
            category=FailureCategory.TIMEOUT,
            reason="too slow",
        ),
    ),
)


def test_every_field_of_a_run_survives_its_row() -> None:
    for field in fields(Run):
        default = field.default if field.default_factory is MISSING else field.default_factory()
        assert getattr(FULL, field.name) != default, f"{field.name} is not put to the test"

    assert run_from_row(run_to_row(FULL)) == FULL


def test_every_field_of_a_watch_survives_its_row() -> None:
    watch = a_watch(
        arrived_at=NOON,
        warned_at=NOON,
        verdict=Verdict.BREACHED,
        reason="too late",
        evaluation_at=NOON,
        evaluation_verdict=Verdict.BREACHED,
        evaluation_judged_at=NOON,
        evaluation_reason="rows were missing",
        owner=ME,
    )
    for field in fields(watch):
        assert getattr(watch, field.name) != field.default, f"{field.name} is not put to the test"

    assert watch_from_row(watch_to_row(watch)) == watch


def test_a_fresh_run_needs_none_of_the_optional_attributes() -> None:
    fresh = replace(FULL, **{field.name: field.default for field in fields(Run) if field.default is not MISSING})

    assert run_from_row(run_to_row(fresh)) == fresh
