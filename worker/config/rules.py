"""Reads rules and groups of rules into the core's."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import assert_never, cast

from worker.config.problems import Problems, show
from worker.config.scalars import read_duration
from worker.config.schema import (
    AllGroup,
    AnyGroup,
    AtLeast,
    AtLeastGroup,
    RuleItem,
    RuleSection,
    ValidationSection,
)
from worker.core.model.patterns import compile_pattern
from worker.core.model.rules import Group, Json, Mode, Operator, Rule
from worker.core.model.values import read_number
from worker.core.time.durations import parse_duration
from worker.yaml.document import Path

_PRESENCE = {Operator.EXISTS, Operator.MISSING}
RULES_MAX = 200
_MAX_FUTURE = timedelta(minutes=5)


def read_validation(section: ValidationSection, path: Path, problems: Problems) -> Group:
    """Return the rules that must hold before the job starts."""
    members = read_rules(section.rules, (*path, "rules"), problems).members
    if isinstance(section.trigger, AtLeast):
        at = (*path, "trigger", "atLeast")
        return _at_least(section.trigger.at_least, members, at, problems)
    return Group(mode=Mode(section.trigger), members=members)


def read_rules(items: Sequence[RuleItem], path: Path, problems: Problems) -> Group:
    """Return a group of rules that must all hold."""
    count = _count(items)
    if count > RULES_MAX:
        problems.error(path, f"has {count} rules; at most {RULES_MAX} are accepted", "use several pipelines")
        return Group()
    return Group(members=_read_members(items, path, problems))


def _count(items: Sequence[RuleItem]) -> int:
    return sum(1 if isinstance(item, RuleSection) else 1 + _count(items_of(item)) for item in items)


def items_of(group: AnyGroup | AllGroup | AtLeastGroup) -> Sequence[RuleItem]:
    """Return the members of a group, whichever kind it is."""
    match group:
        case AnyGroup():
            return group.any
        case AllGroup():
            return group.all
        case AtLeastGroup():
            return group.rules


def _read_members(items: Sequence[RuleItem], path: Path, problems: Problems) -> tuple[Rule | Group, ...]:
    return tuple(_read_item(item, (*path, index), problems) for index, item in enumerate(items))


def _read_item(item: RuleItem, path: Path, problems: Problems) -> Rule | Group:
    match item:
        case RuleSection():
            return read_rule(item, path, problems)
        case AnyGroup():
            return Group(mode=Mode.ANY, members=_read_members(item.any, (*path, "any"), problems))
        case AllGroup():
            return Group(members=_read_members(item.all, (*path, "all"), problems))
        case AtLeastGroup():
            members = _read_members(item.rules, (*path, "rules"), problems)
            return _at_least(item.at_least, members, (*path, "atLeast"), problems)
        case _:
            assert_never(item)


def _at_least(count: int, members: tuple[Rule | Group, ...], path: Path, problems: Problems) -> Group:
    if count > len(members):
        message = f"asks for {count} of {len(members)} rules"
        problems.tolerate(path, message, "ask for no more than there are", instead="it never holds")
    return Group(mode=Mode.AT_LEAST, members=members, count=count)


def read_rule(section: RuleSection, path: Path, problems: Problems) -> Rule:
    """Read one rule.

    In a lenient reading, a rule that the Lambda edition could never pass becomes a rule that never holds.
    """
    if not section.key:
        problems.tolerate((*path, "key"), "is required: the key of a sensor", instead="the rule never holds")
    if not section.check:
        problems.tolerate((*path, "check"), "is required: what must be true", instead="the rule never holds")
    if not section.key or not section.check:
        return _never(section.key)
    check = Operator(section.check)
    if check is Operator.PASSES:
        return _read_passes(section, path, problems)
    if check in _PRESENCE:
        return _read_presence(section, check, path, problems)
    return _read_comparison(section, check, path, problems)


def _read_passes(section: RuleSection, path: Path, problems: Problems) -> Rule:
    """Read the short form of `{check: equals, field: status, value: PASS}`, an evaluator's verdict."""
    for name, given in (("field", section.field), ("value", section.value)):
        if given is not None:
            problems.warning((*path, name), "`passes` tests the field `status`", "remove it, or use `equals`")
    return Rule(key=section.key, check=Operator.PASSES, field="status", value="PASS")


def _read_presence(section: RuleSection, check: Operator, path: Path, problems: Problems) -> Rule:
    if section.value is not None:
        problems.warning((*path, "value"), f"`{check}` looks at no value", "remove it")
    if check is Operator.EXISTS and section.field:
        problems.warning((*path, "field"), "`exists` looks at the sensor as a whole", "compare the field, or remove it")
        return Rule(key=section.key, check=check)
    return Rule(key=section.key, check=check, field=section.field or None)


def _read_comparison(section: RuleSection, check: Operator, path: Path, problems: Problems) -> Rule:
    if section.field is None:
        problems.tolerate(path, f"`{check}` needs a `field` to look at", instead="looking at the field with no name")
    complaint = _complain(check, section)
    if complaint:
        problems.tolerate((*path, "value"), complaint, instead="the rule never holds")
        # An unusable pattern reports itself at each evaluation.
        if check is not Operator.MATCHES or not isinstance(section.value, str):
            return _never(section.key)
    skew_at = (*path, "maxFutureSkew")
    skew = read_duration(section.max_future_skew, skew_at, problems, default=_MAX_FUTURE, least=timedelta(0))
    value = cast("Json", section.value)
    return Rule(key=section.key, check=check, field=section.field or "", value=value, max_future=skew)


def _never(key: str) -> Rule:
    """Return a rule that no data can pass: a value in an empty list."""
    return Rule(key=key, check=Operator.IN, field="", value=[])


def _complain(check: Operator, section: RuleSection) -> str:
    """Return what is wrong with the value for this operator; empty if nothing is."""
    if "value" not in section.model_fields_set:
        return f"`{check}` needs a `value` (`value: null` compares with nothing)"
    complain = _COMPLAINTS.get(check)
    return complain(section.value) if complain else ""


def _complain_number(value: object) -> str:
    return "" if read_number(cast("Json", value)) is not None else f"must be a number; found {show(value)}"


def _complain_list(value: object) -> str:
    return "" if isinstance(value, list) and value else "must be a list of at least one value"


def _complain_range(value: object) -> str:
    found = show(value)
    items = cast("list[Json]", value) if isinstance(value, list) else []
    match [read_number(item) for item in items]:
        case [low, high] if low is not None and high is not None:
            return "" if low <= high else "the lower bound comes first: [low, high]"
        case _:
            return f"must be two numbers, [low, high]; found {found}"


def _complain_pattern(value: object) -> str:
    if not isinstance(value, str):
        return f"must be a pattern, as text; found {show(value)}"
    try:
        compile_pattern(value)
    except ValueError as error:
        return f"is not a pattern: {error}"
    return ""


def _complain_age(value: object) -> str:
    duration = parse_duration(value) if isinstance(value, str) else None
    if duration is None or duration < timedelta(0):
        return f"must be a duration such as 24h or 7d, not less than zero; found {show(value)}"
    return ""


_COMPLAINTS: dict[Operator, Callable[[object], str]] = {
    **dict.fromkeys((Operator.GT, Operator.GTE, Operator.LT, Operator.LTE), _complain_number),
    **dict.fromkeys((Operator.AGE_LT, Operator.AGE_GT), _complain_age),
    Operator.IN: _complain_list,
    Operator.BETWEEN: _complain_range,
    Operator.MATCHES: _complain_pattern,
}
