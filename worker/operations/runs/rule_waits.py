"""Describes which rules a waiting run waits for, from its configuration and its sensors."""

from collections.abc import Iterator
from datetime import datetime

from worker.config.versions import PipelineVersions
from worker.core.model.keys import RunKey
from worker.core.model.readiness import ReadinessVerdict
from worker.core.model.rules import GroupResult, evaluate_in_turns
from worker.runtime.turns import in_turns
from worker.store.repos.probes.traits import read_rule_inputs
from worker.store.repos.readiness import ReadinessRows
from worker.store.table import Tables


class RuleWaits:
    """Evaluates the rules of waiting runs. It caches configurations, because many runs share one."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._configs = tables, PipelineVersions(tables)
        self._readiness = ReadinessRows(tables)

    async def of(self, key: RunKey, config_hash: str, now: datetime) -> str:
        """Return the first condition that does not hold. Raises `RetryLater`.

        The last evaluation of a worker kept it; only a run that none has evaluated yet is evaluated here.
        """
        kept = await self._readiness.load(key.pipeline, key.schedule)
        if kept is not None and kept.key == key and kept.verdict is ReadinessVerdict.WAITING and kept.first_missing:
            missing = sum(not rule.holds for rule in kept.rules)
            return f"{kept.first_missing.reason}{_more(missing)}"
        version = await self._configs.find(key.pipeline, config_hash)
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if version is None or schedule is None:
            return "its configuration, which was deleted"
        if schedule.after:
            from worker.operations.explain.upstream_gates import UpstreamView  # noqa: PLC0415  as below

            seen = await UpstreamView(self._tables, self._configs).of(key, schedule, now)
            if not seen.gate.is_passed:
                return seen.names
        from worker.core.run.evaluation import required_sensors  # noqa: PLC0415  loaded after the pipeline

        names = required_sensors(version.pipeline, schedule)
        read = await read_rule_inputs(self._tables, version.pipeline, names, key.period, now)
        data = {name: sensor.data for name, sensor in read.sensors.items()}
        return waits_for_rules(await in_turns(evaluate_in_turns(version.pipeline.rules, data, now, read.absences)))


def waits_for_rules(result: GroupResult) -> str:
    """Return the first condition that does not hold, and the number of the others."""
    if result.passed:
        return "its next evaluation; all rules pass"
    reasons = list(_failed(result))
    if not reasons:
        return result.reason
    return f"{reasons[0]}{_more(len(reasons))}"


def _more(number: int) -> str:
    return f", and {number - 1} more" if number > 1 else ""


def _failed(result: GroupResult) -> Iterator[str]:
    for member in result.members:
        if member.passed:
            continue
        if isinstance(member, GroupResult):
            yield from _failed(member)
        else:
            yield member.reason
