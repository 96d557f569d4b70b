"""Defines the parsed form of a YAML text: its values, and the line and column of each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TextMark:
    """TextMark is a position in the text. Line and column are counted from 1, as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault is a mistake in the YAML text itself, as opposed to a mistake in its meaning."""

    mark: TextMark
    message: str
    hint: str = ""


class BadYaml(ValueError):
    """Signals that the text cannot be read as one YAML document within the limits."""

    def __init__(self, mark: TextMark, message: str, hint: str = "") -> None:
        super().__init__(f"line {mark.line}, column {mark.column}: {message}")
        self.fault = Fault(mark, message, hint)


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Holds the positions of one member's key and value. For a list item the two are equal."""

    key: TextMark
    value: TextMark


Places: TypeAlias = dict[str | int, MemberPlace]


@dataclass(frozen=True, slots=True)
class Document:
    """Holds a parsed YAML text. `faults` are mistakes that did not prevent reading the rest of the text."""

    value: object
    faults: tuple[Fault, ...]
    start: TextMark
    # Maps the id of a mapping or list to the object and the positions of its members. The object is kept because an id
    # stays unique only while its object is alive.
    places: Mapping[int, tuple[object, Places]]

    def locate(self, path: Path, *, key: bool = False) -> TextMark:
        """Return the position of `path`, or of its nearest ancestor that exists.

        `key` selects the position of the key instead of its value.
        """
        current, mark = self.value, self.start
        for step, part in enumerate(path):
            place, child = self._member(current, part)
            if place is None:
                return mark
            # For a missing member, report the key of the container that should hold it.
            is_last = step == len(path) - 1
            mark = place.value if is_last and not key else place.key
            current = child
        return mark

    def _member(self, container: object, part: str | int) -> tuple[MemberPlace | None, object]:
        _, places = self.places.get(id(container), (None, cast("Places", {})))
        name = part if part in places else _same_name(part, places)
        if name is None:
            return None, None
        return places[name], cast("dict[str | int, object]", container)[name]


def loose(name: str) -> str:
    """Return a key without case, `_` and `-`: `dag_id`, `dagID` and `DAG-Id` give the same result."""
    return name.lower().replace("_", "").replace("-", "")


def _same_name(part: str | int, places: Places) -> str | None:
    if isinstance(part, int):
        return None
    return next((name for name in places if isinstance(name, str) and loose(name) == loose(part)), None)


def texts(value: object) -> Iterator[tuple[Path, str]]:
    """Yield every text inside a value with its path. Parsed values are bounded, so this always ends."""
    pending: list[tuple[Path, object]] = [((), value)]
    while pending:
        path, current = pending.pop()
        if isinstance(current, str):
            yield path, current
        elif isinstance(current, dict):
            members = cast("dict[str, object]", current)
            pending.extend(reversed([((*path, key), member) for key, member in members.items()]))
        elif isinstance(current, list):
            items = cast("list[object]", current)
            pending.extend(reversed([((*path, index), item) for index, item in enumerate(items)]))
