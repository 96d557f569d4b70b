"""Exploring every history of a small model, breadth first, and what to say about it."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from msgspec import Struct

S = TypeVar("S", bound=Hashable)


class Violation(Exception):
    """A history that breaks a promise: the shortest there is."""

    def __init__(self, promise: str, history: list[str]) -> None:
        super().__init__(f"{promise}:\n  " + "\n  ".join(history))
        self.promise, self.history = promise, history


class TooMany(Exception):
    """The model is larger than the test can bear: make it smaller."""


# A struct and no dataclass: it is made 300,000 times, and in a sixth of the time.
class Step(Struct, Generic[S], frozen=True, gc=False):
    name: str
    state: S
    broken: str = ""  # the promise that this step breaks, if it does


@dataclass(frozen=True, slots=True)
class Explored:
    states: int
    steps: int


def explore(
    start: S,
    steps: Callable[[S], Iterable[Step[S]]],
    is_final: Callable[[S], bool],
    *,
    states_max: int,
) -> Explored:
    """Visit every state. Raises `Violation` for a broken promise, and for a state that cannot come to the end."""
    # A state is looked up by its value once; from then on it goes by its number, in the order of finding.
    numbers: dict[S, int] = {start: 0}
    states, came_from, before = [start], [(0, "")], [list[int]()]
    count = 0
    for number, state in enumerate(states):  # which grows meanwhile
        for step in steps(state):
            count += 1
            if step.broken:
                raise Violation(step.broken, [*_history(number, came_from), step.name])
            following = numbers.setdefault(step.state, len(states))
            if following == len(states):
                states.append(step.state)
                came_from.append((number, step.name))
                before.append([])
            before[following].append(number)
        if len(states) > states_max:
            raise TooMany(f"more than {states_max} states")
    _require_a_way_to_the_end([is_final(state) for state in states], came_from, before)
    return Explored(len(states), count)


def _require_a_way_to_the_end(is_good: list[bool], came_from: list[tuple[int, str]], before: list[list[int]]) -> None:
    """Of those that are final first, and in the end of all from which one can come to them, `is_good` says so."""
    waiting = deque(number for number, is_final in enumerate(is_good) if is_final)
    while waiting:
        for earlier in before[waiting.popleft()]:
            if not is_good[earlier]:
                is_good[earlier] = True
                waiting.append(earlier)
    if not all(is_good):  # the first found is among the shortest histories
        raise Violation("no way leads from here to the end", _history(is_good.index(False), came_from))


def _history(number: int, came_from: list[tuple[int, str]]) -> list[str]:
    steps: list[str] = []
    while number:
        number, name = came_from[number]
        steps.append(name)
    return steps[::-1]
