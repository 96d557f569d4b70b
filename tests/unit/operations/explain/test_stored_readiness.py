"""The stored readiness, compared with what an explanation computes."""

import pytest

from tests.support.builders.values import KEY, NOON
from worker.core.model.readiness import Readiness, ReadinessVerdict
from worker.core.model.rule_report import unmet
from worker.operations.explain.explanation import Explanation, Gate, is_closed, is_open
from worker.operations.explain.stored_readiness import compare_readiness, readiness_record

READY = Readiness(key=KEY, version=1, verdict=ReadinessVerdict.READY, changed_at=NOON)
WAITING = Readiness(
    key=KEY, version=1, verdict=ReadinessVerdict.WAITING, changed_at=NOON, rules=(unmet("a is missing", "a"),)
)


def explained(*, holds: bool, state: str = "EVALUATING") -> Explanation:
    rules = is_open(Gate.RULES, "all hold") if holds else is_closed(Gate.RULES, "a is missing", "write a")
    return Explanation(key=KEY, name="orders", findings=(rules,), state=state)


@pytest.mark.parametrize(
    ("stored", "holds", "differs"),
    [(READY, True, False), (READY, False, True), (WAITING, True, True), (WAITING, False, False)],
)
def test_a_waiting_run_differs_if_the_verdicts_do(stored: Readiness, holds: bool, differs: bool) -> None:
    compared = compare_readiness(explained(holds=holds), stored)

    assert compared is not None
    assert compared.differs is differs
    assert bool(compared.sentence) is differs
    assert compared.record["differs"] is differs


def test_a_run_that_no_longer_waits_and_another_run_do_not_differ() -> None:
    ended = compare_readiness(explained(holds=False, state="COMPLETED"), READY)

    assert ended is not None
    assert not ended.differs
    assert compare_readiness(explained(holds=True), None) is None


def test_the_record_has_every_rule() -> None:
    assert readiness_record(WAITING)["rules"] == [{"holds": False, "key": "a", "reason": "a is missing"}]
    assert readiness_record(WAITING)["verdict"] == "waiting"
