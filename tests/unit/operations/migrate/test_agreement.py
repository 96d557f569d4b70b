"""Where a shadow and the old system agree about a run, and what is said where they do not."""

from datetime import UTC, date, datetime, timedelta

import pytest

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import DryRun, DryState
from worker.core.time.periods import Period
from worker.operations.migrate.agreement import AgreementResult, Compared, PipelineDecisions, TheirRun, compare

SINCE = datetime(2027, 3, 20, 12, tzinfo=UTC)
LATER = SINCE + timedelta(days=2)
KEY = RunKey(PipelineId("orders"), ScheduleId("stream"), Period(date(2027, 3, 22)))


def ours(state: DryState, reason: str = "") -> DryRun:
    return DryRun(key=KEY, state=state, config_hash="c", since=LATER, window_ends_at=LATER, reason=reason)


def theirs(status: str, *log: str, began_at: datetime | None = LATER, key: RunKey = KEY) -> TheirRun:
    return TheirRun(key=key, status=status, log=log, began_at=began_at)


def compared(our_run: DryRun | None, their_run: TheirRun | None, said: str = "") -> list[Compared]:
    seen = PipelineDecisions(
        ours={KEY: our_run} if our_run else {},
        theirs={their_run.key: their_run} if their_run else {},
        since=SINCE,
        said={KEY: said} if said else {},
    )
    return list(compare(seen))


@pytest.mark.parametrize(
    ("our_run", "their_run", "result"),
    [
        (ours(DryState.WOULD_TRIGGER), theirs("COMPLETED", "success"), AgreementResult.AGREED),
        (ours(DryState.WOULD_TRIGGER), theirs("RUNNING"), AgreementResult.AGREED),
        (ours(DryState.WOULD_TRIGGER), theirs("FAILED_FINAL", "fail"), AgreementResult.AGREED),
        (ours(DryState.WOULD_TRIGGER), None, AgreementResult.OURS_ONLY),
        (ours(DryState.WOULD_TRIGGER), theirs("RUNNING", "validation-exhausted"), AgreementResult.OURS_ONLY),
        (ours(DryState.WOULD_TRIGGER), theirs("FAILED_FINAL"), AgreementResult.OURS_ONLY),
        (ours(DryState.EVALUATING), theirs("RUNNING"), AgreementResult.WAITING),
        (ours(DryState.EVALUATING), None, AgreementResult.WAITING),
        (ours(DryState.EXHAUSTED), theirs("COMPLETED", "success"), AgreementResult.THEIRS_ONLY),
        (ours(DryState.EXHAUSTED), theirs("RUNNING", "validation-exhausted"), AgreementResult.AGREED),
        (ours(DryState.EXHAUSTED), None, AgreementResult.AGREED),
        (None, theirs("COMPLETED", "success"), AgreementResult.THEIRS_ONLY),
        (None, theirs("FAILED_FINAL"), AgreementResult.AGREED),
    ],
)
def test_they_agree_if_both_started_it_or_neither(
    our_run: DryRun | None, their_run: TheirRun | None, result: AgreementResult
) -> None:
    assert [each.result for each in compared(our_run, their_run)] == [result]


def test_what_the_shadow_said_about_a_run_is_the_reason() -> None:
    [excluded] = compared(None, theirs("COMPLETED"), said="orders does not run: it is a Saturday")
    [unseen] = compared(None, theirs("COMPLETED"))

    assert excluded.why == "orders does not run: it is a Saturday"
    assert "interlock migrate check" in unseen.why


def test_where_not_all_events_were_read_no_reason_is_made_up() -> None:
    seen = PipelineDecisions(ours={}, theirs={KEY: theirs("COMPLETED")}, since=SINCE, said_max=1_000)

    [found] = compare(seen)

    assert found.why == "the last 1,000 events of the pipeline do not mention it, and earlier ones were not read"


def test_rules_that_did_not_hold_here_are_named() -> None:
    [found] = compared(ours(DryState.EXHAUSTED, "count.rows is 3"), theirs("COMPLETED"))

    assert found.why == "the rules did not hold: count.rows is 3"


def test_why_the_old_system_did_not_start_it_is_said_as_far_as_its_log_knows() -> None:
    [found] = compared(ours(DryState.WOULD_TRIGGER), theirs("RUNNING", "validation-exhausted"))

    assert found.why == "the old system's run is RUNNING without a job, and its log ends with validation-exhausted"


def test_runs_from_before_the_shadow_are_left_out() -> None:
    before = theirs("COMPLETED", "success", began_at=SINCE - timedelta(hours=1))
    first_day = RunKey(KEY.pipeline, KEY.schedule, Period(SINCE.date()))

    assert compared(None, before) == []
    assert compared(None, theirs("COMPLETED", began_at=None, key=first_day)) == []
    assert len(compared(None, theirs("COMPLETED", began_at=None))) == 1


def test_a_run_the_shadow_knows_is_compared_however_old_it_is() -> None:
    before = theirs("COMPLETED", "success", began_at=SINCE - timedelta(hours=1))

    assert [each.result for each in compared(ours(DryState.WOULD_TRIGGER), before)] == [AgreementResult.AGREED]


def test_both_times_are_told() -> None:
    [found] = compared(ours(DryState.WOULD_TRIGGER), theirs("COMPLETED", began_at=LATER - timedelta(minutes=1)))

    assert (found.ours_at, found.theirs_at) == (LATER, LATER - timedelta(minutes=1))
