"""The lease protocol, every history of a small world, and the mistakes that the check must find.

Three sessions share two shards, one of which ends. Sessions stop, requests come late or twice, replies are lost. All
faults at once are too many histories for every run: each pair of them is explored here with a shard that has one child,
and each of them alone with one that is split.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.modelcheck.explorer import Violation, explore
from tests.modelcheck.leasemodel import Model
from tests.modelcheck.leaseworld import CHILD, OTHER, PARENT, SHORT, SPLIT, Luck
from tests.modelcheck.modeltable import Mutate
from tests.modelcheck.mutations import drop, keep_epoch, split

STATES_MAX = 60_000
STOP_AND_MISHAP = Luck(stops=1, mishaps=1, asks=0, releases=0)
STOP_AND_MOVE = Luck(stops=1, mishaps=0, asks=1, releases=0)
MISHAP_AND_MOVE = Luck(stops=0, mishaps=1, asks=1, releases=0)
STOP_AND_RELEASE = Luck(stops=1, mishaps=0, asks=0, releases=1)
MISHAP_AND_RELEASE = Luck(stops=0, mishaps=1, asks=0, releases=1)


@pytest.mark.parametrize(
    ("luck", "is_audited"),
    [
        pytest.param(STOP_AND_MISHAP, False, id="stop, mishap"),
        pytest.param(STOP_AND_MOVE, True, id="stop, move"),
        pytest.param(MISHAP_AND_MOVE, False, id="mishap, move"),
        pytest.param(STOP_AND_RELEASE, True, id="stop, release"),
        pytest.param(MISHAP_AND_RELEASE, False, id="mishap, release"),
    ],
)
def test_every_history_keeps_every_promise_and_can_come_to_its_end(luck: Luck, is_audited: bool) -> None:
    model = Model(luck=luck, is_audited=is_audited)

    explored = explore(model.start(), model.steps, model.is_final, states_max=STATES_MAX)

    assert explored.states > 1_000


@pytest.mark.parametrize(
    ("luck", "is_audited"),
    [
        pytest.param(Luck(1, 0, 0, 0), False, id="stop"),
        pytest.param(Luck(0, 1, 0, 0), False, id="mishap"),
        pytest.param(Luck(0, 0, 1, 0), True, id="move"),
        pytest.param(Luck(0, 0, 0, 1), True, id="release"),
    ],
)
def test_a_split_shard_keeps_every_promise_too(luck: Luck, is_audited: bool) -> None:
    model = Model(luck=luck, is_audited=is_audited, records=SPLIT)

    explored = explore(model.start(), model.steps, model.is_final, states_max=STATES_MAX)

    assert explored.states > 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    promise: str  # that it breaks
    luck: Luck
    mutate: Mapping[str, Mutate] = field(default_factory=dict[str, Mutate])
    kills_the_living: bool = False
    saves_before_effect: bool = False
    ignores_parents: bool = False
    is_audited: bool = False
    records: Mapping[str, int] = field(default_factory=lambda: SHORT)


STOLEN = "one who does not own it changed it"
EPOCH = "an epoch went back, or did not rise with a new owner"
UNFENCED = drop("owner", "epoch")

MISTAKES = {
    "others end a session before it has stopped by itself": Mistake(
        promise="two sessions hold one lease", luck=Luck(0, 0, 0, 0), kills_the_living=True
    ),
    "the checkpoint is written before the effect": Mistake(
        promise="a checkpoint covers what is not done", luck=Luck(0, 0, 0, 0), saves_before_effect=True
    ),
    "the end of a shard and its children are two commits": Mistake(
        promise="a shard is done and its children are nowhere", luck=Luck(0, 0, 0, 0), mutate={"finish": split}
    ),
    "the end of a shard and its two children are three commits": Mistake(
        promise="a shard is done and its children are nowhere",
        luck=Luck(0, 0, 0, 0),
        mutate={"finish": split},
        records=SPLIT,
    ),
    "a child does not wait for its parent": Mistake(
        promise="a child is read before its parent is done",
        luck=Luck(0, 0, 0, 0),
        ignores_parents=True,
        is_audited=True,
    ),
    "a child that is there already learns how old it is by another commit": Mistake(
        promise="a child may be read and nothing says how old it is",
        luck=Luck(0, 0, 0, 0),
        mutate={"finish": split},
        is_audited=True,
    ),
    "a free lease is taken whatever its epoch": Mistake(
        promise=EPOCH, luck=MISHAP_AND_RELEASE, mutate={"take_free": drop("epoch")}
    ),
    "a free lease is taken by whoever comes": Mistake(
        promise=EPOCH, luck=MISHAP_AND_MOVE, mutate={"take_free": UNFENCED}
    ),
    "a dead one's lease is taken whoever owns it now": Mistake(
        promise=EPOCH, luck=STOP_AND_MISHAP, mutate={"take_from_dead": UNFENCED}
    ),
    "a lease is taken at its old epoch": Mistake(
        promise=EPOCH, luck=Luck(0, 0, 0, 0), mutate={"take_free": keep_epoch}
    ),
    "a dead one's lease is taken at its old epoch": Mistake(
        promise=EPOCH, luck=STOP_AND_MOVE, mutate={"take_from_dead": keep_epoch}
    ),
    "a lease is handed over at its old epoch": Mistake(
        promise=EPOCH, luck=MISHAP_AND_MOVE, mutate={"transfer": keep_epoch}
    ),
    "a checkpoint is not fenced": Mistake(promise=STOLEN, luck=STOP_AND_MISHAP, mutate={"checkpoint": UNFENCED}),
    "a checkpoint may go back": Mistake(
        promise="a checkpoint went back",
        luck=Luck(0, 1, 0, 0),
        mutate={"checkpoint": drop("cp")},
        records={PARENT: 2, OTHER: 0, CHILD: 0},
    ),
    "a hand-over is not fenced": Mistake(
        promise=STOLEN,
        luck=Luck(stops=0, mishaps=1, asks=1, releases=0),
        mutate={"transfer": drop("owner", "epoch", "want")},
    ),
    "a release is not fenced": Mistake(promise=STOLEN, luck=MISHAP_AND_RELEASE, mutate={"release": UNFENCED}),
    "the end of a shard is not fenced": Mistake(promise=STOLEN, luck=STOP_AND_MISHAP, mutate={"finish": UNFENCED}),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_protocol_is_found(name: str) -> None:
    mistake = MISTAKES[name]
    model = Model(
        luck=mistake.luck,
        mutate=mistake.mutate,
        kills_the_living=mistake.kills_the_living,
        saves_before_effect=mistake.saves_before_effect,
        ignores_parents=mistake.ignores_parents,
        is_audited=mistake.is_audited,
        records=mistake.records,
    )

    with pytest.raises(Violation) as found:
        explore(model.start(), model.steps, model.is_final, states_max=STATES_MAX)

    assert found.value.promise == mistake.promise, str(found.value)
