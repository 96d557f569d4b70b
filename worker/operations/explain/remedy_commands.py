"""Writes the changes that an explanation asks for as command lines, where a command can make them."""

import json
import shlex
from collections.abc import Iterator, Set
from typing import Final

from worker.core.model.checks import Operator
from worker.core.model.rules import GroupResult, RuleResult, evaluate_rule
from worker.core.model.values import Json
from worker.operations.explain.explanation import Explanation
from worker.operations.explain.remedies import change_for
from worker.operations.explain.snapshot import RunSnapshot
from worker.runtime.logs import is_secret_name, redacted_text

LINE_MAX: Final = 1_000  # a longer line is not one that a person checks before it is run
# The person fills in what is true: a value that merely passes the rule would start the job on bad data.
FIELD: Final = "FIELD"
VALUE: Final = "VALUE"


def remedy_commands(sight: RunSnapshot, explanation: Explanation) -> tuple[str, ...]:
    """Return one line for each sensor to write, or none if a command cannot make some change.

    The values that must change are left to the person. A command replaces a sensor, so its line repeats the sensor's
    other fields; a sensor with a secret has no line.
    """
    fields: dict[str, set[str]] = {}
    for result in _failed(sight):
        if change_for(result, sight.key.period, sight.schedule.zone) not in explanation.needed:
            continue
        found = _field(result)
        if found is None:
            return ()  # a command for a part of the changes would look like all of them
        fields.setdefault(result.rule.key, set()).add(found)
    lines = [_line(sight, key, wanted) for key, wanted in fields.items()]
    return tuple(line for line in lines if line is not None and len(line) <= LINE_MAX)


def _failed(sight: RunSnapshot) -> Iterator[RuleResult]:
    if sight.run is None and sight.schedule.trigger is not None:
        rule = sight.schedule.trigger.rule
        sensor = sight.sensors.get(rule.key)
        result = evaluate_rule(rule, None if sensor is None else sensor.data, sight.now)
        if not result.passed:
            yield result
    yield from _failed_in(sight.rules_result)


def _failed_in(group: GroupResult) -> Iterator[RuleResult]:
    for member in group.members:
        if isinstance(member, GroupResult):
            yield from _failed_in(member)
        elif not member.passed:
            yield member


def _field(result: RuleResult) -> str | None:
    """Return the field that must change; None if a command cannot set it."""
    rule = result.rule
    if rule.field is None:
        return FIELD if rule.check is Operator.EXISTS else None
    return None if "." in rule.field else rule.field


def _line(sight: RunSnapshot, key: str, wanted: Set[str]) -> str | None:
    sensor = sight.sensors.get(key)
    known = {} if sensor is None else {name: value for name, value in sensor.data.items() if name not in wanted}
    if any(is_secret_name(name) or redacted_text(str(value)) != str(value) for name, value in known.items()):
        return None
    period = "" if sensor is not None and "#" not in sensor.key else f" --period {sight.key.period}"
    head = f"interlock sensor put {shlex.quote(sight.key.pipeline)} {shlex.quote(key)}"
    if all(isinstance(value, str | int | float | bool) for value in known.values()):
        kept = [_argument(name, value) for name, value in known.items()]
        return " ".join([head, *kept, *(f"{shlex.quote(name)}={VALUE}" for name in sorted(wanted))]) + period
    merged = {**known, **dict.fromkeys(sorted(wanted), VALUE)}
    return f"{head} --data {shlex.quote(json.dumps(merged, default=str))}{period}"


def _argument(name: str, value: Json) -> str:
    text = value if isinstance(value, str) and not _reads_as_other(value) else json.dumps(value, ensure_ascii=False)
    return f"{shlex.quote(name)}={shlex.quote(text)}"


def _reads_as_other(text: str) -> bool:
    """Return whether a command would read a text as a number, a constant or JSON."""
    try:
        json.loads(text)
    except ValueError:
        return text.startswith(("@", '"'))
    return True
