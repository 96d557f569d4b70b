"""Match events against the pattern of a route, in the language of EventBridge rules.

A pattern is a JSON object. Every name in it must be in the event, and each value is a list of which one entry must
match: a text, number, boolean or null exactly; or `{"prefix": …}`, `{"anything-but": …}`, `{"exists": …}`, `{"numeric":
[…]}`. For a list in an event, one of its members must match. As on a bus, `exists` tests values only, and an object is
not a value. So one pattern works inside the relay and as a rule on a bus. This module supports only this part of the
language; parsing rejects the rest, so matching never fails.
"""

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, TypeAlias

from worker.core.errors import ConfigError
from worker.core.model.values import Json, Number

DEPTH_MAX: Final = 10
CHOICES_MAX: Final = 200

_COMPARISONS: Final[Mapping[str, Callable[[Number, Number], bool]]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_KINDS: Final = "prefix, anything-but, exists or numeric"
_BUT: Final = 'anything-but takes texts or numbers, one or a list of one kind, or {"prefix": …}'


class _Missing:
    """Marks a name that the event does not have; null is a value."""


_MISSING: Final = _Missing()
_Found: TypeAlias = "Json | _Missing"
_Test: TypeAlias = Callable[[_Found], bool]


class BadEventPattern(ConfigError):
    """Reports a pattern that is invalid or not supported."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"event pattern, {where or 'at its top'}: {problem}")
        self.where, self.problem = where, problem


@dataclass(frozen=True, slots=True)
class EventPattern:
    """Tests whether an event matches. `parse_pattern` creates it."""

    _matches: Callable[[Mapping[str, Json]], bool]
    names: frozenset[str]  # the members of an event that it tests

    def matches(self, event: Mapping[str, Json]) -> bool:
        return self._matches(event)


def parse_pattern(pattern: Json) -> EventPattern:
    """Parse a pattern. Raises `BadEventPattern` if it is invalid or not supported here."""
    matches = _object(pattern, "", DEPTH_MAX)
    return EventPattern(matches, frozenset(pattern) if isinstance(pattern, Mapping) else frozenset())


def _object(pattern: Json, where: str, depth: int) -> Callable[[Mapping[str, Json]], bool]:
    if not isinstance(pattern, Mapping) or not pattern:
        raise BadEventPattern(where, "must be an object with at least one name")
    if not depth:
        raise BadEventPattern(where, f"is nested deeper than {DEPTH_MAX}; no event is")
    tests = [(name, _field(wanted, f"{where}.{name}".lstrip("."), depth - 1)) for name, wanted in pattern.items()]
    return lambda event: all(test(event.get(name, _MISSING)) for name, test in tests)


def _field(wanted: Json, where: str, depth: int) -> _Test:
    if isinstance(wanted, Mapping):
        inner = _object(wanted, where, depth)
        return lambda found: any(inner(each) for each in _objects(found))
    if not isinstance(wanted, list | tuple) or not wanted:
        raise BadEventPattern(where, 'must be a list of what it may be, as in ["JOB_FAILED"], or an object')
    if len(wanted) > CHOICES_MAX:
        raise BadEventPattern(where, f"lists {len(wanted)} choices; {CHOICES_MAX} is the most")
    # A list in an event may be long, so plain values are looked up in a set, and only the other choices are tested one
    # by one.
    values = {_value(each) for each in wanted if not isinstance(each, Mapping | list | tuple)}
    choices = [_choice(each, where) for each in wanted if isinstance(each, Mapping | list | tuple)]
    return lambda found: any(
        _is_value_of(each, values) or any(choice(each) for choice in choices) for each in _members(found)
    )


def _value(value: Json) -> tuple[bool, Json]:
    """Return the lookup key of a value. A boolean is not a number, although True equals 1 in Python."""
    return isinstance(value, bool), value


def _is_value_of(found: _Found, values: Collection[tuple[bool, Json]]) -> bool:
    if isinstance(found, Mapping | list | tuple | _Missing):
        return False
    return bool(values) and _value(found) in values


def _members(found: _Found) -> Sequence[_Found]:
    """Return the members of a list, of which one must match, or the value itself."""
    return found if isinstance(found, list | tuple) and found else [found]


def _objects(found: _Found) -> Sequence[Mapping[str, Json]]:
    """Return the objects, at any depth of lists, of which one must have all required names."""
    objects: list[Mapping[str, Json]] = []
    pending = [found]
    while pending:
        match pending.pop():
            case Mapping() as each:
                objects.append(each)
            case list() | tuple() as members:
                pending.extend(members)
            case _:
                continue
    # A missing object counts as an empty one: only then can `exists: false` be asked about a nested name.
    return objects or [{}]


def _choice(wanted: Json, where: str) -> _Test:
    match wanted:
        case {"prefix": str(prefix), **rest} if not rest:
            return lambda found: isinstance(found, str) and found.startswith(prefix)
        case {"exists": bool(exists), **rest} if not rest:
            return lambda found: (found is not _MISSING and not isinstance(found, Mapping)) == exists
        case {"anything-but": but, **rest} if not rest:
            return _anything_but(but, where)
        case {"numeric": list() | tuple() as bounds, **rest} if not rest:
            return _numeric(bounds, where)
        case _:
            raise BadEventPattern(where, f"each choice is a value, or an object with one of {_KINDS} in its right form")


def _exactly(wanted: Json) -> _Test:
    # A boolean is not a number, although Python treats True as equal to 1.
    return lambda found: found == wanted and isinstance(found, bool) == isinstance(wanted, bool)


def _anything_but(but: Json, where: str) -> _Test:
    """Return a test that passes for any present value except these."""
    if isinstance(but, Mapping):
        prefix = but.get("prefix")
        if len(but) != 1 or not isinstance(prefix, str):
            raise BadEventPattern(where, _BUT)
        return lambda found: isinstance(found, str) and not found.startswith(prefix)
    refused = [_exactly(each) for each in _plain_values(but, where)]
    return lambda found: found is not _MISSING and not any(is_it(found) for is_it in refused)


def _plain_values(but: Json, where: str) -> Sequence[Json]:
    values = but if isinstance(but, list | tuple) else [but]
    are_texts = [isinstance(each, str) for each in values]
    if not values or not (all(are_texts) or all(_number(each) is not None for each in values)):
        raise BadEventPattern(where, _BUT)
    return values


def _numeric(bounds: Sequence[Json], where: str) -> _Test:
    pairs = list(zip(bounds[::2], bounds[1::2], strict=False))
    if len(bounds) not in {2, 4}:
        raise BadEventPattern(where, 'numeric takes one or two bounds, as in [">", 0, "<=", 100]')
    tests = [_bound(comparison, limit, where) for comparison, limit in pairs]
    return lambda found: all(test(found) for test in tests)


def _bound(comparison: Json, limit: Json, where: str) -> _Test:
    compare = _COMPARISONS.get(comparison) if isinstance(comparison, str) else None
    bound = _number(limit)
    if compare is None or bound is None:
        raise BadEventPattern(where, f"numeric compares by {' '.join(_COMPARISONS)} with a number")

    def test(found: _Found) -> bool:
        number = _number(found)
        return number is not None and compare(number, bound)

    return test


def _number(value: _Found) -> Number | None:
    match value:
        case bool():
            return None
        case float():
            return Decimal(repr(value))
        case int() | Decimal():
            return value
        case _:
            return None
