"""Patterns: match a pattern against a whole text in time linear in the text's length.

A pattern becomes its position automaton: one state for each character it can consume, and for each state the set of
states that may come next. A set of states is the bits of one integer. Reading a character keeps the states that accept
it and moves all of them at once, so there is no backtracking that a hostile text could exploit.

Nearly always the next state is the following one, or the same: one shift moves all of these, however many there are.
Any other transition is a jump. Jumps take the time, so their number is bounded, and the cost of a match is known in
advance.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from worker.core.model.pattern_syntax import (
    BadPattern,
    Characters,
    Choice,
    Node,
    Repeat,
    Sequence,
    Span,
    parse_pattern,
)

STATES_MAX = 2000
PARTS_MAX = 500  # what takes time to compile; a repeated character counts as one
JUMPS_MAX = 48
TEXT_CHARS_MAX = 4096
_PATTERNS_CACHED_MAX = 256
_MOVES_CACHED_MAX = 512
# Costs in steps, each the size of a jump: to move all states by one (more for more states), and to compile one part.
_STEPS_PER_SHIFT = 4
_STATES_PER_STEP = 250
_STEPS_PER_PART = 50


class Jump(NamedTuple):
    """Jump: states from any of which a text may continue at any of some others."""

    origins: int
    targets: int


class Pattern:
    """Pattern: a compiled pattern. It caches a bounded number of moves, which never changes an answer."""

    __slots__ = (
        "_accepters",
        "_bounds",
        "_jumps",
        "_loops",
        "_masks",
        "_moves",
        "_shifts",
        "_steps_per_character",
        "_whole",
        "compile_steps",
        "steps",
        "text",
    )

    def __init__(self, text: str, node: Node) -> None:
        automaton = _Automaton(text)
        self.text, self._whole = text, automaton.add(node)
        self._shifts, self._loops = automaton.shifts, automaton.loops
        self._jumps = _merged_jumps(automaton.jumps)
        if len(self._jumps) > JUMPS_MAX:
            problem = f"it branches at more than {JUMPS_MAX} places; use fewer optional parts inside repetitions"
            raise BadPattern(text, len(text), problem)
        self._bounds, self._masks = _by_code(automaton.accepters)
        self._accepters: dict[str, int] = {}
        self._moves: dict[int, int] = {}
        self.compile_steps = automaton.parts * _STEPS_PER_PART
        self._steps_per_character = _STEPS_PER_SHIFT + automaton.states // _STATES_PER_STEP + len(self._jumps)
        # How many steps were made since compilation; a cached move takes none.
        self.steps = 0

    def steps_max(self, text: str) -> int:
        """Return the most steps that matching a text takes, whatever is cached."""
        return len(text) * self._steps_per_character

    def matches(self, text: str) -> bool:
        """Return whether the pattern describes the whole text; False for one above `TEXT_CHARS_MAX`."""
        if len(text) > TEXT_CHARS_MAX:
            return False
        if not text:
            return self._whole.is_optional
        alive, read = self._whole.first, 0
        for character in text:
            accepters = self._accepters.get(character)
            read = alive & (self._accepting(character) if accepters is None else accepters)
            if not read:
                return False
            moved = self._moves.get(read)
            alive = self._move(read) if moved is None else moved
        return read & self._whole.last != 0

    def _accepting(self, character: str) -> int:
        """Return the states that can consume this character."""
        accepters = self._masks[bisect_right(self._bounds, ord(character)) - 1]
        if len(self._accepters) < _MOVES_CACHED_MAX:
            self._accepters[character] = accepters
        return accepters

    def _move(self, read: int) -> int:
        """Return the states that may come after any of these."""
        self.steps += self._steps_per_character
        moved = (read & self._shifts) << 1 | read & self._loops
        for origins, targets in self._jumps:
            if read & origins:
                moved |= targets
        if len(self._moves) < _MOVES_CACHED_MAX:
            self._moves[read] = moved
        return moved


@lru_cache(maxsize=_PATTERNS_CACHED_MAX)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern of the accepted syntax (`pattern_syntax.py`). Raises `BadPattern` for any other."""
    return Pattern(text, parse_pattern(text))


def _merged_jumps(jumps: Iterable[Jump]) -> tuple[Jump, ...]:
    """Merge the jumps to the same states, and then those from the same states."""
    origins_by_targets: dict[int, int] = {}
    for origins, targets in jumps:
        origins_by_targets[targets] = origins_by_targets.get(targets, 0) | origins
    targets_by_origins: dict[int, int] = {}
    for targets, origins in origins_by_targets.items():
        targets_by_origins[origins] = targets_by_origins.get(origins, 0) | targets
    return tuple(Jump(origins, targets) for origins, targets in targets_by_origins.items())


def _by_code(accepters: Mapping[tuple[Span, ...], int]) -> tuple[list[int], list[int]]:
    """Return sorted code points, and the states that accept a character from each one on."""
    changes: dict[int, int] = {0: 0}
    for spans, states in accepters.items():
        for low, high in _merged_spans(spans):
            changes[low] = changes.get(low, 0) ^ states
            changes[high + 1] = changes.get(high + 1, 0) ^ states
    bounds, masks, accepting = sorted(changes), list[int](), 0
    for bound in bounds:
        accepting ^= changes[bound]
        masks.append(accepting)
    return bounds, masks


def _merged_spans(spans: Iterable[Span]) -> list[Span]:
    """Return the same characters in spans that neither overlap nor touch."""
    merged: list[Span] = []
    for low, high in sorted(spans):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return merged


class _Fragment(NamedTuple):
    """Fragment: a part of the automaton, with the states for its first and its last character."""

    first: int
    last: int
    is_optional: bool  # it also describes the empty text


_EMPTY = _Fragment(first=0, last=0, is_optional=True)


class _Automaton:
    """Collects states while the tree is walked; counted repetitions are written out."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._size = self.states = 0
        self.parts = 0
        self.accepters: dict[tuple[Span, ...], int] = {}
        self.shifts = self.loops = 0
        self.jumps: list[Jump] = []

    def add(self, node: Node) -> _Fragment:
        self.parts += 1
        if self.parts > PARTS_MAX:
            problem = f"with its repetitions written out it has more than {PARTS_MAX} parts; repeat smaller groups"
            raise BadPattern(self._text, len(self._text), problem)
        match node:
            case Characters():
                return self._row(node, 1)
            case Sequence(parts):
                return self._chain(parts)
            case Choice(options):
                return self._either(options)
            case Repeat(body, low, high):
                return self._repeated(body, low, high)

    def _row(self, accepted: Characters, count: int) -> _Fragment:
        """Add `count` states, each of which leads to the next."""
        self._count(count)
        first = 1 << self.states
        last = first << (count - 1)
        self.states += count
        self.accepters[accepted.spans] = self.accepters.get(accepted.spans, 0) | ((last << 1) - first)
        self.shifts |= last - first
        return _Fragment(first=first, last=last, is_optional=False)

    def _chain(self, parts: tuple[Node, ...]) -> _Fragment:
        self._count(1)  # also for an empty sequence: a nested `(){1000}` must reach the bound too
        whole = _EMPTY
        for part in parts:
            whole = self._join(whole, self.add(part))
        return whole

    def _either(self, options: tuple[Node, ...]) -> _Fragment:
        first = last = 0
        is_optional = False
        for option in options:
            fragment = self.add(option)
            first, last = first | fragment.first, last | fragment.last
            is_optional = is_optional or fragment.is_optional
        return _Fragment(first=first, last=last, is_optional=is_optional)

    def _repeated(self, body: Node, low: int, high: int | None) -> _Fragment:
        if _may_be_empty(body):
            low = 0  # fewer repeats match the same, and each repeat then consumes something
            body = _without_option(body)
        if high is not None:
            return self._join(self._exactly(body, low), self._up_to(body, high - low))
        loop = self._join(self._exactly(body, low - 1), self._loop(body))
        return loop if low else loop._replace(is_optional=True)

    def _exactly(self, body: Node, count: int) -> _Fragment:
        if isinstance(body, Characters) and count > 0:
            return self._row(body, count)
        whole = _EMPTY
        for _ in range(count):
            whole = self._join(whole, self.add(body))
        return whole

    def _up_to(self, body: Node, count: int) -> _Fragment:
        """Repeat at most `count` times, as `(a(a(a)?)?)?`.

        In `a?a?a?`, each state would lead to all later ones.
        """
        if isinstance(body, Characters) and count:
            first, last, _ = self._row(body, count)
            return _Fragment(first=first, last=(last << 1) - first, is_optional=True)
        first = last = before = 0
        for _ in range(count):
            fragment = self.add(body)
            self._link(before, fragment.first)
            first, last, before = first or fragment.first, last | fragment.last, fragment.last
        return _Fragment(first=first, last=last, is_optional=True)

    def _loop(self, body: Node) -> _Fragment:
        """Repeat once or more often."""
        fragment = self.add(body)
        self._link(fragment.last, fragment.first)
        return fragment

    def _join(self, left: _Fragment, right: _Fragment) -> _Fragment:
        self._link(left.last, right.first)
        return _Fragment(
            first=left.first | right.first if left.is_optional else left.first,
            last=left.last | right.last if right.is_optional else right.last,
            is_optional=left.is_optional and right.is_optional,
        )

    def _link(self, last: int, first: int) -> None:
        if last & (last - 1) == 0:  # from one state to several
            self.loops |= last & first
            self.shifts |= last if last << 1 & first else 0
            first &= ~(last | last << 1)
        elif first & (first - 1) == 0:  # from several states to one
            self.loops |= last & first
            self.shifts |= last & first >> 1
            last &= ~(first | first >> 1)
        if last and first:
            self.jumps.append(Jump(last, first))

    def _count(self, states: int) -> None:
        self._size += states
        if self._size > STATES_MAX:
            problem = f"with its repetitions written out it needs more than {STATES_MAX} states; ask for fewer"
            raise BadPattern(self._text, len(self._text), problem)


def _without_option(node: Node) -> Node:
    """Return the optional part itself: `a` of `a?`."""
    while isinstance(node, Repeat) and (node.low, node.high) == (0, 1):
        node = node.body
    return node


def _may_be_empty(node: Node) -> bool:
    match node:
        case Characters():
            return False
        case Sequence(parts):
            return all(map(_may_be_empty, parts))
        case Choice(options):
            return any(map(_may_be_empty, options))
        case Repeat(body, low, _):
            return low == 0 or _may_be_empty(body)
