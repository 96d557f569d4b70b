"""The last result of a probe: when it is valid, when it is stored, and what is said if there is none."""

from datetime import UTC, datetime, timedelta

import pytest

from worker.core.model.probes import Probe, ProbeType
from worker.core.probes.trait import Observation, ProbeAnswer, ProbeResult, ProbeUnknown, Trait, absence, observe

NOON = datetime(2026, 3, 3, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PROBE = Probe(key="rates", type=ProbeType.HTTP, config={}, every=5 * MINUTE, ttl=30 * MINUTE)
PASS, FAIL = ProbeResult({"status": "PASS"}), ProbeResult({"status": "FAIL"})
DOWN = ProbeUnknown(kind="http-503", reason="the response was 503", is_down=True)
KNOWN = observe(Trait(key="rates"), PROBE, PASS, NOON).trait


def after(answer: ProbeAnswer, minutes: float, before: Trait = KNOWN) -> Observation:
    return observe(before, PROBE, answer, NOON + minutes * MINUTE)


@pytest.mark.parametrize(
    ("answer", "minutes", "must_store", "is_changed"),
    [
        (PASS, 5, False, False),
        (FAIL, 5, True, True),
        (PASS, 15, True, False),  # half of the ttl has passed
        (PASS, 31, True, True),  # it had expired
        (DOWN, 5, True, False),
    ],
)
def test_a_result_is_stored_if_it_changes_or_half_of_its_ttl_has_passed(
    answer: ProbeAnswer, minutes: float, must_store: bool, is_changed: bool
) -> None:
    seen = after(answer, minutes)

    assert (seen.must_store, seen.is_changed) == (must_store, is_changed)


def test_a_failure_leaves_the_last_result_valid_until_its_ttl_is_over() -> None:
    failing = after(DOWN, 5).trait

    assert failing.data == PASS.data
    assert failing.is_valid(NOON + 29 * MINUTE)
    assert not failing.is_valid(NOON + 30 * MINUTE)
    assert not after(DOWN, 10, failing).must_store  # the same failure is no news
    assert after(DOWN, 10, failing).trait.stale_at == NOON + 30 * MINUTE


def test_another_failure_is_stored_with_the_time_since_which_requests_fail() -> None:
    other = after(ProbeUnknown(kind="timeout", reason="no response within 30s"), 10, after(DOWN, 5).trait)

    assert other.must_store
    assert other.trait.failure is not None
    assert (other.trait.failure.kind, other.trait.failure.since) == ("timeout", NOON + 5 * MINUTE)


def test_a_recovery_is_news_although_the_content_is_the_same() -> None:
    recovered = after(PASS, 10, after(DOWN, 5).trait)

    assert recovered.is_changed
    assert recovered.trait.failure is None
    assert recovered.trait.changed_at == NOON


def test_what_is_missing_is_said_with_its_age_and_the_failure() -> None:
    now = NOON + 42 * MINUTE

    assert absence(PROBE, None, now) == "probe rates has no result yet"
    assert absence(PROBE, KNOWN, NOON) == ""
    assert absence(PROBE, KNOWN, now) == "probe rates has no current result: stale since 12m"
    assert absence(PROBE, after(DOWN, 5).trait, now) == (
        "probe rates has no current result: stale since 12m; it has failed since 37m: the response was 503"
    )


def test_a_result_from_before_the_clock_was_set_back_counts_as_missing_until_the_next_one() -> None:
    back = -45.0

    assert not KNOWN.is_valid(NOON + back * MINUTE)
    assert "the clock was set back" in absence(PROBE, KNOWN, NOON + back * MINUTE)
    again = after(PASS, back)
    assert (again.must_store, again.is_changed) == (True, True)
    assert again.trait.stale_at == NOON + (back + 30) * MINUTE
    assert KNOWN.is_valid(NOON - timedelta(seconds=30))  # a normal correction of the clock
