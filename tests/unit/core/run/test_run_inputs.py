"""What a success finds of its inputs, and what a running job's run remembers of them."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from tests.support.builders.run_steps import step, told
from tests.support.builders.values import (
    BIRTH,
    HOUR,
    KEY,
    ME,
    NEW,
    NOON,
    OLD,
    a_key,
    a_pipeline,
    a_post_run,
    a_run,
    a_schedule,
)
from worker.core.model.calendars import Exclusion
from worker.core.model.checks import Operator
from worker.core.model.effects import EmitEvent, Ignore
from worker.core.model.events import EventType
from worker.core.model.pipeline import Trigger
from worker.core.model.rules import Group, Rule, at_once
from worker.core.model.values import Json
from worker.core.run.decision import Decision
from worker.core.run.effects import End, EvaluateAgain, MoveTo, NoteChange, NoteHandled, PutRerunRequest
from worker.core.run.evaluation import judge_post_run
from worker.core.run.facts import (
    Inputs,
    JobReport,
    JobReported,
    JobSucceeded,
    Origin,
    RunTriggered,
    SensorReading,
    SensorSignal,
)
from worker.core.run.inputs import DRIFT_TOLD_MAX
from worker.core.run.machine import evolve
from worker.core.run.sensor_match import SensorContent, is_for_later
from worker.core.run.state import CHANGED_INPUTS_MAX, Run, State

DAY = str(KEY.period)
WRITTEN = NOON + timedelta(minutes=10)
TRIGGER = Trigger(rule=Rule(key="orders", check=Operator.EQUALS, field="status", value="done"))
PIPELINE = a_pipeline(
    schedule=a_schedule(trigger=TRIGGER),
    rules=Group(members=tuple(Rule(key=key, check=Operator.EXISTS) for key in ("orders", "count"))),
)
POLLING = a_run(State.POLLING, started_on={"orders": OLD, "count": OLD})


def a_reading(content: str = OLD, key: str = "orders", **data: Json) -> SensorReading:
    return SensorReading({"status": "done", "date": DAY, **data}, content, key)


def succeeded(readings: Mapping[str, SensorReading], baseline: Mapping[str, Json] | None = None) -> JobSucceeded:
    return JobSucceeded(attempt=1, inputs=Inputs(readings, baseline or {}))


def success_on(orders: SensorReading | None, count: SensorReading | None, run: Run = POLLING) -> tuple[list[str], bool]:
    """What is told of late data, and whether a rerun is requested."""
    found = {"orders": orders, "count": count}
    fact = succeeded({name: reading for name, reading in found.items() if reading})
    ended, effects = step(run, fact, NOON + HOUR, PIPELINE)
    assert ended.state is State.COMPLETED
    return [each for each in told(effects) if each != EventType.JOB_COMPLETED], any(
        isinstance(effect, PutRerunRequest) for effect in effects
    )


NOTHING: list[str] = []
LATE: list[str] = [EventType.LATE_DATA_ARRIVAL]


@pytest.mark.parametrize(
    ("orders", "count", "expected"),
    [
        (a_reading(), a_reading(key="count"), (NOTHING, False)),
        (a_reading(NEW), a_reading(key="count"), (LATE, True)),
        (a_reading(), a_reading(NEW, "count"), (LATE, True)),
        (a_reading(NEW), a_reading(NEW, "count"), (LATE, True)),
        (a_reading(NEW, status="draft"), a_reading(key="count"), (LATE, False)),
        (a_reading(NEW, status="draft"), a_reading(NEW, "count"), (LATE, False)),
        (None, a_reading(key="count"), (LATE, False)),
        (a_reading(), None, (LATE, False)),
        (a_reading(NEW, date="2026-03-11"), a_reading(key="count"), (NOTHING, False)),
        (a_reading(NEW, date="2026-03-09"), a_reading(key="count"), (NOTHING, False)),
        (a_reading(), a_reading(NEW, "count", date="2026-03-11"), (NOTHING, False)),
        (a_reading(), a_reading(NEW, "count", date="2026-03-09"), (LATE, True)),
        (a_reading(), a_reading(NEW, f"count#{DAY}"), (LATE, True)),
    ],
)
def test_a_success_compares_the_trigger_and_every_rule_with_the_start(
    orders: SensorReading | None, count: SensorReading | None, expected: tuple[list[str], bool]
) -> None:
    assert success_on(orders, count) == expected


def test_a_sensor_that_came_only_after_the_start_is_late_data() -> None:
    run = replace(POLLING, started_on={"orders": OLD})

    assert success_on(a_reading(), a_reading(NEW, "count"), run) == (LATE, True)


def test_a_run_of_which_nobody_knows_what_it_was_started_on_is_compared_with_nothing() -> None:
    run = replace(POLLING, started_on={})

    assert success_on(a_reading(NEW), a_reading(NEW, "count"), run) == (NOTHING, False)


@pytest.mark.parametrize(("hours", "is_late"), [(1, True), (13, False)])
def test_a_signal_that_names_no_day_is_for_the_day_on_which_it_is_found_unless_its_record_said_otherwise(
    hours: int, *, is_late: bool
) -> None:
    fact = succeeded({"orders": SensorReading({"status": "done"}, NEW, "orders"), "count": a_reading(key="count")})
    now = NOON + timedelta(hours=hours)

    _, unheard = step(POLLING, fact, now, PIPELINE)
    _, heard = step(replace(POLLING, changed_inputs={"orders": NEW}), fact, now, PIPELINE)

    assert (EventType.LATE_DATA_ARRIVAL in told(unheard)) is is_late
    assert EventType.LATE_DATA_ARRIVAL in told(heard)


def test_an_excluded_period_is_told_and_asks_for_no_rerun() -> None:
    excluding = a_schedule(trigger=TRIGGER, exclusion=Exclusion(dates=frozenset({KEY.period.date})))
    fact = succeeded({"orders": a_reading(NEW), "count": a_reading(key="count")})

    _, effects = step(POLLING, fact, NOON + HOUR, replace(PIPELINE, schedules=(excluding,)))

    assert told(effects)[1:] == [EventType.LATE_DATA_ARRIVAL, EventType.PIPELINE_EXCLUDED]
    assert not any(isinstance(effect, PutRerunRequest) for effect in effects)


def test_a_note_that_the_read_does_not_confirm_is_corrected_before_the_success_is_decided() -> None:
    run = replace(POLLING, changed_inputs={"orders": NEW})
    inputs = Inputs({"orders": a_reading(), "count": a_reading(key="count")}, {})
    report = JobReported(key=KEY, identity="row-1", report=JobReport.SUCCESS, at=NOON + HOUR, inputs=inputs)

    corrected, effects = step(run, report, NOON + HOUR, PIPELINE)
    ended, again = step(corrected, report, NOON + HOUR, PIPELINE)

    assert effects == [NoteChange("orders", OLD), EvaluateAgain()]
    assert corrected.state is State.POLLING
    assert ended.state is State.COMPLETED
    assert NoteHandled("row-1") in again
    assert told(again) == [EventType.JOB_COMPLETED]


@pytest.mark.parametrize("state", [State.TRIGGERING, State.POLLING, State.STOPPING])
def test_a_signal_is_noted_once_for_each_content_and_only_if_it_says_something_else(state: State) -> None:
    run, counts = a_run(state), list[int]()
    for content in (OLD, NEW, NEW, OLD, "newer", "newer"):
        signal = SensorSignal("orders", content, WRITTEN, None, "orders")
        run, effects = step(
            run, RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=signal), NOON + HOUR, PIPELINE
        )
        counts.append(sum(isinstance(effect, NoteChange) for effect in effects))

    assert counts == [0, 1, 0, 0, 1, 0]
    assert (run.changed_inputs, run.told_at) == ({"orders": "newer"}, {"orders": WRITTEN})
    assert run.state is state


def test_an_image_from_before_the_attempt_is_not_noted() -> None:
    signal = SensorSignal("orders", NEW, NOON - HOUR, NOON - HOUR, "orders")
    wanted = RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=signal)

    _, effects = step(a_run(State.POLLING), wanted, NOON + HOUR, PIPELINE)

    assert [type(effect) for effect in effects] == [Ignore]


@pytest.mark.parametrize(
    ("written_at", "is_noted"),
    [(None, False), (NOON - HOUR, False), (NOON - timedelta(seconds=1), True), (WRITTEN, True)],
    ids=["unknown", "before", "in the second of the start, cut to whole seconds", "since"],
)
def test_a_signal_that_no_evaluation_reads_is_noted_if_it_came_with_the_attempt(
    written_at: datetime | None, *, is_noted: bool
) -> None:
    run = a_run(State.POLLING, started_on={"count": OLD})
    signal = SensorSignal("orders", NEW, written_at, None, "orders-us")
    wanted = RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=signal)

    _, effects = step(run, wanted, NOON + HOUR, PIPELINE)

    assert any(isinstance(effect, NoteChange) for effect in effects) is is_noted


def test_the_first_signal_of_a_prefix_is_not_late_data_when_it_is_delivered_again_after_another_one() -> None:
    def wanted(key: str, content: str, written_at: datetime) -> RunTriggered:
        signal = SensorSignal("orders", content, written_at, None, key)
        return RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=signal)

    first = wanted("orders-eu", "eu", NOON - timedelta(seconds=1))
    created, _ = step(None, first, NOON, PIPELINE)
    run = replace(created, state=State.POLLING, started_on={"count": OLD})
    run, _ = step(run, wanted("orders-us", "us", WRITTEN), WRITTEN, PIPELINE)
    ended = replace(run, state=State.COMPLETED, late_reported="us")

    _, again = step(ended, first, WRITTEN, PIPELINE)
    _, rewritten = step(ended, wanted("orders-eu", "new", NOON), WRITTEN, PIPELINE)

    assert told(again) == []
    assert told(rewritten) == [EventType.LATE_DATA_ARRIVAL]


def test_many_sensors_that_drift_at_once_fit_into_one_commit() -> None:
    names = [f"out-{number}" for number in range(DRIFT_TOLD_MAX + 5)]
    rules = Group(members=tuple(Rule(key=name, check=Operator.EXISTS) for name in names))
    pipeline = replace(PIPELINE, post_run=a_post_run(rules=rules, drift_field="rows"))
    run = a_run(State.POLLING, started_on={"orders": OLD, "count": OLD, **dict.fromkeys(names, OLD)})
    readings = {name: a_reading(NEW, name, rows=9) for name in names}
    inputs = {"orders": a_reading(), "count": a_reading(key="count"), **readings}

    _, effects = step(run, succeeded(inputs, {name: {"rows": 1} for name in names}), NOON + HOUR, pipeline)

    told_of = [each for each in effects if isinstance(each, EmitEvent) and each.type is EventType.POST_RUN_DRIFT]
    assert len(told_of) == DRIFT_TOLD_MAX
    assert "5 other sensors" in told_of[0].message


def test_notes_are_bounded_and_a_new_start_forgets_them() -> None:
    run = a_run(State.POLLING)
    for number in range(CHANGED_INPUTS_MAX + 5):
        signal = SensorSignal("orders", f"content-{number}", WRITTEN, None, f"orders-{number}")
        run, _ = step(
            run, RunTriggered(key=KEY, birth=BIRTH, origin=Origin.SENSOR, signal=signal), NOON + HOUR, PIPELINE
        )

    started = MoveTo(state=State.TRIGGERING, started_on={"orders": NEW})
    again = evolve(run, Decision.of(started), NOON + HOUR, ME)

    assert len(run.changed_inputs) == CHANGED_INPUTS_MAX
    assert again is not None
    assert again.changed_inputs == {}


def test_a_number_within_its_threshold_is_no_late_data_though_a_rule_names_its_sensor() -> None:
    rules = Group(members=(Rule(key="count", check=Operator.EXISTS),))
    pipeline = replace(PIPELINE, post_run=a_post_run(rules=rules, drift_field="rows", drift_threshold=10))
    verdicts = {105: EventType.POST_RUN_PASSED, 111: EventType.POST_RUN_DRIFT, None: EventType.LATE_DATA_ARRIVAL}

    for rows, verdict in verdicts.items():
        readings = {"orders": a_reading(), "count": a_reading(NEW, "count", rows=rows)}
        judged = at_once(judge_post_run(pipeline, POLLING.started_on, readings, NOON + HOUR))
        fact = JobSucceeded(attempt=1, inputs=Inputs(readings, {"count": {"rows": 100}}, judged))
        _, effects = step(POLLING, fact, NOON + HOUR, pipeline)
        assert isinstance(effects[0], End)
        assert told(effects)[1] is verdict


@pytest.mark.parametrize(
    ("named", "period", "is_later"),
    [
        ("2026-03-11", "2026-03-10", True),
        ("2026-03-10", "2026-03-10", False),
        ("2026-03-10T23", "2026-03-10", False),
        ("2026-03-10", "2026-03-10T07", False),
        ("2026-03-10T08", "2026-03-10T07", True),
        ("2026-03-10T0715", "2026-03-10T0730", False),
        ("2026-03-09T23", "2026-03-10T07", False),
    ],
)
def test_a_day_is_not_later_than_its_hours_nor_an_hour_than_its_day(named: str, period: str, *, is_later: bool) -> None:
    assert is_for_later(SensorContent(f"count#{named}", {}), a_key(period).period) is is_later


def test_a_sensor_without_a_period_is_for_no_later_one() -> None:
    assert not is_for_later(SensorContent("count", {"rows": 1}), KEY.period)
