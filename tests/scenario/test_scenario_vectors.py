"""The scenarios on the real router and engine: each is met, or deviates as listed.

Those of the watchdog wait for the scheduler.
"""

import json
from pathlib import Path

import pytest

from tests.vectors.scenarios import Case, play, wanted
from tests.vectors.steps import play_step, wanted_of_step

VECTORS = Path(__file__).parent.parent / "vectors" / "scenarios.json"
CASES: list[Case] = json.loads(VECTORS.read_text(encoding="utf-8"))
RECORDS = [case for case in CASES if "record" in case["when"]]
STEPS = [case for case in CASES if "invoke" in case["when"]]

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
    "ex-check-terminal-from-log": "row `newest-row logic`: what others log is a fact when they write it, not at a poll",
    "ex-validation-exhausted": "quirk; row `validation exhausted`",
    "ex-trigger-exhausted": "quirk; row `trigger exhausted`",
    "sla-fire-suppressed-completed": "row `SLA verdict`: of a run that is done it is told that the deadline was met",
    "sla-fire-suppressed-failed": "quirk; row `SLA verdict`: a failure does not silence its breach",
    "sla-fire-suppressed-by-log": "quirk; row `newest-row logic`",
    "sla-cancel-failed-run-still-met": "quirk; row `SLA verdict`: only a success meets a deadline",
    "dry-sla-met": "row `SLA verdict`: a daily deadline without cron is that of the day after the data",
}


@pytest.mark.parametrize("case", RECORDS, ids=lambda case: case["id"])
def test_a_changed_row_leads_to_what_is_wanted_or_deviates_as_listed(case: Case) -> None:
    check(case, play(case), wanted(case))


@pytest.mark.parametrize("case", STEPS, ids=lambda case: case["id"])
def test_a_step_leads_to_what_is_wanted_or_deviates_as_listed(case: Case) -> None:
    check(case, play_step(case), wanted_of_step(case))


def check(case: Case, got: object, accepted: object) -> None:
    reason = DEVIATIONS.get(case["id"])
    if reason is None:
        assert got == accepted
    else:
        assert got != accepted, f"listed as deviating ({reason}), but it is met: remove it from the list"


def test_every_listed_deviation_names_a_scenario() -> None:
    assert set(DEVIATIONS) <= {case["id"] for case in (*RECORDS, *STEPS)}
