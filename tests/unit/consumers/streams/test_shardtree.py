"""The tree of shards: when one may be read, what is missing, and what is waited for in vain."""

from dataclasses import replace

from consumers.streams.shard_tree import audit, is_ready, leaves
from consumers.streams.source import Shard
from worker.store.repos.leases import Lease, LeaseStatus


def shard(name: str, *parents: str) -> Shard:
    return Shard(name, frozenset(parents))


def lease(name: str, *parents: str, epoch: int = 0) -> Lease:
    return Lease(stream="s", shard=name, parents=frozenset(parents), epoch=epoch)


def done(name: str, *parents: str, children: frozenset[str] = frozenset()) -> Lease:
    return replace(lease(name, *parents, epoch=1), status=LeaseStatus.DONE, children=children)


def ready(*leases: Lease) -> set[str]:
    siblings = {each.shard: each for each in leases}
    return {each.shard for each in leases if is_ready(each, siblings)}


# --- what may be read -------------------------------------------------------------------------------------------------


def test_a_child_is_read_after_its_parent() -> None:
    assert ready(lease("1"), lease("2", "1")) == {"1"}
    assert ready(done("1"), lease("2", "1")) == {"2"}


def test_a_child_of_two_is_read_after_both() -> None:
    assert ready(done("1"), lease("2"), lease("3", "1", "2")) == {"2"}
    assert ready(done("1"), done("2"), lease("3", "1", "2")) == {"3"}


def test_a_shard_that_has_ended_and_waits_for_its_children_is_held_and_they_are_not() -> None:
    assert ready(replace(lease("1", epoch=1), status=LeaseStatus.ENDED), lease("2", "1")) == {"1"}


def test_a_parent_without_a_lease_is_waited_for() -> None:
    assert ready(lease("2", "1")) == set()


def test_what_was_begun_once_waits_for_nobody() -> None:
    assert ready(lease("2", "1", epoch=1)) == {"2"}
    assert ready(replace(lease("2", "1"), checkpoint="0007")) == {"2"}


# --- what is missing --------------------------------------------------------------------------------------------------


def test_every_shard_of_a_stream_that_nobody_read_gets_a_lease_that_knows_its_parents() -> None:
    found = audit("s", [shard("1"), shard("2", "1")], [])

    assert found.missing == [lease("1"), lease("2", "1")]
    assert found.severed == []


def test_a_parent_that_was_trimmed_is_not_waited_for() -> None:
    assert audit("s", [shard("2", "1")], []).missing == [lease("2")]


def test_a_parent_that_was_trimmed_while_its_child_waited_is_not_waited_for_any_more() -> None:
    waiting = lease("3", "1", "2")

    found = audit("s", [shard("3", "1", "2")], [done("1"), waiting])

    assert found.severed == [(waiting, frozenset({"2"}))]


def test_a_parent_whose_lease_is_gone_and_that_is_still_listed_is_read_again_unless_a_child_has_begun() -> None:
    listed = [shard("1"), shard("2", "1")]

    assert audit("s", listed, [lease("2", "1")]).missing == [lease("1")]
    assert audit("s", listed, [lease("2", "1", epoch=1)]).missing == []


def test_a_shard_whose_grandchild_has_begun_is_not_read_again() -> None:
    listed = [shard("1"), shard("2", "1"), shard("3", "2")]

    assert audit("s", listed, [lease("3", "2", epoch=4)]).missing == []


def test_a_child_whose_sibling_has_begun_does_not_wait_for_their_parent_that_was_cleared_away() -> None:
    listed = [shard("1"), shard("2", "1"), shard("3", "1")]

    found = audit("s", listed, [lease("2", "1", epoch=1)])

    assert found.missing == [lease("3")]


def test_a_finished_lease_is_cleared_away_once_its_shard_is_not_listed() -> None:
    old = done("1", children=frozenset({"2"}))

    assert audit("s", [shard("1"), shard("2", "1")], [old, lease("2", "1")]).finished == []
    assert audit("s", [shard("2", "1")], [old, lease("2", "1")]).finished == [old]
    assert audit("s", [], [done("1")]).finished == [], "nothing else would say that it was read"


def test_leaves_are_those_that_nothing_comes_after() -> None:
    assert leaves([shard("1"), shard("2", "1"), shard("3", "2"), shard("4", "2"), shard("5")]) == [
        shard("3", "2"),
        shard("4", "2"),
        shard("5"),
    ]
