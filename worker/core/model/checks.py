"""Checks that a rule can make: each compares one value with what the rule asks for."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

from worker.core.model.pattern_syntax import BadPattern
from worker.core.model.patterns import TEXT_CHARS_MAX, compile_pattern
from worker.core.model.values import Json, Number, is_same, read_number, show
from worker.core.time.durations import format_duration, parse_duration
from worker.core.time.timestamps import parse_rfc3339


class Operator(StrEnum):
    EXISTS = "exists"
    MISSING = "missing"
    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    IN = "in"
    BETWEEN = "between"
    MATCHES = "matches"
    AGE_LT = "age_lt"
    AGE_GT = "age_gt"
    PASSES = "passes"  # an evaluator's verdict: its field `status` is PASS


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """Holds the result of a check. A `problem` completes the sentence "<field> is <value>, …".

    It is "" if the two values could be compared.
    """

    passed: bool
    problem: str = ""


Judge: TypeAlias = Callable[[Json, Json], OperatorResult]

_HOLDS, _FAILS = OperatorResult(True), OperatorResult(False)
_NOT_A_NUMBER = OperatorResult(False, "which is not a number")
_NOT_TEXT = OperatorResult(False, "which is not text")
_NOT_AN_INSTANT = OperatorResult(False, "which is not an RFC 3339 time such as 2026-03-01T12:00:00Z")
_TOO_LONG = OperatorResult(False, f"which is longer than the {TEXT_CHARS_MAX} characters a pattern is held against")

# Rules repeat the same few durations in every evaluation.
_read_duration = lru_cache(maxsize=1024)(parse_duration)


def _bad_rule(wanted: Json, accepted: str) -> OperatorResult:
    """Return a failed result for a rule with an unusable value.

    Files with such a value are rejected; a rule from another source must still fail with a clear reason.
    """
    return OperatorResult(False, f"but the rule asks for {show(wanted)}, which is not {accepted}: correct the rule")


def _verdict(holds: bool) -> OperatorResult:
    return _HOLDS if holds else _FAILS


def _equals(seen: Json, wanted: Json) -> OperatorResult:
    return _verdict(is_same(seen, wanted))


def _differs(seen: Json, wanted: Json) -> OperatorResult:
    return _verdict(not is_same(seen, wanted))


def _is_one_of(seen: Json, wanted: Json) -> OperatorResult:
    if not isinstance(wanted, (list, tuple)):
        return _bad_rule(wanted, "a list of accepted values")
    return _verdict(any(is_same(seen, accepted) for accepted in wanted))


def _ordered(holds: Callable[[Number, Number], bool]) -> Judge:
    def judge(seen: Json, wanted: Json) -> OperatorResult:
        number, bound = read_number(seen), read_number(wanted)
        if bound is None:
            return _bad_rule(wanted, "a number")
        return _NOT_A_NUMBER if number is None else _verdict(holds(number, bound))

    return judge


def _is_between(seen: Json, wanted: Json) -> OperatorResult:
    bounds = [read_number(bound) for bound in wanted] if isinstance(wanted, (list, tuple)) else []
    low, high = bounds if len(bounds) == 2 else (None, None)
    if low is None or high is None:
        return _bad_rule(wanted, "two numbers [lowest, highest]")
    number = read_number(seen)
    return _NOT_A_NUMBER if number is None else _verdict(low <= number <= high)


def _matches(seen: Json, wanted: Json) -> OperatorResult:
    if not isinstance(wanted, str):
        return _bad_rule(wanted, "a pattern in text")
    try:
        pattern = compile_pattern(wanted)
    except BadPattern as bad:
        return _bad_rule(wanted, f"a pattern that is understood ({bad.problem})")
    if not isinstance(seen, str):
        return _NOT_TEXT
    return _TOO_LONG if len(seen) > TEXT_CHARS_MAX else _verdict(pattern.matches(seen))


def pattern_steps(seen: Json, wanted: Json) -> tuple[int, int]:
    """Return the most steps that `matches` takes to match the text, and to compile the pattern first."""
    if not isinstance(seen, str) or not isinstance(wanted, str) or len(seen) > TEXT_CHARS_MAX:
        return 0, 0
    try:
        pattern = compile_pattern(wanted)
    except BadPattern:
        return 0, 0
    return pattern.steps_max(seen), pattern.compile_steps


COMPARISONS: Mapping[Operator, Judge] = {
    Operator.EQUALS: _equals,
    Operator.NOT_EQUALS: _differs,
    Operator.GT: _ordered(operator.gt),
    Operator.GTE: _ordered(operator.ge),
    Operator.LT: _ordered(operator.lt),
    Operator.LTE: _ordered(operator.le),
    Operator.IN: _is_one_of,
    Operator.BETWEEN: _is_between,
    Operator.MATCHES: _matches,
    Operator.PASSES: _equals,
}


def judge_age(check: Operator, seen: Json, wanted: Json, *, now: datetime, max_future: timedelta) -> OperatorResult:
    """Compare an instant's age strictly: younger (`age_lt`) or older (`age_gt`) than the duration.

    Clocks differ a little, so an instant may lie up to `max_future` ahead. An instant further ahead is a mistake of the
    producer that would look fresh forever, so it satisfies neither check.
    """
    limit = _read_duration(wanted) if isinstance(wanted, str) else None
    if limit is None:
        return _bad_rule(wanted, "a duration such as 90s, 1h30m or 7d")
    instant = parse_rfc3339(seen) if isinstance(seen, str) else None
    if instant is None:
        return _NOT_AN_INSTANT
    age = now - instant
    if -age > max_future:
        ahead, allowed = format_duration(-age), format_duration(max_future)
        return OperatorResult(False, f"which is {ahead} in the future, more than the {allowed} that clocks may differ")
    return _verdict(age < limit if check is Operator.AGE_LT else age > limit)


_WANTED: Mapping[Operator, str] = {
    Operator.EXISTS: "present",
    Operator.MISSING: "missing",
    Operator.EQUALS: "equal to {}",
    Operator.NOT_EQUALS: "different from {}",
    Operator.GT: "more than {}",
    Operator.GTE: "at least {}",
    Operator.LT: "less than {}",
    Operator.LTE: "at most {}",
    Operator.IN: "one of {}",
    Operator.BETWEEN: "within {}",
    Operator.MATCHES: "a full match for {}",
    Operator.AGE_LT: "younger than {}",
    Operator.AGE_GT: "older than {}",
    Operator.PASSES: "a pass",
}


def describe_wanted(check: Operator, value: Json) -> str:
    """Return what the check asks for, to follow "is" or "is not" in a sentence."""
    shown = show(value)
    if check in (Operator.AGE_LT, Operator.AGE_GT):
        shown = shown.strip('"')  # a duration reads better without quotes: younger than 2h
    return _WANTED[check].format(shown)
