"""Pattern syntax: reads the patterns that `matches` accepts into a tree.

They are a part of regular expressions. Every accepted construct can be matched without backtracking.

| Written | Means |
| --- | --- |
| `abc` | these characters |
| `.` | any character but a line end |
| `[a-z_]`, `[^0-9]` | one character of a set, or one outside it |
| `\\d \\w \\s`, `\\D \\W \\S` | digit, word character, white space (ASCII), or none of them |
| `\\.` `\\n` `\\r` `\\t` | an escaped character; a line end, a return, a tab |
| `(ab)`, `(?:ab)`, `a|b` | a group, a choice |
| `* + ? {3} {3,} {3,5}` | how often; at most 1000 times |
| `^` first, `$` last | allowed and without effect: a pattern always describes the whole text |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

PATTERN_CHARS_MAX = 256
REPEATS_MAX = 1000
GROUP_DEPTH_MAX = 20

ACCEPTED = (
    r"accepted are characters, ., [a-z], [^a-z], \d \w \s \D \W \S, \ before a sign, (…), |, * + ? {m} {m,} {m,n}, "
    "^ at the start and $ at the end"
)


class BadPattern(ValueError):
    """BadPattern: a pattern outside the accepted part of regular expressions; a person must rewrite it."""

    def __init__(self, pattern: str, position: int, problem: str) -> None:
        shown = pattern if len(pattern) <= PATTERN_CHARS_MAX else pattern[:PATTERN_CHARS_MAX] + "…"
        super().__init__(f"pattern `{shown}`, character {position + 1}: {problem}; {ACCEPTED}")
        self.pattern, self.position, self.problem = pattern, position, problem


Span: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Characters:
    """Characters: exactly one character out of these spans of code points, both ends included."""

    spans: tuple[Span, ...]

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        return any(low <= code <= high for low, high in self.spans)


@dataclass(frozen=True, slots=True)
class Sequence:
    """Sequence: one part after the other; without parts, the empty text."""

    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Choice:
    options: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    """Repeat: `low` to `high` times; `high` None means without limit."""

    body: "Node"
    low: int
    high: int | None


Node: TypeAlias = Characters | Sequence | Choice | Repeat

_LAST_CODE = 0x10FFFF
_DIGITS: tuple[Span, ...] = ((0x30, 0x39),)
_WORD: tuple[Span, ...] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: tuple[Span, ...] = ((0x09, 0x0D), (0x20, 0x20))


def _all_but(spans: list[Span] | tuple[Span, ...]) -> tuple[Span, ...]:
    outside: list[Span] = []
    start = 0
    for low, high in sorted(spans):
        if low > start:
            outside.append((start, low - 1))
        start = max(start, high + 1)
    return (*outside, (start, _LAST_CODE)) if start <= _LAST_CODE else tuple(outside)


_ANY = Characters(_all_but([(0x0A, 0x0A)]))
_CLASSES: Mapping[str, tuple[Span, ...]] = {
    "d": _DIGITS,
    "w": _WORD,
    "s": _SPACE,
    "D": _all_but(_DIGITS),
    "W": _all_but(_WORD),
    "S": _all_but(_SPACE),
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
_REPEATS: Mapping[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse_pattern(text: str) -> Node:
    """Read a pattern. Raises `BadPattern` with the position and what is accepted instead."""
    if len(text) > PATTERN_CHARS_MAX:
        problem = f"it is {len(text)} characters long, at most {PATTERN_CHARS_MAX} are read"
        raise BadPattern(text, PATTERN_CHARS_MAX, problem)
    return _Parser(text).parse()


class _Parser:
    """Parses by recursive descent; each method reads one construct and leaves `_at` behind it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> Node:
        self._take("^")
        node = self._choice()
        if self._at < len(self._text) and self._text[self._at :] != "$":
            raise self._bad(
                "this `)` closes nothing; write `\\)` for the sign" if self._peek() == ")" else "unreadable"
            )
        return node

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while (sign := self._peek()) not in ("", "|", ")") and self._text[self._at :] != "$":
            if sign in "*+?{":
                raise self._bad(f"`{sign}` has nothing to repeat; write `\\{sign}` for the sign")
            parts.append(self._repeated(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self, body: Node) -> Node:
        sign = self._peek()
        if sign in _REPEATS:
            self._at += 1
            low, high = _REPEATS[sign]
        elif sign == "{":
            low, high = self._counts()
        else:
            return body
        if self._peek() in ("*", "+", "?", "{"):
            raise self._bad("a repetition cannot follow another (lazy and possessive forms change nothing here)")
        return Repeat(body, low, high)

    def _counts(self) -> tuple[int, int | None]:
        start = self._at
        end = self._text.find("}", start)
        low, comma, high = self._text[start + 1 : end].partition(",")
        if end < 0 or not _is_count(low) or not (high == "" or _is_count(high)):
            raise self._bad("`{` starts a count such as {3}, {3,} or {3,5}; write `\\{` for the sign")
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > REPEATS_MAX:
            raise self._bad(f"at most {REPEATS_MAX} repetitions can be counted")
        if most is not None and most < least:
            raise self._bad(f"the count ends ({most}) before it starts ({least})")
        self._at = end + 1
        return least, most

    def _atom(self) -> Node:
        match self._peek():
            case "(":
                return self._group()
            case "[":
                return self._set()
            case ".":
                self._at += 1
                return _ANY
            case "\\":
                return Characters(self._escape())
            case "^" | "$" as anchor:
                place = "start" if anchor == "^" else "end"
                raise self._bad(f"`{anchor}` is allowed at the {place} only; write `\\{anchor}` for the sign")
            case character:
                self._at += 1
                return Characters(_only(character))

    def _group(self) -> Node:
        start = self._at
        self._at += 1
        if self._take("?") and not self._take(":"):
            raise self._bad("`(?` starts a look-around, a name or a flag, which are not accepted", at=start)
        self._depth += 1
        if self._depth > GROUP_DEPTH_MAX:
            raise self._bad(f"groups are nested more than {GROUP_DEPTH_MAX} deep", at=start)
        node = self._choice()
        if not self._take(")"):
            raise self._bad("this group is never closed", at=start)
        self._depth -= 1
        return node

    def _set(self) -> Characters:
        start = self._at
        self._at += 1
        is_negated = self._take("^")
        spans: list[Span] = []
        while not self._take("]"):
            if not self._peek():
                raise self._bad("this set is never closed", at=start)
            spans.extend(self._set_member())
        if not spans:
            raise self._bad("this set is empty; write `\\]` for the sign", at=start)
        return Characters(_all_but(spans) if is_negated else tuple(spans))

    def _set_member(self) -> tuple[Span, ...]:
        start = self._at
        first = self._set_character()
        is_range = self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1 : self._at + 2] not in (
            "",
            "]",
        )
        if not is_range:
            return first
        self._at += 1
        last = self._set_character()
        low, high = first[0][0], last[0][1]
        if first != ((low, low),) or last != ((high, high),) or low > high:
            raise self._bad("a range goes from one character up to another; write `\\-` for the sign", at=start)
        return ((low, high),)

    def _set_character(self) -> tuple[Span, ...]:
        if self._peek() == "\\":
            return self._escape()
        self._at += 1
        return _only(self._text[self._at - 1])

    def _escape(self) -> tuple[Span, ...]:
        sign = self._text[self._at + 1 : self._at + 2]
        if not sign:
            raise self._bad("a `\\` at the end escapes nothing")
        if sign not in _CLASSES and sign not in _CONTROLS and (sign.isalnum() or sign == "_"):
            raise self._bad(f"`\\{sign}` is not an escape that is known here")
        self._at += 2
        return _CLASSES.get(sign) or _only(_CONTROLS.get(sign, sign))

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, sign: str) -> bool:
        if self._peek() != sign:
            return False
        self._at += 1
        return True

    def _bad(self, problem: str, *, at: int | None = None) -> BadPattern:
        return BadPattern(self._text, self._at if at is None else at, problem)


def _only(character: str) -> tuple[Span, ...]:
    return ((ord(character), ord(character)),)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()
