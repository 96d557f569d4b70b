"""How the vectors, written for the reference, are put to this program: the only place that translates.

It may translate, never skip. A case whose expectation we do not meet on purpose is listed, with its reason, in
`DEVIATIONS.md`; `tests/unit/test_vectors.py` fails for a deviation that is not listed, and for a listed one that no
longer deviates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeAlias

from worker.config import load_text
from worker.core.calendars import Calendar
from worker.core.rules import Check, Group, Mode, Rule, evaluate

Case: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What this program says, and the answers the vector accepts."""

    got: object
    accepted: tuple[object, ...]

    @property
    def is_met(self) -> bool:
        return self.got in self.accepted


def expected(case: Case) -> tuple[object, ...]:
    return (case["expect"], *case.get("alsoAcceptable", ()))


# --- rules.json -------------------------------------------------------------------------------------------------------


def judge_rules(case: Case) -> Outcome:
    now = datetime.fromisoformat(case["now"])
    if "rule" in case:
        return Outcome({"pass": _is_rule_met(case["rule"], case["sensors"], now)}, expected(case))
    group = Group(mode=_mode(case["mode"]), members=tuple(_rule(raw) for raw in case["rules"]))
    result = evaluate(group, case["sensors"], now)
    return Outcome({"pass": result.passed, "results": [member.passed for member in result.members]}, expected(case))


def _is_rule_met(raw: Case, sensors: Case, now: datetime) -> bool:
    """A rule with an operator that does not exist is refused when it is loaded, and so never passes."""
    return raw["check"] in set(Check) and evaluate(Group(members=(_rule(raw),)), sensors, now).passed


def _rule(raw: Case) -> Rule:
    return Rule(key=raw["key"], check=Check(raw["check"]), field=raw.get("field"), value=raw.get("value"))


def _mode(text: str) -> Mode:
    """Old files are loaded leniently: what is not `any`, in whatever case, means all."""
    return Mode.ANY if text.upper() == "ANY" else Mode.ALL


# --- sla.json ---------------------------------------------------------------------------------------------------------


# --- config.json ------------------------------------------------------------------------------------------------------

# The vectors name a calendar that the reference never looks up; here it has to exist.
CALENDARS = {"us-federal": Calendar(name="us-federal", dates={date(2026, 12, 25): "Christmas Day"})}


def judge_config(case: Case) -> Outcome:
    """A file is valid, or every text the vector asks for is in some error, as many errors as it counts."""
    errors = [str(problem) for problem in load_text(case["yaml"], calendars=CALENDARS).errors]
    unmentioned = [wanted for wanted in case["errorMentions"] if not any(wanted in error for error in errors)]
    counted = {"errors": len(errors)} if "errorCount" in case else {}
    got = {"valid": not errors, "unmentioned": unmentioned, **counted}
    wanted_count = {"errors": case["errorCount"]} if counted else {}
    return Outcome(got=got, accepted=({"valid": case["valid"], "unmentioned": [], **wanted_count},))


# --- calendar.json ----------------------------------------------------------------------------------------------------


# --- schedule.json ----------------------------------------------------------------------------------------------------


TRANSLATORS: Mapping[str, Callable[[Case], Outcome]] = {
    "rules": judge_rules,
    "config": judge_config,
}
