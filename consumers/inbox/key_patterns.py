"""Match object keys against patterns and extract named parts of them.

    orders/dt=${date}/${part}.parquet        landing/**/*.csv

`*` matches any text without a slash and `**` any text at all. `${name}` matches a non-empty text without a slash and
captures it. Date names have fixed shapes: `${date}` (2026-03-03 or 20260303), `${period}` (a date, which `T07` or
`T0730` may follow), `${year}`, `${month}`, `${day}`, `${hour}`, `${minute}`. All other text matches itself.

Matching takes time proportional to the length of the key, for any key. Each wildcard takes as little as it can, without
backtracking. This loses no match, because the next wildcard can take the rest. Only `**` backtracks, and a pattern has
at most one.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

PATTERN_CHARS_MAX: Final = 1024
# `d` stands for one digit and every other character for itself, so that `may_begin` can step through a shape character
# by character.
SHAPES: Final[Mapping[str, Sequence[str]]] = {
    "date": ("dddd-dd-dd", "dddddddd"),
    "period": ("dddd-dd-ddTdddd", "dddd-dd-ddTdd", "dddd-dd-dd", "ddddddddTdddd", "ddddddddTdd", "dddddddd"),
    "year": ("dddd",),
    "month": ("dd",),
    "day": ("dd",),
    "hour": ("dd",),
    "minute": ("dd",),
}
_PIECE: Final = re.compile(r"\$\{(?P<name>[^{}]*)\}|(?P<all>\*\*)|(?P<any>\*)|(?P<text>[^$*]+|\$)")
_NAME: Final = re.compile(r"[a-z][a-zA-Z0-9_]{0,31}")


class BadKeyPattern(ValueError):
    """BadKeyPattern is raised for an invalid pattern; the message says why."""


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


@dataclass(frozen=True, slots=True)
class _Shaped:
    """Matches one of several texts in which `d` is any digit."""

    name: str
    shapes: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Wild:
    name: str = ""
    crosses: bool = False  # whether it matches slashes


_Piece: TypeAlias = _Text | _Shaped | _Wild


@dataclass(frozen=True, slots=True)
class KeyPattern:
    text: str
    _pieces: tuple[_Piece, ...]
    _compiled: re.Pattern[str]

    @property
    def names(self) -> frozenset[str]:
        """Return the names that a matching key provides."""
        return frozenset(self._compiled.groupindex)

    def find(self, key: str) -> Mapping[str, str] | None:
        """Return the captured parts of a key, or None if it does not match."""
        match = self._compiled.fullmatch(key)
        return None if match is None else match.groupdict()

    def may_begin(self, beginning: str) -> bool:
        """Return whether any key with this prefix could match."""
        states = {(0, "")}  # the index of the next piece, and what is left of it once it has begun
        for character in beginning:
            states = {after for state in self._opened(states) for after in self._step(state, character)}
            if not states:
                return False
        return True

    def _opened(self, states: set[tuple[int, str]]) -> set[tuple[int, str]]:
        """Return the same states with the remaining text of each piece, also past wildcards that may be empty."""
        opened: set[tuple[int, str]] = set()
        pending = list(states)
        while pending:
            number, left = pending.pop()
            if left or number == len(self._pieces):
                opened.add((number, left))
                continue
            match self._pieces[number]:
                case _Text(text):
                    opened.add((number, text))
                case _Shaped(_, shapes):
                    opened.update((number, shape.replace("d", "\0")) for shape in shapes)
                case _Wild(name):
                    opened.add((number, ""))
                    if not name:
                        pending.append((number + 1, ""))
        return opened

    def _step(self, state: tuple[int, str], character: str) -> list[tuple[int, str]]:
        number, left = state
        if number == len(self._pieces):
            return []
        if not left:
            piece = self._pieces[number]
            accepts = isinstance(piece, _Wild) and (piece.crosses or character != "/")
            return [(number, ""), (number + 1, "")] if accepts else []
        if left[0] != character and not (left[0] == "\0" and character in "0123456789"):
            return []
        return [(number, left[1:]) if len(left) > 1 else (number + 1, "")]


def parse_key_pattern(text: str) -> KeyPattern:
    """Parse a pattern. Raises `BadKeyPattern`."""
    if not text or len(text) > PATTERN_CHARS_MAX:
        raise BadKeyPattern(f"must have 1 to {PATTERN_CHARS_MAX} characters")
    pieces = tuple(_piece(match) for match in _PIECE.finditer(text))
    _check(pieces)
    return KeyPattern(text, pieces, re.compile(_expression(pieces), re.DOTALL))


def _piece(match: re.Match[str]) -> _Piece:
    if match["text"]:
        return _Text(match["text"])
    name = match["name"]
    if name is None:
        return _Wild(crosses=bool(match["all"]))
    if not _NAME.fullmatch(name):
        raise BadKeyPattern(f"`${{{name[:32]}}}` is no name; use letters and digits, as in ${{part}}")
    return _Shaped(name, SHAPES[name]) if name in SHAPES else _Wild(name)


def _check(pieces: Sequence[_Piece]) -> None:
    names = [piece.name for piece in pieces if not isinstance(piece, _Text) and piece.name]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadKeyPattern(f"`${{{twice}}}` stands in it twice; give the second another name, or use `*`")
    if sum(isinstance(piece, _Wild) and piece.crosses for piece in pieces) > 1:
        raise BadKeyPattern("`**` stands in it twice; use it once")
    if any(isinstance(one, _Wild) and isinstance(next_, _Wild) for one, next_ in pairwise(pieces)):
        raise BadKeyPattern("two wildcards stand side by side, so nobody knows where one ends; put text between them")


def _expression(pieces: Sequence[_Piece]) -> str:
    """Return the regular expression of the pieces.

    A wildcard and the fixed text after it form one atomic group. The last wildcard has none, because it must reach the
    end.
    """
    last = max((number for number, piece in enumerate(pieces) if isinstance(piece, _Wild)), default=-1)
    parts: list[str] = []
    is_open = False
    for number, piece in enumerate(pieces):
        if isinstance(piece, _Wild):
            parts.append(")" if is_open else "")
            is_open = number != last and not piece.crosses
            parts.append("(?>" if is_open else "")
        parts.append(_part(piece))
    return "".join(parts)


def _part(piece: _Piece) -> str:
    match piece:
        case _Text(text):
            return re.escape(text)
        case _Shaped(name, shapes):
            options = "|".join(shape.replace("d", "[0-9]") for shape in shapes)
            return f"(?P<{name}>{options})"
        case _Wild(name, crosses):
            characters = "." if crosses else "[^/]"
            return f"(?P<{name}>{characters}+?)" if name else f"{characters}*?"
