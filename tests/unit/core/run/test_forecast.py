"""What will become of a request, foretold by the rules that will decide about it."""

import pytest

from tests.support.builders.values import BIRTH, HOUR, KEY, ME, MINUTE, NOON, a_pipeline, a_run, a_schedule
from worker.core.model.calendars import Exclusion
from worker.core.model.pipeline import Pipeline
from worker.core.run.facts import CancelRequested, RerunRequested
from worker.core.run.forecast import Forecast, Prospect, forecast, forecast_dry_run
from worker.core.run.machine import decide, evolve
from worker.core.run.state import AfterStop, DryRun, Pause, Run, Spent, StartStep, State

PIPELINE = a_pipeline()
ACCEPTED, REFUSED, NOTHING = Prospect.ACCEPTED, Prospect.REFUSED, Prospect.NOTHING


def a_rerun(reason: str = "fixed", *, supersede: bool = False, is_fresh: bool = True) -> RerunRequested:
    return RerunRequested(key=KEY, birth=BIRTH, identity="r1", reason=reason, supersede=supersede, is_fresh=is_fresh)


def future(
    run: Run | None, fact: RerunRequested | CancelRequested, pipeline: Pipeline = PIPELINE, pause: Pause | None = None
) -> tuple[Prospect, str]:
    seen = forecast(run, pipeline, pipeline.schedules[0], fact, NOON + MINUTE, pause=pause)
    return seen.prospect, seen.sentence


@pytest.mark.parametrize(
    ("run", "fact", "expected"),
    [
        (None, a_rerun(), (ACCEPTED, "the run starts when its rules pass")),
        (a_run(State.FAILED_FINAL), a_rerun(), (ACCEPTED, "attempt 2 starts when its rules pass")),
        (a_run(State.COMPLETED, attempt=4), a_rerun(), (ACCEPTED, "attempt 5 starts when its rules pass")),
        (
            a_run(State.COMPLETED),
            a_rerun(is_fresh=False),
            (REFUSED, "no sensor changed since the run completed, so a rerun would read the same data"),
        ),
        (a_run(State.COMPLETED, spent=Spent(manual=1)), a_rerun(), (REFUSED, "manual rerun limit reached (1 of 1)")),
        (
            a_run(State.COMPLETED, spent=Spent(manual=1)),
            a_rerun("replay", is_fresh=False),
            (ACCEPTED, "attempt 2 starts when its rules pass"),
        ),
        (
            a_run(State.POLLING),
            a_rerun(),
            (REFUSED, "the run is running"),
        ),
        (
            a_run(State.POLLING),
            a_rerun(supersede=True),
            (ACCEPTED, "the running job is stopped first, then attempt 2 starts"),
        ),
        (
            a_run(State.EVALUATING),
            a_rerun(supersede=True),
            (ACCEPTED, "attempt 2 starts when its rules pass"),
        ),
        (
            a_run(State.STOPPING),
            a_rerun(supersede=True),
            (REFUSED, "the run is stopping"),
        ),
        (a_run(State.COMPLETED, handled=("r1",)), a_rerun(), (NOTHING, "request r1 was answered already")),
    ],
)
def test_a_rerun_is_foretold(run: Run | None, fact: RerunRequested, expected: tuple[Prospect, str]) -> None:
    assert future(run, fact) == expected


CANCEL = CancelRequested(reason="not needed", identity="c1")
WAIVE = CancelRequested(reason="not needed", identity="c1", waive_sla=True)


@pytest.mark.parametrize(
    ("run", "fact", "expected"),
    [
        (None, CANCEL, (NOTHING, "there is no run to cancel")),
        (None, WAIVE, (ACCEPTED, "there is no run to cancel; its deadline is waived")),
        (a_run(), CANCEL, (ACCEPTED, "it takes effect immediately")),
        (
            a_run(State.TRIGGERING, start_step=StartStep.REFUSED),
            CANCEL,
            (ACCEPTED, "it takes effect immediately"),
        ),
        (a_run(State.TRIGGERING), CANCEL, (ACCEPTED, "the job is stopped first")),
        (a_run(State.POLLING), CANCEL, (ACCEPTED, "the job is stopped first")),
        (
            a_run(State.STOPPING),
            CANCEL,
            (ACCEPTED, "the run is already stopping, then it is cancelled"),
        ),
        (
            a_run(State.STOPPING, after_stop=AfterStop.CANCEL),
            CANCEL,
            (NOTHING, "the run is already being cancelled"),
        ),
        (a_run(State.COMPLETED), CANCEL, (NOTHING, "the run has ended; there is nothing to cancel")),
        (a_run(State.COMPLETED), WAIVE, (ACCEPTED, "there is no run to cancel; its deadline is waived")),
    ],
)
def test_a_cancellation_is_foretold(run: Run | None, fact: CancelRequested, expected: tuple[Prospect, str]) -> None:
    assert future(run, fact) == expected


def test_an_excluded_date_is_refused_with_its_reason() -> None:
    never = a_pipeline(schedule=a_schedule(exclusion=Exclusion(weekdays=frozenset(range(7)))))

    for run in (None, a_run(State.COMPLETED)):
        prospect, sentence = future(run, a_rerun(), never)
        assert (prospect, sentence) == (REFUSED, "Tuesday; that weekday is excluded")


def test_a_pause_puts_a_rerun_off_and_not_a_cancellation() -> None:
    pause = Pause("upgrade", NOON + HOUR)

    assert future(a_run(State.COMPLETED), a_rerun(), pause=pause)[0] is Prospect.WAITS
    assert future(a_run(State.POLLING), CANCEL, pause=pause)[0] is ACCEPTED
    assert future(a_run(State.COMPLETED), a_rerun(), pause=Pause("upgrade", NOON))[0] is ACCEPTED


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("fact", [a_rerun(), a_rerun(supersede=True), CANCEL])
def test_a_forecast_of_acceptance_is_a_change_of_the_run(state: State, fact: RerunRequested | CancelRequested) -> None:
    run = a_run(state)
    prospect, _ = future(run, fact)

    after = evolve(run, decide(run, PIPELINE, PIPELINE.schedules[0], fact, NOON + MINUTE), NOON + MINUTE, ME)

    assert isinstance(after, Run)
    moved = (after.state, after.attempt, after.after_stop) != (run.state, run.attempt, run.after_stop)
    assert moved is (prospect is ACCEPTED)


DRY = DryRun(key=KEY, config_hash="v1", since=NOON, window_ends_at=NOON + HOUR)


def rehearsed(pipeline: Pipeline, run: DryRun | None = None, handled: tuple[str, ...] = ()) -> Forecast:
    dry = DRY if run is None else run
    seen = DryRun(key=dry.key, config_hash="v1", since=dry.since, window_ends_at=dry.window_ends_at, handled=handled)
    return forecast_dry_run(seen, pipeline, pipeline.schedules[0], a_rerun(), NOON)


def test_a_pipeline_in_dry_run_says_what_it_would_do() -> None:
    accepted = rehearsed(a_pipeline(dry_run=True))
    refused = rehearsed(a_pipeline(dry_run=True, job={"max_manual_reruns": 0}))
    ignored = rehearsed(a_pipeline(dry_run=True), handled=("r1",))

    assert [each.prospect for each in (accepted, refused, ignored)] == [ACCEPTED, REFUSED, NOTHING]
    assert accepted.sentence.startswith("in dry run: ")
