"""Rule report: what each rule required and what it found, for people and programs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from worker.core.model.rules import GroupResult, RuleResult
from worker.core.model.values import Json, show

RULES_REPORTED_MAX: Final = 20
VALUE_MAX: Final = 200  # characters of a value or a reason; sensors belong to producers and may be long


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleReport:
    """Holds one rule's result as text. An empty `key` is a condition that no single sensor decides."""

    key: str
    field: str = ""
    check: str = ""
    holds: bool
    required: str = ""
    actual: str = ""
    reason: str

    def record(self) -> dict[str, Json]:
        """Return the report as JSON; empty parts are left out."""
        parts: dict[str, Json] = {
            "key": self.key,
            "field": self.field,
            "check": self.check,
            "required": self.required,
            "actual": self.actual,
            "reason": self.reason,
        }
        return {"holds": self.holds, **{name: value for name, value in parts.items() if value}}


def reports_of(result: GroupResult) -> Iterator[RuleReport]:
    """Yield a report for every rule of a group and of its nested groups, in the order they are written."""
    for member in result.members:
        if isinstance(member, GroupResult):
            yield from reports_of(member)
        else:
            yield report_of(member)


def missing_of(result: GroupResult) -> Iterator[RuleReport]:
    """Yield the rules that keep a group from holding: those that fail, in groups that fail."""
    if result.passed:
        return
    for member in result.members:
        if isinstance(member, GroupResult):
            yield from missing_of(member)
        elif not member.passed:
            yield report_of(member)


def report_of(result: RuleResult) -> RuleReport:
    rule = result.rule
    return RuleReport(
        key=rule.key,
        field=rule.field or "",
        check=rule.check.value,
        holds=result.passed,
        required=_cut(result.wanted),
        actual="" if result.seen is None else _cut(show(result.seen)),
        reason=_cut(result.reason),
    )


def unmet(reason: str, key: str = "") -> RuleReport:
    """Report a condition that is not a rule, such as an upstream or a run that does not exist."""
    return RuleReport(key=key, holds=False, reason=_cut(reason))


def missing_record(missing: Iterable[RuleReport]) -> dict[str, Json]:
    """Return the detail of an event: the first missing conditions, and how many there are."""
    found = list(missing)
    shown: list[Json] = [each.record() for each in found[:RULES_REPORTED_MAX]]
    return {"missing": shown, "missingCount": len(found)}


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_MAX else f"{text[: VALUE_MAX - 1]}…"
