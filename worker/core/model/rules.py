"""Rules: conditions on sensors, each with a sentence that says why it holds or not."""

from collections.abc import Container, Generator, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeAlias, TypeVar

from worker.core.model.checks import COMPARISONS, Operator, describe_wanted, judge_age, pattern_steps
from worker.core.model.values import Json, show
from worker.core.time.durations import format_duration
from worker.core.time.timestamps import parse_rfc3339

# The data of the sensors, by key. None: the sensor's row exists, but carries no data.
Sensors: TypeAlias = Mapping[str, Mapping[str, Json] | None]
# Why a probe has no valid result, by key: it is stale, it failed, or it was not sent yet.
Absences: TypeAlias = Mapping[str, str]

_MAPS = (dict, Mapping)  # the concrete type first: a check of the abstract one costs as much as a comparison
_INDEX_DIGITS_MAX = 9
_REASONS_SHOWN_MAX = 3

# Limit for patterns in one evaluation, in steps of `patterns.py`: enough for 200 rules with unbranched patterns on the
# longest texts. That takes about a third of a second, so other tasks get a turn within hundredths of a second.
STEPS_MAX = 4_000_000
STEPS_PER_TURN = 60_000

T = TypeVar("T")


class Mode(StrEnum):
    ALL = "ALL"
    ANY = "ANY"
    AT_LEAST = "AT_LEAST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Rule: one condition on one sensor. `field` None means the whole sensor (`exists`, `missing`)."""

    key: str
    check: Operator
    field: str | None = None
    value: Json = None
    max_future: timedelta = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Group: rules of which all, any, or at least `count` must hold. Groups nest."""

    mode: Mode = Mode.ALL
    members: "tuple[Rule | Group, ...]" = ()
    count: int = 0


class RuleResult(NamedTuple):
    """Holds the result of one rule. Sentences are built on demand, because most results are only counted.

    It is a named tuple, because one is created for every rule on every sensor change: a frozen dataclass costs three
    times as much.
    """

    rule: Rule
    passed: bool
    seen: Json  # the value that was compared; None also if there was none
    at: datetime
    problem: str = ""  # the whole reason, if there was nothing to compare

    @property
    def wanted(self) -> str:
        return describe_wanted(self.rule.check, self.rule.value)

    @property
    def reason(self) -> str:
        """Return one sentence for an operator: "orders.count is 950, which is not at least 1000"."""
        if self.problem:
            return self.problem
        if self.rule.check is Operator.EXISTS or (self.rule.check is Operator.MISSING and self.passed):
            return f"{_subject(self.rule)} is {self.wanted}"
        return f"{_subject(self.rule)} is {self._shown()}, which is {'' if self.passed else 'not '}{self.wanted}"

    def _shown(self) -> str:
        instant = parse_rfc3339(self.seen) if isinstance(self.seen, str) else None
        if instant is None or self.rule.check not in (Operator.AGE_LT, Operator.AGE_GT):
            return show(self.seen)
        age = self.at - instant
        shown = format_duration(timedelta(seconds=abs(age) // timedelta(seconds=1)))
        return f"{show(self.seen)} ({shown} {'ago' if age >= timedelta(0) else 'ahead'})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupResult:
    """Holds the result of a group, with every member's own result, in the group's order."""

    mode: Mode
    count: int
    passed: bool
    members: "tuple[RuleResult | GroupResult, ...]"

    @property
    def reason(self) -> str:
        """Return one sentence for an operator; for a failed group, with the first failed conditions."""
        if not self.members:
            return f"there is no condition{'' if self.passed else ', so none can hold'}"
        failed = [member for member in self.members if not member.passed]
        held = f"{len(self.members) - len(failed)} of {len(self.members)} conditions hold, {self._needed()}"
        if self.passed:
            return held
        more = len(failed) - _REASONS_SHOWN_MAX
        reasons = [member.reason for member in failed[:_REASONS_SHOWN_MAX]] + ([f"and {more} more"] if more > 0 else [])
        return f"{held}: {'; '.join(reasons)}"

    def _needed(self) -> str:
        match self.mode:
            case Mode.ALL:
                return "all are needed"
            case Mode.ANY:
                return "one is needed"
            case Mode.AT_LEAST:
                return f"at least {self.count} are needed"


def keys(group: Group) -> Iterator[str]:
    """Return the key of every sensor that the group names, each once, in order of first mention."""
    return iter(dict.fromkeys(rule.key for rule in leaves(group)))


def leaves(group: Group) -> Iterator[Rule]:
    """Return every rule of a group and of its nested groups, in the order they are written."""
    for member in group.members:
        if isinstance(member, Rule):
            yield member
        else:
            yield from leaves(member)


def evaluate(group: Group, sensors: Sensors, now: datetime, absences: Absences | None = None) -> GroupResult:
    """Evaluate a group on the sensors' data, all at the one instant `now`.

    Every member is evaluated, even if the result is already certain: people want to see everything that is missing. A
    rule on a key in `absences` does not hold, whatever it checks: what the probe would find is unknown. On an event
    loop, use `evaluate_in_turns`: patterns can take a third of a second.
    """
    return at_once(evaluate_in_turns(group, sensors, now, absences))


def evaluate_in_turns(
    group: Group, sensors: Sensors, now: datetime, absences: Absences | None = None
) -> Generator[None, None, GroupResult]:
    """Evaluate a group as `evaluate` does, and yield whenever other tasks should get a turn."""
    return _judge_group(group, sensors, now, _Effort(absences or {}))


def at_once(turns: Generator[None, None, T]) -> T:
    """Return the result of a generator that works in turns, without a pause."""
    while True:
        try:
            next(turns)
        except StopIteration as ended:
            return ended.value


@dataclass(slots=True)
class _Effort:
    """Counts the pattern steps of one evaluation, in total and since other tasks had a turn."""

    absences: Absences
    total: int = 0
    turn: int = 0

    def begin(self, rule: Rule, data: Mapping[str, Json] | None) -> str | None:
        """Count a rule before it is evaluated; return a reason if it would exceed the limit."""
        seen = look_up(data, rule.field)[1] if isinstance(data, _MAPS) else None
        steps, compile_steps = pattern_steps(seen, rule.value)
        self.total += steps
        self.turn += steps + compile_steps
        if self.total <= STEPS_MAX:
            return None
        self.total -= steps
        return (
            f"{_subject(rule)} was not compared: the patterns of these rules would take more than {STEPS_MAX:,} steps; "
            "use fewer or simpler patterns, or shorter texts"
        )

    def is_turn_over(self) -> bool:
        if self.turn <= STEPS_PER_TURN:
            return False
        self.turn = 0
        return True


def _judge_group(group: Group, sensors: Sensors, now: datetime, effort: _Effort) -> Generator[None, None, GroupResult]:
    members: list[RuleResult | GroupResult] = []
    for member in group.members:
        if not isinstance(member, Rule):
            members.append((yield from _judge_group(member, sensors, now, effort)))
            continue
        data = sensors.get(member.key)
        problem = effort.begin(member, data) if member.check is Operator.MATCHES else None
        problem = effort.absences.get(member.key, problem) if effort.absences else problem
        if effort.turn and effort.is_turn_over():
            yield
        members.append(RuleResult(member, False, None, now, problem) if problem else evaluate_rule(member, data, now))
    return _group_result(group, tuple(members))


def _group_result(group: Group, members: tuple[RuleResult | GroupResult, ...]) -> GroupResult:
    held = sum([member.passed for member in members])
    match group.mode:
        case Mode.ALL:
            passed = held == len(members)
        case Mode.ANY:
            passed = held > 0
        case Mode.AT_LEAST:
            passed = held >= group.count
    return GroupResult(mode=group.mode, count=group.count, passed=passed, members=members)


def may_hold(result: GroupResult, unknown: Container[str]) -> bool:
    """Return whether a group could hold if every rule on the unknown sensors did."""
    held = sum(
        member.passed or member.rule.key in unknown if isinstance(member, RuleResult) else may_hold(member, unknown)
        for member in result.members
    )
    needed = {Mode.ALL: len(result.members), Mode.ANY: 1, Mode.AT_LEAST: result.count}
    return held >= needed[result.mode]


def evaluate_rule(rule: Rule, data: Mapping[str, Json] | None, now: datetime) -> RuleResult:
    """Evaluate one rule on its sensor's data; None means that there is no such sensor, or none with data.

    No data makes this raise: a value that a check cannot read fails the rule, with that reason.
    """
    check = rule.check
    if check is Operator.EXISTS or check is Operator.MISSING:
        return _evaluate_presence(rule, data, now)
    if not isinstance(data, _MAPS):
        return RuleResult(rule, False, None, now, f"sensor {rule.key} is missing or has no data")
    found, seen = look_up(data, rule.field)
    if not found:
        return RuleResult(rule, False, None, now, _no_field(rule))
    judge = COMPARISONS.get(check)
    if judge is not None:
        verdict = judge(seen, rule.value)
    else:
        verdict = judge_age(check, seen, rule.value, now=now, max_future=rule.max_future)
    problem = verdict.problem and f"{_subject(rule)} is {show(seen)}, {verdict.problem}"
    if check is Operator.PASSES and not verdict.passed and (why := data.get("reason")):
        problem = f"{_subject(rule)} is {show(seen)}: {show(why)}"
    return RuleResult(rule, verdict.passed, seen, now, problem)


def _evaluate_presence(rule: Rule, data: Mapping[str, Json] | None, now: datetime) -> RuleResult:
    is_there = isinstance(data, _MAPS)
    if rule.check is Operator.EXISTS:  # applies to the sensor, whatever field is named: files rely on that
        problem = "" if is_there else f"sensor {rule.key} is missing or has no data"
        return RuleResult(rule, is_there, None, now, problem)
    if rule.field is None:
        return RuleResult(rule, not is_there, None, now, f"sensor {rule.key} is present" if is_there else "")
    seen = look_up(data, rule.field)[1] if is_there else None
    return RuleResult(rule, seen is None, seen, now)


def look_up(data: Mapping[str, Json], field: str | None) -> tuple[bool, Json]:
    """Return whether a field exists, and its value, which may be null.

    A field with exactly that name comes first, because names may contain dots. Otherwise the name is a path through
    maps and, by position, through lists.
    """
    if field is None:
        return False, None
    if field in data:
        return True, data[field]
    value: Json = data
    for part in field.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, (list, tuple)) and _is_index(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            return False, None
    return True, value


def _is_index(part: str) -> bool:
    return len(part) <= _INDEX_DIGITS_MAX and part.isascii() and part.isdigit()


def _no_field(rule: Rule) -> str:
    if not rule.field:
        return f"the rule on sensor {rule.key} names no field, but {rule.check} looks at one: correct the rule"
    return f"{_subject(rule)} is missing: the sensor has no such field"


def _subject(rule: Rule) -> str:
    return f"{rule.key}.{rule.field}" if rule.field and rule.check is not Operator.EXISTS else f"sensor {rule.key}"
