"""The objects of a period as one set: when it is complete, and what its sensor says."""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random

import pytest

from tests.support.clock.manual import NOON
from worker.core.collect.collection import (
    CollectedPart,
    Collection,
    Folded,
    Until,
    add_parts,
    judge,
    list_parts,
    next_check,
    see_manifest,
    see_marker,
    sensor_data,
)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def a_part(number: int, etag: str = "e", sequencer: str = "") -> CollectedPart:
    return CollectedPart(key=f"part-{number}", etag=etag, size=10, sequencer=sequencer)


def folded(
    *parts: CollectedPart, into: Collection | None = None, known: dict[str, CollectedPart] | None = None, now: float = 0
) -> Folded:
    return add_parts(into or Collection(), known or {}, parts, at(now))


def test_the_digest_depends_on_what_is_there_and_on_nothing_else() -> None:
    parts = [a_part(number) for number in range(50)]
    shuffled = [*parts, *parts[:20]]
    Random(1).shuffle(shuffled)

    one, other = folded(*parts).collection, folded(*shuffled).collection

    assert (one.count, one.bytes) == (50, 500)
    assert one == other
    assert one.digest != folded(*parts[1:]).collection.digest
    assert one.digest != folded(*parts[1:], a_part(0, "f")).collection.digest


def test_a_repeat_changes_nothing_and_a_changed_part_changes_the_digest_only() -> None:
    first = folded(a_part(1), a_part(2))
    again = folded(a_part(1), into=first.collection, known=dict(first.parts), now=9)
    changed = folded(a_part(1, "new"), into=first.collection, known=dict(first.parts), now=9)

    assert again == Folded(first.collection)
    assert (changed.collection.count, changed.collection.bytes) == (2, 20)
    assert changed.collection.digest != first.collection.digest
    assert changed.collection.version > first.collection.version
    assert changed.parts["part-1"].version == changed.collection.version
    assert changed.collection.last_at == at(9)


def test_an_older_notification_cannot_replace_newer_content_even_if_the_newer_one_repeated_old_content() -> None:
    first = folded(a_part(1, "a", "01"))
    second = folded(a_part(1, "a", "03"), into=first.collection, known=dict(first.parts))
    third = folded(a_part(1, "b", "02"), into=second.collection, known=dict(second.parts))

    assert second.collection.version == first.collection.version
    assert second.parts["part-1"].sequencer == "03"
    assert third == Folded(second.collection)


def test_a_deleted_part_is_no_longer_counted_and_its_return_restores_the_digest() -> None:
    first = folded(a_part(1, "a", "01"), a_part(2, "b", "01"))
    gone = folded(a_part(1, "", "02"), into=first.collection, known=dict(first.parts))
    known = {**first.parts, **gone.parts}
    back = folded(a_part(1, "a", "03"), into=gone.collection, known=known)

    assert (gone.collection.count, gone.collection.bytes) == (1, 10)
    assert back.collection.digest == first.collection.digest


def test_a_count_is_complete_with_its_last_part_and_stays_complete() -> None:
    until = Until(count=3)
    first = folded(a_part(1), a_part(2))
    two = judge(first.collection, until, at(1))
    three = judge(folded(a_part(3), into=two, known=dict(first.parts), now=2).collection, until, at(2))
    late = judge(folded(a_part(4), into=three, now=3).collection, until, at(3))

    assert sensor_data(two, until) == {
        "complete": False,
        "count": 2,
        "bytes": 20,
        "digest": two.digest,
        "version": two.version,
        "reason": "waits for 1 of 3 parts",
        "firstAt": "2026-03-03T12:00:00Z",
        "lastAt": "2026-03-03T12:00:00Z",
        "missing": 1,
    }
    assert (three.is_complete, three.reason) == (True, "all 3 parts arrived")
    assert sensor_data(three, until)["missing"] == 0
    assert late.is_complete
    assert (late.count, sensor_data(late, until)["missing"]) == (4, 0)
    assert late.digest != three.digest


def test_a_marker_waits_for_parts_whose_notifications_are_on_their_way() -> None:
    until = Until(has_marker=True, settle=timedelta(seconds=5))
    marked = see_marker(folded(a_part(1)).collection, at(1))
    assert next_check(marked, until) == at(6)
    assert not judge(marked, until, at(5.9)).is_complete

    behind = folded(a_part(2), into=marked, now=4).collection

    assert next_check(behind, until) == at(9)
    assert not judge(behind, until, at(8.9)).is_complete
    assert judge(behind, until, at(9)).reason == "the marker object arrived"
    assert see_marker(marked, at(8)) == marked


@pytest.mark.parametrize("marker_first", [True, False])
def test_a_marker_may_come_before_every_part(*, marker_first: bool) -> None:
    until = Until(has_marker=True, settle=timedelta())
    if marker_first:
        collection = folded(a_part(1), into=see_marker(Collection(), at(0)), now=1).collection
    else:
        collection = see_marker(folded(a_part(1)).collection, at(1))

    assert judge(collection, until, at(1)).is_complete
    assert collection.first_at == at(0)


def test_a_manifest_is_complete_once_it_is_loaded_and_nothing_of_it_is_missing() -> None:
    until = Until(has_manifest=True)
    first = folded(a_part(1))
    listed = list_parts(first.collection, first.parts, ["part-1", "part-2"], at(1))
    assert (listed.collection.listed, listed.collection.missing) == (2, 1)
    assert not judge(listed.collection, until, at(1)).is_complete

    loaded = see_manifest(listed.collection, "m1", at(2))
    known = {**first.parts, **listed.parts}
    full = folded(a_part(2), into=loaded, known=known, now=3).collection

    assert judge(loaded, until, at(2)).reason == ""
    assert sensor_data(loaded, until)["reason"] == "waits for 1 of the 2 parts of the manifest"
    assert judge(full, until, at(3)).reason == "all 2 parts of the manifest arrived"
    assert listed.parts["part-1"].version == first.parts["part-1"].version


def test_all_parts_before_the_manifest_is_loaded_are_not_enough() -> None:
    until = Until(has_manifest=True)
    first = folded(a_part(1))
    listed = list_parts(first.collection, first.parts, ["part-1"], at(1))  # the first of several batches

    assert listed.collection.missing == 0
    assert not judge(listed.collection, until, at(1)).is_complete


def test_a_changed_manifest_takes_its_list_back() -> None:
    first = folded(a_part(1))
    listed = list_parts(first.collection, first.parts, ["part-1", "part-2", "part-3"], at(1))
    known = {**first.parts, **listed.parts}
    shorter = list_parts(listed.collection, known, ["part-3"], at(2), listed=False)

    assert (listed.collection.missing, shorter.collection.missing) == (2, 1)
    assert shorter.collection.listed == 2
    assert list_parts(shorter.collection, {**known, **shorter.parts}, ["part-3"], at(3), listed=False).parts == {}


def test_quiet_is_measured_from_the_last_part() -> None:
    until = Until(quiet=timedelta(minutes=10))
    one = folded(a_part(1)).collection
    two = folded(a_part(2), into=one, now=599).collection

    assert next_check(one, until) == at(600)
    assert next_check(two, until) == at(1199)
    assert not judge(two, until, at(1198)).is_complete
    assert judge(two, until, at(1199)).reason == "no part arrived for 10m"


def test_what_is_not_complete_by_the_latest_time_says_so_once_and_may_still_be_completed() -> None:
    until = Until(count=2, latest=timedelta(hours=6))
    one = folded(a_part(1)).collection
    expired = judge(one, until, at(6 * 3600))

    assert next_check(one, until) == at(6 * 3600)
    assert (expired.is_complete, expired.reason) == (
        False,
        "incomplete 6h after the first object: 1 of 2 parts",
    )
    assert next_check(expired, until) is None
    assert judge(expired, until, at(7 * 3600)) == expired
    assert judge(folded(a_part(2), into=expired, now=7 * 3600).collection, until, at(7 * 3600)).is_complete


def test_several_conditions_complete_it_as_soon_as_any_holds() -> None:
    until = Until(count=9, has_marker=True, quiet=timedelta(minutes=10), settle=timedelta())
    one = folded(a_part(1)).collection

    assert sensor_data(one, until)["reason"] == "waits for 8 of 9 parts or the marker object or 10m without a part"
    assert judge(one, until, at(600)).is_complete
    assert judge(see_marker(one, at(2)), until, at(2)).is_complete


def test_a_marker_that_is_written_again_after_the_end_is_no_late_data() -> None:
    done = judge(folded(a_part(1)).collection, Until(count=1), at(0))

    assert see_marker(done, at(5)).version == done.version
    assert see_manifest(done, "m", at(5)).version == done.version


def test_nothing_is_due_for_what_has_not_begun() -> None:
    until = Until(quiet=timedelta(seconds=1), latest=timedelta(seconds=1))

    assert next_check(Collection(), until) is None
    assert judge(Collection(), until, at(99)) == Collection()
    assert replace(Collection(), version=1) != Collection()


@pytest.mark.parametrize(
    ("until", "waits_s"),
    [
        (Until(quiet=timedelta(minutes=5)), 300),
        (Until(has_marker=True, settle=timedelta(seconds=5)), 5),
        (Until(count=9, latest=timedelta(minutes=10)), 600),
    ],
)
def test_a_clock_that_was_set_back_makes_nothing_wait_longer_than_from_now(until: Until, waits_s: float) -> None:
    then = see_marker(folded(a_part(1), now=3600).collection, at(3600))

    seen = judge(then, until, at(0))
    over = judge(seen, until, at(waits_s))

    assert next_check(seen, until) == at(waits_s)
    assert (over.completed_at or over.expired_at) == at(waits_s)


def test_a_small_correction_of_the_clock_changes_nothing() -> None:
    then = folded(a_part(1), now=30).collection

    assert judge(then, Until(quiet=timedelta(minutes=5)), at(0)) == then
