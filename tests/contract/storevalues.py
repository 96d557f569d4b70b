"""What the tests of the stores put in: only what a test says matters differs from these."""

import uuid
from datetime import UTC, datetime, timedelta

from worker.core.keys import RunKey
from worker.core.periods import Period
from worker.core.pipeline import PipelineId, ScheduleId
from worker.core.run import Run, State
from worker.core.slawatch import SlaWatch

NOW = datetime(2026, 3, 3, 12, 0, 0, tzinfo=UTC)


def a_name() -> str:
    """A name no other test has: backends may keep their tables from one test to the next."""
    return uuid.uuid4().hex


def a_pipeline() -> PipelineId:
    return PipelineId(f"p-{a_name()}")


def a_period(text: str = "2026-03-03") -> Period:
    period = Period.parse(text)
    assert period is not None
    return period


def run_key_of(pipeline: PipelineId | None = None, period: str = "2026-03-03") -> RunKey:
    return RunKey(pipeline or a_pipeline(), ScheduleId("cron"), a_period(period))


def a_run(state: State = State.EVALUATING) -> Run:
    return Run(
        key=run_key_of(),
        run_id=a_name(),
        state=state,
        config_hash="c1",
        created_at=NOW - timedelta(hours=1),
        since=NOW,
        timeout_at=NOW + timedelta(hours=3),
    )


def a_watch(key: RunKey) -> SlaWatch:
    return SlaWatch(
        key=key,
        config_hash="c1",
        since=NOW - timedelta(hours=1),
        warning_at=NOW + timedelta(minutes=30),
        breach_at=NOW + timedelta(hours=1),
    )
