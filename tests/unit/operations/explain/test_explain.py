"""All gates together: each is named once, and whatever is closed can be opened."""

import pytest

from tests.support.builders.snapshots import FOREIGN, READY, a_sight, cron_schedule, rules_pipeline
from tests.support.builders.values import HOUR, KEY, NOON, a_key, a_run, a_schedule
from worker.core.model.calendars import Exclusion
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, PipelineId, ScheduleId
from worker.core.model.values import Json
from worker.core.run.state import DryRun, Pause, Run, State
from worker.operations.explain.explanation import Explanation, Gate, GateStatus
from worker.operations.explain.gates import explain
from worker.operations.explain.snapshot import AnyRun


def test_every_gate_is_named_once_and_in_order() -> None:
    # Its schedule runs after nothing, and no rule names its summary.
    others = [gate for gate in Gate if gate not in {Gate.AFTER, Gate.SUMMARY}]

    assert [finding.gate for finding in explain(a_sight()).findings] == others


ALL_SET: dict[str, dict[str, Json]] = {"ready#2026-03-10": {"status": "done"}, "orders#2026-03-10": {"count": 1000}}


def test_with_every_gate_open_nothing_is_needed() -> None:
    explanation = explain(a_sight(sensors=ALL_SET))

    assert {finding.passage for finding in explanation.findings} == {GateStatus.OPEN}
    assert explanation.needed == ()
    assert explanation.summary == "Every gate is passed: a worker starts it at its next evaluation."


def test_the_summary_names_the_first_gate_that_is_closed_and_what_is_needed_covers_all() -> None:
    explanation = explain(a_sight(pause=Pause("moving house")))

    assert explanation.summary == "Blocked by pause: paused until someone resumes it: moving house"
    assert explanation.needed == (
        "resume the pipeline: `interlock resume orders`",
        'write ready.status = "done" for 2026-03-10',
        "write orders.count >= 1000 for 2026-03-10",
    )


REHEARSAL = DryRun(key=KEY, config_hash="v1", since=NOON, window_ends_at=NOON + HOUR)
RUNS: list[AnyRun | None] = [None, FOREIGN, REHEARSAL, *(a_run(state) for state in State)]
PIPELINES = [
    rules_pipeline(),
    rules_pipeline(cron_schedule()),
    rules_pipeline(a_schedule(trigger=None)),
    rules_pipeline(a_schedule(trigger=READY, exclusion=Exclusion(weekdays=frozenset(range(7))))),
    rules_pipeline(dry_run=True),
]


@pytest.mark.parametrize("pause", [None, Pause("upgrade"), Pause("upgrade", NOON + HOUR)])
@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("run", RUNS)
def test_whatever_is_closed_can_be_opened(run: Run | None, pipeline: Pipeline, pause: Pause | None) -> None:
    explanation: Explanation = explain(a_sight(pipeline, run=run, pause=pause, key=a_key("2026-03-11")))

    for finding in explanation.findings:
        assert bool(finding.changes) >= (finding.passage is GateStatus.CLOSED), finding
        assert not (finding.changes and finding.passage is GateStatus.OPEN), finding
        assert finding.sentence


def test_other_schedules_and_pipelines_are_named_by_their_own_names() -> None:
    key = RunKey(PipelineId("sales"), ScheduleId("cron"), KEY.period)

    assert (
        "interlock rerun sales 2026-03-10 --schedule cron"
        in explain(a_sight(key=key, run=a_run(State.COMPLETED))).needed[0]
    )
