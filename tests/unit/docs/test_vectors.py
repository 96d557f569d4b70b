"""Every vector is a test; every deviation is listed, and a listed one must really deviate."""

import json
import re
from pathlib import Path

import pytest

from tests.vectors.mapping import TRANSLATORS, Case, is_elsewhere

VECTORS = Path(__file__).parents[2] / "vectors"
ROW = re.compile(r"^\| (?P<file>[a-z]+) \| `(?P<id>[^`]+)` \| (?P<why>.+) \|$")


def load(name: str) -> list[Case]:
    cases: list[Case] = json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))
    return [case for case in cases if not is_elsewhere(case)]


def read_deviations() -> dict[tuple[str, str], str]:
    lines = (VECTORS / "DEVIATIONS.md").read_text(encoding="utf-8").splitlines()
    rows = [match for line in lines if (match := ROW.match(line))]
    return {(row["file"], row["id"]): row["why"] for row in rows}


DEVIATIONS = read_deviations()
CASES = [pytest.param(name, case, id=f"{name}:{case['id']}") for name in TRANSLATORS for case in load(name)]


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_vector_is_met_or_deviates_as_listed(name: str, case: Case) -> None:
    outcome = TRANSLATORS[name](case)

    reason = DEVIATIONS.get((name, case["id"]))
    if reason is None:
        assert outcome.is_met, f"got {outcome.got}, accepted {outcome.accepted}"
    else:
        assert not outcome.is_met, f"listed as deviating ({reason}), but it meets the vector: remove it from the list"


def test_every_listed_deviation_names_a_case() -> None:
    known = {(name, case["id"]) for name in TRANSLATORS for case in load(name)}

    assert set(DEVIATIONS) <= known
