"""Exploring every history of a small model, breadth first, and what to say about it."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


class Violation(Exception):
    """A history that breaks a promise: the shortest there is."""

    def __init__(self, promise: str, history: list[str]) -> None:
        super().__init__(f"{promise}:\n  " + "\n  ".join(history))
        self.promise, self.history = promise, history


class TooMany(Exception):
    """The model is larger than the test can bear: make it smaller."""


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
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
    came_from: dict[S, tuple[S, str] | None] = {start: None}
    before: dict[S, list[S]] = {}
    waiting, count = deque([start]), 0
    while waiting:
        state = waiting.popleft()
        for step in steps(state):
            count += 1
            if step.broken:
                raise Violation(step.broken, [*_history(state, came_from), step.name])
            before.setdefault(step.state, []).append(state)
            if step.state not in came_from:
                came_from[step.state] = state, step.name
                waiting.append(step.state)
        if len(came_from) > states_max:
            raise TooMany(f"more than {states_max} states")
    _require_a_way_to_the_end(came_from, before, is_final)
    return Explored(len(came_from), count)


def _require_a_way_to_the_end(
    came_from: dict[S, tuple[S, str] | None], before: dict[S, list[S]], is_final: Callable[[S], bool]
) -> None:
    good = {state for state in came_from if is_final(state)}
    waiting = deque(good)
    while waiting:
        for earlier in before.get(waiting.popleft(), ()):
            if earlier not in good:
                good.add(earlier)
                waiting.append(earlier)
    for state in came_from:  # in the order of finding: the first is among the shortest histories
        if state not in good:
            raise Violation("no way leads from here to the end", _history(state, came_from))


def _history(state: S, came_from: dict[S, tuple[S, str] | None]) -> list[str]:
    steps: list[str] = []
    while (found := came_from[state]) is not None:
        state, name = found
        steps.append(name)
    return steps[::-1]
