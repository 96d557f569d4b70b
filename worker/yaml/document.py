"""What a YAML text says, and where it says it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class TextMark:
    """A place in the text, counted from 1 as editors do."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with the text itself."""

    mark: TextMark
    message: str
    hint: str = ""


class BadYaml(ValueError):
    """The text cannot be read as one YAML document within the limits."""

    def __init__(self, mark: TextMark, message: str, hint: str = "") -> None:
        super().__init__(f"line {mark.line}, column {mark.column}: {message}")
        self.fault = Fault(mark, message, hint)


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Where a member of a mapping or list stands; in a list the two are the same."""

    key: TextMark
    value: TextMark


Places: TypeAlias = dict[str | int, MemberPlace]


@dataclass(frozen=True, slots=True)
class Document:
    """What the text says. `faults` are mistakes that did not keep the rest from being read."""

    value: object
    faults: tuple[Fault, ...]
    start: TextMark
    # The id of a mapping or list -> itself (an id is its own only while it lives) and where its members stand.
    places: Mapping[int, tuple[object, Places]]

    def locate(self, path: Path, *, key: bool = False) -> TextMark:
        """Where `path` stands, or the nearest thing above it that does; `key` asks for the key, not its value."""
        current, mark = self.value, self.start
        for step, part in enumerate(path):
            place, child = self._member(current, part)
            if place is None:
                return mark
            # A member that is not there is best shown by the name of what should hold it.
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
    """A key without what spellings differ in: `dag_id`, `dagID` and `DAG-Id` are one."""
    return name.lower().replace("_", "").replace("-", "")


def _same_name(part: str | int, places: Places) -> str | None:
    if isinstance(part, int):
        return None
    return next((name for name in places if isinstance(name, str) and loose(name) == loose(part)), None)


def texts(value: object) -> Iterator[tuple[Path, str]]:
    """Every text inside a value, with its path below it. `value` is bounded, as everything is that was read."""
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
