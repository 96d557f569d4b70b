"""The scenarios that begin with a changed row, on the real router and engine: each is met, or deviates as listed."""

import json
from pathlib import Path

import pytest

from tests.vectors.scenarios import Case, play, wanted

VECTORS = Path(__file__).parent.parent / "vectors" / "scenarios.json"
CASES: list[Case] = json.loads(VECTORS.read_text(encoding="utf-8"))
RECORDS = [case for case in CASES if "record" in case["when"]]

# By row of `docs/differences.md`, or `quirk` where the vector itself documents a defect.
DEVIATIONS = {
    "sensor-prefix-overmatch": "quirk; row `trigger and post-run key`: a key that only begins so is another sensor",
    "sensor-late-data-second-time-silent": "quirk; row `newest-row logic`: the log does not silence later arrivals",
    "config-record-invalidates-cache": "a configuration that cannot be understood is told, not only forgotten",
    "job-fail-lock-row-missing": "quirk; no budget is charged for a run that does not exist",
    "rerun-custom-reason-own-budget": "quirk; there is one budget for what people ask for, whatever they call it",
    "rerun-success-iso-timestamp-rejected": "quirk; an ISO time is a time",
    "rerun-while-running": "quirk; row `rerun of a RUNNING run`",
    "rerun-clears-baseline": "row `baseline for drift`: the next start replaces it; producers' rows stay",
    "post-same-key-as-trigger-is-late-data": "quirk; row `trigger and post-run key`: a key that is both goes to both",
    "dry-sla-met": "row `SLA verdict`: a daily deadline without cron is that of the day after the data",
}


@pytest.mark.parametrize("case", RECORDS, ids=lambda case: case["id"])
def test_a_scenario_is_met_or_deviates_as_listed(case: Case) -> None:
    reason = DEVIATIONS.get(case["id"])

    if reason is None:
        assert play(case) == wanted(case)
    else:
        assert play(case) != wanted(case), f"listed as deviating ({reason}), but it is met: remove it from the list"


def test_every_listed_deviation_names_a_scenario() -> None:
    assert set(DEVIATIONS) <= {case["id"] for case in RECORDS}
