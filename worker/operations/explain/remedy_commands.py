"""Writes the changes that an explanation asks for as command lines, where a command can make them."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from worker.core.model.checks import Operator
from worker.core.model.rules import GroupResult, RuleResult, evaluate, evaluate_rule
from worker.core.model.values import Json
from worker.operations.explain.explanation import Explanation
from worker.operations.explain.remedies import change_for
from worker.operations.explain.snapshot import RunSnapshot

LINE_MAX: Final = 1_000  # a longer line is not one that a person checks before it is run
NOW: Final = "$(date -u +%Y-%m-%dT%H:%M:%SZ)"


def remedy_commands(sight: RunSnapshot, explanation: Explanation) -> tuple[str, ...]:
    """Return one line for each sensor to write, or none if some change has no known value.

    A command replaces a sensor, so its line repeats what the sensor has already.
    """
    fields: dict[str, dict[str, Json]] = {}
    for result in _failed(sight):
        if change_for(result, sight.key.period, sight.schedule.zone) not in explanation.needed:
            continue
        found = _field(result)
        if found is None:
            return ()  # a command for a part of the changes would look like all of them
        fields.setdefault(result.rule.key, {}).update(found)
    lines = [_line(sight, key, wanted) for key, wanted in fields.items()]
    return tuple(line for line in lines if len(line) <= LINE_MAX)


def _failed(sight: RunSnapshot) -> Iterator[RuleResult]:
    data = {name: sensor.data for name, sensor in sight.sensors.items()}
    if sight.run is None and sight.schedule.trigger is not None:
        result = evaluate_rule(sight.schedule.trigger.rule, data, sight.now)
        if not result.passed:
            yield result
    yield from _failed_in(evaluate(sight.pipeline.rules, data, sight.now))


def _failed_in(group: GroupResult) -> Iterator[RuleResult]:
    for member in group.members:
        if isinstance(member, GroupResult):
            yield from _failed_in(member)
        elif not member.passed:
            yield member


def _field(result: RuleResult) -> dict[str, Json] | None:
    """Return a field with the nearest value that makes the rule hold; None if none is known."""
    rule, value = result.rule, result.rule.value
    if rule.check is Operator.EXISTS and rule.field is None:
        return {"ready": True}
    if rule.field is None or "." in rule.field:
        return None
    match rule.check, value:
        case ((Operator.EQUALS | Operator.GTE | Operator.LTE), _):
            return {rule.field: value}
        case Operator.GT, int() if not isinstance(value, bool):
            return {rule.field: value + 1}
        case Operator.LT, int() if not isinstance(value, bool):
            return {rule.field: value - 1}
        case ((Operator.IN | Operator.BETWEEN), [first, *_]):
            return {rule.field: first}
        case Operator.AGE_LT, _:
            return {rule.field: NOW}
        case _:
            return None


def _line(sight: RunSnapshot, key: str, wanted: Mapping[str, Json]) -> str:
    sensor = sight.sensors.get(key)
    known = {} if sensor is None else dict(sensor.data)
    merged = {**known, **wanted}
    period = "" if sensor is not None and "#" not in sensor.key else f" --period {sight.key.period}"
    head = f"interlock sensor put {shlex.quote(sight.key.pipeline)} {shlex.quote(key)}"
    if all(isinstance(value, str | int | float | bool) for value in merged.values()):
        return f"{head} {' '.join(_argument(name, value) for name, value in merged.items())}{period}"
    return f"{head} --data {shlex.quote(json.dumps(merged, default=str))}{period}"


def _argument(name: str, value: Json) -> str:
    if value == NOW:
        return f"{shlex.quote(name)}={NOW}"
    text = value if isinstance(value, str) and not _reads_as_other(value) else json.dumps(value, ensure_ascii=False)
    return f"{shlex.quote(name)}={shlex.quote(text)}"


def _reads_as_other(text: str) -> bool:
    """Return whether a command would read a text as a number, a constant or JSON."""
    try:
        json.loads(text)
    except ValueError:
        return text.startswith(("@", '"'))
    return True
