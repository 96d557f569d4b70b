"""What a job counted, wherever it says so."""

import pytest

from worker.core.model.summaries import summary_of, summary_text
from worker.core.model.values import Json

COUNTS: dict[str, Json] = {"seen": 120, "processed": 3, "skipped": 117, "errored": 0}


@pytest.mark.parametrize(
    "outputs",
    [
        {"exitCode": 0, "lastLine": '{"seen": 120, "processed": 3, "skipped": 117, "errored": 0, "took": "3s"}'},
        {"exitCode": 0, "lastLine": '{"summary": {"seen": 120, "processed": 3, "skipped": 117, "errored": 0}}'},
        {"result": {**COUNTS, "other": "x"}},
        {"result": {"summary": COUNTS}},
        {"summary": COUNTS},
        COUNTS,
    ],
)
def test_a_summary_is_found_where_the_job_says_it(outputs: dict[str, Json]) -> None:
    found = summary_of(outputs)

    assert found == COUNTS
    assert found is not None
    assert summary_text(found) == "120 seen, 3 processed, 117 skipped, 0 errored"


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        {},
        {"lastLine": "done"},
        {"lastLine": "{"},
        {"lastLine": "[1]"},
        {"lastLine": '{"rows": 3}'},
        {"result": {"seen": True}},
        {"result": {"seen": -1}},
        {"result": {"seen": "3"}},
        {"result": {"seen": 10**16}},
        {"result": 3},
    ],
)
def test_anything_else_is_none(outputs: dict[str, Json] | None) -> None:
    assert summary_of(outputs) is None
