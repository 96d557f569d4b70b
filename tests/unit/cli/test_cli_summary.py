"""`interlock summary put`: from inside a command job, and from elsewhere with the run's name."""

import os
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import Result

from tests.support.builders.cli_runs import PERIOD, a_store, a_stored_run, in_store, key_of, version_hash
from tests.support.builders.command_line import interlock, records
from worker.core.run.state import Run, State
from worker.store.repos.runs import Runs
from worker.store.table import Tables

JOB = {"INTERLOCK_PIPELINE": "orders", "INTERLOCK_SCHEDULE": "stream", "INTERLOCK_PERIOD": PERIOD}


@pytest.fixture(autouse=True)
def running(here: Path) -> None:
    a_store(here)

    async def save(tables: Tables) -> Run:
        return await Runs(tables).save(a_stored_run(State.POLLING, await version_hash(tables)))

    in_store(save)


def put(*words: str, **environment: str) -> Result:
    with patch.dict(os.environ, environment):
        return interlock("summary", "put", *words)


def test_inside_a_command_job_the_run_is_known_and_the_summary_is_shown_with_it() -> None:
    first = put("seen=1_200", "processed=3", **JOB, INTERLOCK_ATTEMPT="1")
    more = put("errored=0", "--json", **JOB, INTERLOCK_ATTEMPT="1")

    assert first.stdout == f"orders/stream/{PERIOD}: 1,200 seen, 3 processed\n"
    [record] = records(more.stdout)
    assert (record["type"], record["summary"]) == ("run-summary", {"seen": 1200, "processed": 3, "errored": 0})
    shown, *_ = records(interlock("runs", "show", "orders", PERIOD, "--json").stdout)
    assert shown["summary"] == {"seen": 1200, "processed": 3, "errored": 0}
    assert "1,200 seen, 3 processed, 0 errored" in interlock("history", "orders", PERIOD).stdout
    assert "1,200 seen, 3 processed, 0 errored" in interlock("explain", "orders", PERIOD).stdout


def test_an_older_attempt_and_an_unknown_run_are_rejected() -> None:
    old = put("seen=1", **JOB, INTERLOCK_ATTEMPT="7")
    unknown = put("seen=1", "--run", f"nobody/stream/{PERIOD}")

    assert (old.exit_code, unknown.exit_code) == (1, 1)
    assert "attempt 7 of" in old.stderr
    assert f"there is no run nobody/stream/{PERIOD}" in unknown.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["seen=1"], "name the run with --run"),
        (["seen=1", "--run", "orders"], "names no run"),
        (["rows=1", "--run", str(key_of())], "'rows=1' is no count"),
        (["seen", "--run", str(key_of())], "'seen' is no count"),
        (["seen=-1", "--run", str(key_of())], "seen must be a whole number"),
        (["seen=1.5", "--run", str(key_of())], "seen must be a whole number"),
        (["seen=10000000000000000", "--run", str(key_of())], "between 0 and 1,000,000,000,000,000"),
        (["seen=1", "seen=2", "--run", str(key_of())], "seen is given twice"),
    ],
)
def test_words_that_are_no_counts_and_names_that_are_no_runs_are_wrong_usage(words: list[str], why: str) -> None:
    result = put(*words)

    assert result.exit_code == 2
    assert why in result.stderr
