"""Parameters of archetypes: their types, their values, and how values take the place of `${name}`.

A value is data: it is put into the parsed file in one pass, and is never parsed or filled in again. `$${` stays as it
is: in a job's configuration it is a literal `${`. Names of parameters begin with a small letter, so that `${DATE}` and
`${INTERLOCK_…}` stay what they are.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, cast

from worker.yaml.document import Path, texts
from worker.yaml.parser import CHARACTERS_MAX, NODES_MAX

PARAMETERS_MAX: Final = 64
VALUE_CHARACTERS_MAX: Final = 10_000
ITEMS_MAX: Final = 1_000
NAME: Final = re.compile(r"[a-z][A-Za-z0-9_]{0,63}")
_REFERENCE: Final = re.compile(r"\$(?P<escape>\$(?=\{[a-z]))|\$\{(?P<name>[a-z][A-Za-z0-9_]*)\}")


class ParameterType(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    FLAG = "flag"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """Parameter: a name that stands for a value. Without a default, every user must give one."""

    type: ParameterType
    default: object = None
    has_default: bool = False


class FileTooLarge(Exception):
    """Signals that a file with its parameters filled in exceeds the limits of a file."""


def problem_of(value: object, kind: ParameterType) -> str | None:
    """Return why a value is not of a type; None if it is."""
    match kind:
        case ParameterType.TEXT if isinstance(value, str):
            return f"has more than {VALUE_CHARACTERS_MAX:,} characters" if len(value) > VALUE_CHARACTERS_MAX else None
        case ParameterType.NUMBER if isinstance(value, int | float) and not isinstance(value, bool):
            return None
        case ParameterType.FLAG if isinstance(value, bool):
            return None
        case ParameterType.LIST if isinstance(value, list):
            return _problem_of_items(cast("list[object]", value))
        case _:
            return f"must be {WORDS[kind]}"


WORDS: Final = {
    ParameterType.TEXT: "text",
    ParameterType.NUMBER: "a number",
    ParameterType.FLAG: "true or false",
    ParameterType.LIST: "a list of texts and numbers",
}


def _problem_of_items(items: list[object]) -> str | None:
    if len(items) > ITEMS_MAX:
        return f"has more than {ITEMS_MAX:,} items"
    if any(not isinstance(item, str | int | float) for item in items):
        return f"must be {WORDS[ParameterType.LIST]}"
    is_long = any(isinstance(item, str) and len(item) > VALUE_CHARACTERS_MAX for item in items)
    return f"has an item of more than {VALUE_CHARACTERS_MAX:,} characters" if is_long else None


def references(value: object) -> Iterator[tuple[Path, str, bool]]:
    """Yield each reference to a parameter: its path, its name, and whether it is the whole text."""
    for path, text in texts(value):
        for match in _REFERENCE.finditer(text):
            if match["name"]:
                yield path, match["name"], match[0] == text


@dataclass(slots=True)
class Filler:
    """Fills in the values. `used` has, for each path, the parameters that were filled in there.

    Raises `FileTooLarge` as soon as the result is beyond the limits, however the values repeat.
    """

    values: Mapping[str, object]
    used: dict[Path, tuple[str, ...]]
    _nodes: int = 0
    _characters: int = 0

    def fill(self, value: object, path: Path = ()) -> object:
        """Return the value with its references filled in; the given one stays as it is."""
        self._count(1, 0)
        if isinstance(value, str):
            return self._text(value, path)
        if isinstance(value, dict):
            members = cast("dict[str, object]", value)
            return {key: self.fill(member, (*path, key)) for key, member in members.items()}
        if isinstance(value, list):
            items = cast("list[object]", value)
            return [self.fill(item, (*path, index)) for index, item in enumerate(items)]
        return value

    def _text(self, text: str, path: Path) -> object:
        names = [match["name"] for match in _REFERENCE.finditer(text) if match["name"]]
        known = tuple(dict.fromkeys(name for name in names if name in self.values))
        if known:
            self.used[path] = known
        if len(names) == 1 and known and text == f"${{{names[0]}}}":
            return self._whole(self.values[names[0]])
        filled = _REFERENCE.sub(self._replacement, text)
        self._count(0, len(filled))
        return filled

    def _whole(self, value: object) -> object:
        self._count(0, len(_shown(value)))
        if not isinstance(value, list):
            return value
        items = list(cast("list[object]", value))
        self._count(len(items), 0)
        return items

    def _replacement(self, match: re.Match[str]) -> str:
        if match["escape"]:
            return match[0]
        value = self.values.get(match["name"])
        shown = match[0] if value is None else _shown(value)
        # Counted while the text grows: a text may repeat a long value thousands of times.
        self._count(0, len(shown))
        return shown

    def _count(self, nodes: int, characters: int) -> None:
        self._nodes += nodes
        self._characters += characters
        if self._nodes > NODES_MAX or self._characters > CHARACTERS_MAX:
            raise FileTooLarge(
                f"with its parameters filled in, it has more than {NODES_MAX:,} values or {CHARACTERS_MAX:,} characters"
            )


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
