"""The gate of one item of `after`: whether it is passed, and whether it can pass by itself."""

from dataclasses import replace

import pytest

from tests.support.builders.values import KEY, a_run
from worker.core.dependencies.gate import ItemResult, UpstreamRun
from worker.core.model.pipeline import Dependency, PipelineId
from worker.core.run.state import State


@pytest.mark.parametrize(
    ("attempt_of_stuck", "needs_help"), [(1, False), (2, True)], ids=["a first attempt", "a later attempt"]
)
def test_enough_runs_wait_only_for_those_that_change_what_they_would_start_on(
    attempt_of_stuck: int, *, needs_help: bool
) -> None:
    """One run is complete and suffices, one runs again, and one waits for a failed run."""
    keys = [replace(KEY, pipeline=PipelineId(name)) for name in ("complete", "again", "stuck")]
    runs = [a_run(State.COMPLETED), a_run(State.POLLING), a_run(State.EVALUATING)]
    attempts = [1, 2, attempt_of_stuck]
    item = ItemResult(
        dependency=Dependency(pipeline=PipelineId("hours"), at_least=1),
        period=KEY.period,
        runs=tuple(
            UpstreamRun(key=key, run=replace(run, key=key, attempt=attempt))
            for key, run, attempt in zip(keys, runs, attempts, strict=True)
        ),
        needed=1,
    )

    assert not item.is_passed
    assert item.needs_help([keys[2]]) is needs_help
