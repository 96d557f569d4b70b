"""The page about limits says what the code does, and its arithmetic is right."""

import re
from dataclasses import astuple
from math import ceil
from pathlib import Path

import pytest

from worker.core.model.pipeline import JobType
from worker.jobs.aws import emr_serverless, glue_runs, step_functions
from worker.jobs.rest import airflow, databricks
from worker.targets.rates import DEFAULT_RATES

PAGE = (Path(__file__).parents[3] / "docs" / "limits.md").read_text(encoding="utf-8")
JOBS, EVERY_S = 10_000, 30
# What one call lists, as the requests ask for it. EMR's 50 is the service's own.
LISTED = {
    JobType.GLUE: glue_runs.PAGE,
    JobType.EMR: 50,
    JobType.EMR_SERVERLESS: emr_serverless.PAGE,
    JobType.STEP_FUNCTION: step_functions.PAGE,
    JobType.DATABRICKS: databricks.PAGE,
    JobType.AIRFLOW: airflow.PAGE,
}


def rows(title: str) -> dict[JobType, list[str]]:
    """The rows of the table under a title, by target."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    found = re.findall(r"^\| `([a-z-]+)` \|(.+)\|$", section, re.MULTILINE)
    return {JobType(kind): [cell.strip() for cell in cells.split("|")] for kind, cells in found}


def first_number(cell: str) -> float:
    found = re.search(r"[\d.]+", cell)
    assert found is not None, cell
    return float(found[0])


@pytest.mark.parametrize("title", ["What providers publish", "What this worker does"])
def test_every_target_has_a_row(title: str) -> None:
    assert set(rows(title)) == set(JobType)


def test_the_rates_of_the_page_are_the_defaults() -> None:
    for kind, (per_second, burst, told, _) in rows("What this worker does").items():
        rate = DEFAULT_RATES[kind]
        lists = re.search(r"of these ([\d.]+) lists", per_second)
        assert first_number(per_second) == rate.per_second
        assert first_number(burst) == rate.burst
        assert (float(lists[1]) if lists else None) == rate.lists_per_second
        assert first_number(told) == LISTED.get(kind, 1)


def test_the_actions_with_a_rate_of_their_own_are_those_of_the_page() -> None:
    listed = rows("Actions with a rate of their own")

    assert set(listed) == {kind for kind, rate in DEFAULT_RATES.items() if rate.starts or rate.stops}
    for kind, cells in listed.items():
        starts, stops = DEFAULT_RATES[kind].starts, DEFAULT_RATES[kind].stops
        assert starts
        assert stops
        assert [first_number(cell) for cell in cells] == [*astuple(starts), *astuple(stops)]


def test_what_ten_thousand_jobs_need_follows_from_the_rates() -> None:
    needs = rows("What 10,000 running jobs need")
    assert set(needs) == set(JobType) - {JobType.LAMBDA}  # of which nothing is polled
    for kind, (spread, calls, takes, seen) in needs.items():
        groups = int(first_number(spread))
        wanted = groups * ceil(JOBS / groups / LISTED.get(kind, 1))
        rate = DEFAULT_RATES[kind]
        round_s = wanted / (rate.lists_per_second or rate.per_second)
        assert (kind, first_number(calls)) == (kind, wanted)
        assert (kind, first_number(takes)) == (kind, round_s)
        assert (kind, first_number(seen)) == (kind, max(EVERY_S, round_s))
    assert f"that is {JOBS // EVERY_S} calls a second" in PAGE


def test_no_default_is_above_what_a_provider_publishes_for_its_smallest_regions() -> None:
    functions, emr = DEFAULT_RATES[JobType.STEP_FUNCTION], DEFAULT_RATES[JobType.EMR]

    assert functions.per_second <= 10  # DescribeExecution
    assert functions.lists_per_second is not None
    assert functions.lists_per_second <= 2  # ListExecutions
    assert functions.burst <= 100
    assert functions.starts
    assert astuple(functions.starts) <= (150, 800)  # StartExecution
    assert functions.stops
    assert astuple(functions.stops) <= (25, 500)  # StopExecution
    assert emr.per_second <= 0.5  # ListSteps, DescribeStep
    assert emr.burst <= 10
