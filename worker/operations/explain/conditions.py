"""Lists the conditions of a gate."""

from collections.abc import Iterator, Mapping

from worker.core.model.rules import GroupResult, RuleResult
from worker.core.run.drift import changed_at
from worker.core.run.sensor_match import SensorContent, is_for_later
from worker.core.run.state import Run
from worker.operations.explain.explanation import Condition
from worker.store.repos.sensors import Sensor


def condition_of(result: RuleResult, sensor: Sensor | None, run: Run | None, note: str = "") -> Condition:
    """Describe one rule. `note` describes the result of a probe, which the rule was evaluated on."""
    rule = result.rule
    return Condition(
        subject=f"{rule.key}.{rule.field}" if rule.field else rule.key,
        passed=result.passed,
        seen=result.seen,
        wanted=result.wanted,
        reason=f"{result.reason} ({note})" if note and sensor is not None else result.reason,
        sensor=None if sensor is None else sensor.key,
        changed_at=None if sensor is None else changed_at(sensor.data),
        is_news=None if run is None or sensor is None else _is_news(rule.key, sensor, run),
    )


def _is_news(name: str, sensor: Sensor, run: Run) -> bool | None:
    """Return whether a sensor differs from what the job was started on, by the rule for a success.

    None if no job was started on it.
    """
    started_on = run.started_on.get(name)
    if started_on is None:
        return None
    is_over = is_for_later(SensorContent(sensor.key, sensor.data), run.key.period)
    return sensor.content_hash != started_on and not is_over


def conditions_of(
    result: GroupResult, sensors: Mapping[str, Sensor], run: Run | None, notes: Mapping[str, str]
) -> Iterator[Condition]:
    """Yield every rule of the group and of its nested groups, in the order they are written."""
    for member in result.members:
        if isinstance(member, GroupResult):
            yield from conditions_of(member, sensors, run, notes)
        else:
            key = member.rule.key
            yield condition_of(member, sensors.get(key), run, notes.get(key, ""))
