"""Who holds a ledger, and which records are changed."""

import pytest

from worker.core.ledger.hold import LedgerHeld, LedgerHolder, LedgerRecord, RecordChanges, compare, hold

FIRST, SECOND, OTHER = LedgerHolder("a", 1), LedgerHolder("a", 2), LedgerHolder("b", 1)


@pytest.mark.parametrize("takes", [True, False])
def test_the_first_run_the_holder_and_a_newer_attempt_of_it_hold_the_ledger(*, takes: bool) -> None:
    assert hold("l", None, FIRST, takes=takes) == FIRST
    assert hold("l", FIRST, FIRST, takes=takes) == FIRST
    assert hold("l", FIRST, SECOND, takes=takes) == SECOND


@pytest.mark.parametrize("takes", [True, False])
def test_an_older_attempt_never_gets_it_back(*, takes: bool) -> None:
    with pytest.raises(LedgerHeld, match="attempt 2 has taken it over"):
        hold("l", SECOND, FIRST, takes=takes)


def test_another_run_takes_it_only_when_it_begins() -> None:
    assert hold("l", FIRST, OTHER, takes=True) == OTHER
    with pytest.raises(LedgerHeld, match=r"b \(attempt 1\) has taken it over"):
        hold("l", OTHER, SECOND, takes=False)


def test_records_are_compared_with_what_is_known_and_with_each_other() -> None:
    records = [LedgerRecord(*each) for each in (("n", "1"), ("c", "2"), ("u", "1"), ("n", "1"), ("n", "3"))]

    flags, counts = compare(records, {"c": "1", "u": "1"})

    assert flags == [True, True, False, False, True]
    assert counts == RecordChanges(new=1, changed=2, unchanged=2)
