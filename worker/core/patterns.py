"""Matching a pattern against a whole text in time that grows with the text, never faster.

A pattern becomes its position automaton: one state for each character it can consume, and for each state the set of
states that may come next. A set of states is the bits of one integer. Reading a character keeps the states that accept
it and moves all of them on at once, so there is no backtracking and nothing for a hostile text to multiply.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from worker.core.patternsyntax import BadPattern, Characters, Choice, Node, Repeat, Sequence, parse_pattern

STATES_MAX = 2000
TEXT_CHARS_MAX = 4096
_PATTERNS_CACHED_MAX = 256
_MOVES_CACHED_MAX = 512


class Pattern:
    """A compiled pattern. It remembers moves it has computed, up to a bound; what it answers never depends on that."""

    __slots__ = ("_accepters", "_final", "_follows", "_moves", "_start", "_states", "steps", "text")

    def __init__(self, text: str, node: Node) -> None:
        automaton = _Automaton(text)
        whole = automaton.add(node)
        self.text = text
        # How many states were looked at since compilation: what matching has cost, apart from what was remembered.
        self.steps = 0
        self._states = tuple(automaton.states)
        self._final = 1 << len(self._states)
        self._start = whole.first | (self._final if whole.is_optional else 0)
        self._follows = tuple(
            follow | (self._final if whole.last >> state & 1 else 0) for state, follow in enumerate(automaton.follows)
        )
        self._accepters: dict[str, int] = {}
        self._moves: dict[int, int] = {}

    def matches(self, text: str) -> bool:
        """Does the pattern describe the whole text? Never for a text longer than `TEXT_CHARS_MAX`."""
        if len(text) > TEXT_CHARS_MAX:
            return False
        alive = self._start
        for character in text:
            accepters = self._accepters.get(character)
            alive &= self._accepting(character) if accepters is None else accepters
            if not alive:
                return False
            moved = self._moves.get(alive)
            alive = self._move(alive) if moved is None else moved
        return alive & self._final != 0

    def _accepting(self, character: str) -> int:
        """The states that can consume this character."""
        self.steps += len(self._states)
        accepters = sum(1 << state for state, accepted in enumerate(self._states) if character in accepted)
        if len(self._accepters) < _MOVES_CACHED_MAX:
            self._accepters[character] = accepters
        return accepters

    def _move(self, alive: int) -> int:
        """The states that may come after any of these."""
        moved = 0
        for state in _bits(alive):
            self.steps += 1
            moved |= self._follows[state]
        if len(self._moves) < _MOVES_CACHED_MAX:
            self._moves[alive] = moved
        return moved


@lru_cache(maxsize=_PATTERNS_CACHED_MAX)
def compile_pattern(text: str) -> Pattern:
    """Compile a pattern of the accepted syntax (`patternsyntax.py`). Raises `BadPattern` for any other."""
    return Pattern(text, parse_pattern(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fragment:
    """A part of the automaton: the states that can consume its first and its last character."""

    first: int
    last: int
    is_optional: bool  # it also describes the empty text


_EMPTY = _Fragment(first=0, last=0, is_optional=True)


class _Automaton:
    """Collects states while the tree is walked; counted repetitions are written out."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._size = 0
        self.states: list[Characters] = []
        self.follows: list[int] = []

    def add(self, node: Node) -> _Fragment:
        match node:
            case Characters():
                return self._state(node)
            case Sequence(parts):
                return self._chain(parts)
            case Choice(options):
                return self._either(options)
            case Repeat(body, low, high):
                return self._repeated(body, low, high)

    def _state(self, accepted: Characters) -> _Fragment:
        self._count()
        self.states.append(accepted)
        self.follows.append(0)
        bit = 1 << (len(self.states) - 1)
        return _Fragment(first=bit, last=bit, is_optional=False)

    def _chain(self, parts: tuple[Node, ...]) -> _Fragment:
        self._count()  # also for nothing at all: `(){1000}` nested in itself must reach the bound too
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
        whole = _EMPTY
        for _ in range(low):
            whole = self._join(whole, self.add(body))
        if high is None:
            return self._join(whole, self._loop(body))
        for _ in range(high - low):
            whole = self._join(whole, _optional(self.add(body)))
        return whole

    def _loop(self, body: Node) -> _Fragment:
        fragment = self.add(body)
        self._link(fragment.last, fragment.first)
        return _optional(fragment)

    def _join(self, left: _Fragment, right: _Fragment) -> _Fragment:
        self._link(left.last, right.first)
        return _Fragment(
            first=left.first | right.first if left.is_optional else left.first,
            last=left.last | right.last if right.is_optional else right.last,
            is_optional=left.is_optional and right.is_optional,
        )

    def _link(self, last: int, first: int) -> None:
        for state in _bits(last):
            self.follows[state] |= first

    def _count(self) -> None:
        self._size += 1
        if self._size > STATES_MAX:
            problem = f"with its repetitions written out it needs more than {STATES_MAX} states; ask for fewer"
            raise BadPattern(self._text, len(self._text), problem)


def _optional(fragment: _Fragment) -> _Fragment:
    return _Fragment(first=fragment.first, last=fragment.last, is_optional=True)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest
