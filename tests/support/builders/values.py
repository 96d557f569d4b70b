"""Values for tests: each builder gives a sound one, so that a test names only what matters to it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from worker.core.model.checks import Operator
from worker.core.model.deadlines import SlaTimes
from worker.core.model.keys import RunKey, SessionId
from worker.core.model.pipeline import (
    Job,
    JobType,
    Pipeline,
    PipelineId,
    PostRun,
    Schedule,
    ScheduleId,
    Trigger,
)
from worker.core.model.rules import Group, Rule
from worker.core.run.facts import NewRun
from worker.core.run.state import AfterStop, Outcome, Run, StartStep, State
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
ME = SessionId("me")
HANDLE = {"id": "job-1"}
BIRTH = NewRun(run_id="run-1", config_hash="v1")
OLD, NEW = "hash-of-old-content", "hash-of-new-content"


def a_key(period: str = "2026-03-10", pipeline: str = "orders") -> RunKey:
    parsed = Period.parse(period)
    assert parsed is not None
    return RunKey(PipelineId(pipeline), ScheduleId("stream"), parsed)


KEY = a_key()


def a_schedule(**changes: object) -> Schedule:
    rule = Rule(key="orders", check=Operator.EXISTS)
    return replace(Schedule(id=ScheduleId("stream"), trigger=Trigger(rule=rule)), **changes)


def a_job(**changes: object) -> Job:
    return replace(Job(type=JobType.COMMAND, config={}), **changes)


def a_post_run(**changes: object) -> PostRun:
    return replace(PostRun(rules=Group(members=(Rule(key="out", check=Operator.EXISTS),))), **changes)


def a_pipeline(
    *, schedule: Schedule | None = None, job: Mapping[str, object] | None = None, **changes: object
) -> Pipeline:
    """`job` names what differs from an ordinary job."""
    pipeline = Pipeline(
        id=PipelineId("orders"),
        schedules=(schedule or a_schedule(),),
        rules=Group(members=(Rule(key="orders", check=Operator.EXISTS),)),
        job=a_job(**(job or {})),
    )
    return replace(pipeline, **changes)


def a_run(state: State = State.EVALUATING, **changes: object) -> Run:
    """A run that entered its state at noon, with all that the state implies."""
    run = Run(
        key=KEY,
        run_id="run-1",
        version=1,
        state=state,
        config_hash="v1",
        created_at=NOON,
        since=NOON,
        timeout_at=NOON + 4 * HOUR,
        late_reported=OLD,
    )
    return replace(replace(run, **_IMPLIED[state]), **changes)


_STARTED: Mapping[str, object] = {"started_on": {"orders": OLD}}
_IMPLIED: Mapping[State, Mapping[str, object]] = {
    State.EVALUATING: {"window_ends_at": NOON + HOUR},
    State.TRIGGERING: {**_STARTED, "start_step": StartStep.SENT, "starter": ME},
    State.POLLING: {**_STARTED, "job": HANDLE, "window_ends_at": NOON + HOUR},
    State.STOPPING: {
        **_STARTED,
        "job": HANDLE,
        "window_ends_at": NOON + 10 * MINUTE,
        "after_stop": AfterStop.RETRY,
        "reason": "the poll window is over",
    },
    State.COMPLETED: {**_STARTED, "job": HANDLE, "outcome": Outcome.SUCCEEDED},
    State.FAILED_FINAL: {**_STARTED, "job": HANDLE, "outcome": Outcome.FAILED, "reason": "out of memory"},
}


def a_watch(**changes: object) -> SlaWatch:
    """A watch that warns at one and breaches at two."""
    times = SlaTimes(NOON + HOUR, NOON + 2 * HOUR)
    watch = SlaWatch(
        key=KEY, version=1, config_hash="v1", since=NOON, warning_at=times.warning_at, breach_at=times.breach_at
    )
    return replace(watch, **changes)
