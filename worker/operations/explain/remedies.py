"""Finds the smallest change to the data that makes rules hold, in the imperative.

For example: `write orders.count >= 1000 for …`.
"""

from collections.abc import Container, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

from worker.core.model.checks import Operator
from worker.core.model.rules import GroupResult, Mode, RuleResult
from worker.core.model.values import show
from worker.core.time.durations import parse_duration
from worker.core.time.periods import Period
from worker.core.time.timestamps import parse_rfc3339
from worker.operations.explain.snapshot import moment

_SIGNS = {
    Operator.EQUALS: "=",
    Operator.GT: ">",
    Operator.GTE: ">=",
    Operator.LT: "<",
    Operator.LTE: "<=",
    Operator.IN: "as one of",
    Operator.BETWEEN: "within",
    Operator.MATCHES: "so that it matches",
    Operator.NOT_EQUALS: "as anything but",
    Operator.PASSES: "=",
}


def smallest_changes(
    result: GroupResult, period: Period, zone: ZoneInfo, probes: Container[str] = ()
) -> tuple[str, ...]:
    """Return all changes that make the group hold; of alternatives, those with the fewest changes.

    Nobody writes the results of `probes`: what they ask must change.
    """
    if result.passed:
        return ()
    options = [_changes_of(member, period, zone, probes) for member in result.members if not member.passed]
    return tuple(change for chosen in _cheapest(options, _missing(result)) for change in chosen)


def change_for(result: RuleResult, period: Period, zone: ZoneInfo, probes: Container[str] = ()) -> str:
    """Return the change that makes one failing rule hold."""
    rule = result.rule
    subject = f"{rule.key}.{rule.field}" if rule.field else rule.key
    if rule.key in probes:
        return f"wait until probe {rule.key} finds that {subject} is {result.wanted} for {period}"
    match rule.check:
        case Operator.EXISTS:
            return f"write sensor {rule.key} for {period}"
        case Operator.MISSING if rule.field is None:
            return f"remove sensor {rule.key} of {period}"
        case Operator.MISSING:
            return f"write {rule.key} without {rule.field} for {period}"
        case Operator.AGE_GT if at := _old_enough_at(result):
            return f"wait until {moment(at, zone)}, when {subject} is older than {_bare(result)}"
        case Operator.AGE_GT:
            return f"write {subject} with a time more than {_bare(result)} ago for {period}"
        case Operator.AGE_LT:
            return f"write {subject} with a time less than {_bare(result)} ago for {period}"
        case check:
            return f"write {subject} {_SIGNS[check]} {show(rule.value)} for {period}"


def _changes_of(
    result: RuleResult | GroupResult, period: Period, zone: ZoneInfo, probes: Container[str]
) -> tuple[str, ...]:
    if isinstance(result, GroupResult):
        # A group that no change of data can satisfy must not look like one that needs no change.
        return smallest_changes(result, period, zone, probes) or (f"correct the rules: {result.reason}",)
    return (change_for(result, period, zone, probes),)


def _missing(result: GroupResult) -> int:
    """Return how many failing members must hold for the group to hold."""
    failed = sum(not member.passed for member in result.members)
    match result.mode:
        case Mode.ALL:
            return failed
        case Mode.ANY:
            return 1
        case Mode.AT_LEAST:
            return result.count - (len(result.members) - failed)


def _cheapest(options: Sequence[tuple[str, ...]], number: int) -> list[tuple[str, ...]]:
    """Return the options with the fewest changes, in the order they are written."""
    ranked = sorted(range(len(options)), key=lambda index: (len(options[index]), index))
    return [options[index] for index in sorted(ranked[:number])]


def _old_enough_at(result: RuleResult) -> datetime | None:
    seen, wanted = result.seen, result.rule.value
    instant = parse_rfc3339(seen) if isinstance(seen, str) else None
    age = parse_duration(wanted) if isinstance(wanted, str) else None
    return instant + age if instant and age else None


def _bare(result: RuleResult) -> str:
    return show(result.rule.value).strip('"')
