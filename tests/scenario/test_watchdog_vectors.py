"""The watchdog's vectors on the real checks: each is met, or deviates as listed."""

import json
import re
from pathlib import Path

import pytest

from tests.vectors.scenarios import Case
from tests.vectors.watchdog import play_check, play_watchdog, wanted_of_check, wanted_of_watchdog

VECTORS = Path(__file__).parent.parent / "vectors"
CHECKS = {"missedSchedule", "missedInclusion", "triggerDeadline"}
# The rows of the last section of DEVIATIONS.md, which is about what the checks do.
ROW = re.compile(r"^\| `(?P<id>[^`]+)` \| (?P<why>.+) \|$", re.MULTILINE)


def load(name: str) -> list[Case]:
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


SCENARIOS = [case for case in load("scenarios") if "watchdogCheck" in case["when"]]
SCHEDULES = [case for case in load("schedule") if case["kind"] in CHECKS]
DEVIATIONS = dict(ROW.findall((VECTORS / "DEVIATIONS.md").read_text(encoding="utf-8")))


@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: case["id"])
def test_a_pass_leads_to_what_is_wanted_or_deviates_as_listed(case: Case) -> None:
    check(case, play_watchdog(case), wanted_of_watchdog(case))


@pytest.mark.parametrize("case", SCHEDULES, ids=lambda case: case["id"])
def test_a_check_tells_what_is_wanted_or_deviates_as_listed(case: Case) -> None:
    check(case, play_check(case), wanted_of_check(case))


def check(case: Case, got: object, accepted: object) -> None:
    reason = DEVIATIONS.get(case["id"])
    if reason is None:
        assert got == accepted
    else:
        assert got != accepted, f"listed as deviating ({reason}), but it is met: remove it from the list"


def test_every_listed_deviation_names_a_case() -> None:
    assert set(DEVIATIONS) <= {case["id"] for case in (*SCENARIOS, *SCHEDULES)}
    assert len(SCENARIOS) == 22
    assert len(SCHEDULES) == 33
