"""What the states of a Databricks run mean."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from worker.core.run.state import FailureCategory
from worker.jobs.rest.databricks_states import judge_run
from worker.jobs.runner import Failed, Running, Succeeded

PERMANENT, TRANSIENT, TIMEOUT = FailureCategory.PERMANENT, FailureCategory.TRANSIENT, FailureCategory.TIMEOUT
PUBLISHED = json.loads((Path(__file__).parents[3] / "published" / "databricks.json").read_text(encoding="utf-8"))
RUN = PUBLISHED["$defs"]["Run"]["properties"]
LIFE_CYCLES = RUN["state"]["properties"]["life_cycle_state"]["enum"]
RESULTS = RUN["state"]["properties"]["result_state"]["enum"]
STATES = RUN["status"]["properties"]["state"]["enum"]
CODES = RUN["status"]["properties"]["termination_details"]["properties"]["code"]["enum"]


def older(life_cycle: str, result: str = "") -> dict[str, object]:
    """A run as version 2.1 tells it."""
    return {"state": {"life_cycle_state": life_cycle, **({"result_state": result} if result else {})}}


def newer(state: str, code: str = "") -> dict[str, object]:
    """A run as version 2.2 tells it, once `state` is gone."""
    return {"status": {"state": state, **({"termination_details": {"code": code}} if code else {})}}


@pytest.mark.parametrize("life_cycle", LIFE_CYCLES)
def test_every_published_life_cycle_goes_on_or_is_an_end(life_cycle: str) -> None:
    is_over = life_cycle in {"TERMINATED", "SKIPPED", "INTERNAL_ERROR"}

    assert isinstance(judge_run(older(life_cycle)), Failed if is_over else Running)


@pytest.mark.parametrize("state", STATES)
def test_every_published_state_of_the_newer_kind_goes_on_or_is_an_end(state: str) -> None:
    assert isinstance(judge_run(newer(state)), Failed if state == "TERMINATED" else Running)


@pytest.mark.parametrize("result", RESULTS)
def test_only_success_is_success(result: str) -> None:
    assert isinstance(judge_run(older("TERMINATED", result)), Succeeded) == (result == "SUCCESS")


@pytest.mark.parametrize("code", CODES)
def test_only_success_is_success_by_code(code: str) -> None:
    assert isinstance(judge_run(newer("TERMINATED", code)), Succeeded) == (code == "SUCCESS")


@pytest.mark.parametrize(
    ("run", "category"),
    [
        (older("TERMINATED", "FAILED"), TRANSIENT),
        (older("TERMINATED", "CANCELED"), TRANSIENT),
        (older("TERMINATED", "SUCCESS_WITH_FAILURES"), TRANSIENT),
        (older("TERMINATED", "TIMEDOUT"), TIMEOUT),
        (older("INTERNAL_ERROR", "TIMEDOUT"), TIMEOUT),
        (older("INTERNAL_ERROR", "FAILED"), TRANSIENT),
        (older("SKIPPED"), PERMANENT),
        (older("SKIPPED", "MAXIMUM_CONCURRENT_RUNS_REACHED"), TRANSIENT),
        (newer("TERMINATED", "RUN_EXECUTION_ERROR"), TRANSIENT),
        (newer("TERMINATED", "CLUSTER_ERROR"), TRANSIENT),
        (newer("TERMINATED", "MAX_CONCURRENT_RUNS_EXCEEDED"), TRANSIENT),
        ({**older("SKIPPED"), **newer("TERMINATED", "MAX_JOB_QUEUE_SIZE_EXCEEDED")}, TRANSIENT),
        ({**older("SKIPPED"), **newer("TERMINATED", "WORKSPACE_RUN_LIMIT_EXCEEDED")}, TRANSIENT),
        (newer("TERMINATED", "INVALID_RUN_CONFIGURATION"), PERMANENT),
        (newer("TERMINATED", "UNAUTHORIZED_ERROR"), PERMANENT),
        (newer("TERMINATED", "SKIPPED"), PERMANENT),
        ({**older("TERMINATED", "TIMEDOUT"), **newer("TERMINATED", "CANCELED")}, TIMEOUT),
        ({**older("TERMINATED", "FAILED"), **newer("TERMINATED", "RESOURCE_NOT_FOUND")}, PERMANENT),
        ({**older("TERMINATED", "SUCCESS"), **newer("TERMINATED", "SUCCESS_WITH_FAILURES")}, TRANSIENT),
    ],
)
def test_a_failure_has_the_category_that_its_words_give_it(run: dict[str, object], category: FailureCategory) -> None:
    status = judge_run(run)

    assert isinstance(status, Failed)
    assert status.category is category


def test_an_end_has_its_time_and_a_failure_its_message() -> None:
    state = {"life_cycle_state": "TERMINATED", "result_state": "FAILED", "state_message": "Task etl failed."}

    failed = judge_run({"state": state, "end_time": 1_772_539_200_250})

    at = datetime(2026, 3, 3, 12, 0, 0, 250_000, tzinfo=UTC)
    assert failed == Failed(TRANSIENT, "TERMINATED/FAILED: Task etl failed.", at)
    assert judge_run({**older("TERMINATED", "SUCCESS"), "end_time": 0}) == Succeeded(None)


@pytest.mark.parametrize("end_time", [10**18, -5, "soon", True, None])
def test_a_time_that_is_none_is_left_out(end_time: object) -> None:
    assert judge_run({**older("TERMINATED", "SUCCESS"), "end_time": end_time}) == Succeeded(None)


@pytest.mark.parametrize("run", [{}, {"state": "TERMINATED"}, {"state": {"life_cycle_state": 5}}, {"status": []}])
def test_a_run_without_a_state_is_not_over(run: dict[str, object]) -> None:
    assert judge_run(run) == Running("")
