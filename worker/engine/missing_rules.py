"""Missing rules: what keeps a run from starting, evaluated now, whether or not the run exists."""

from worker.config.versions import Version
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Match, Pipeline, Schedule
from worker.core.model.rule_report import RuleReport, missing_of, report_of, unmet
from worker.core.model.rules import evaluate_in_turns, evaluate_rule
from worker.core.run.state import ForeignRun, Run, State
from worker.engine.evaluations import Readings, SensorReader
from worker.engine.upstreams import UpstreamReader
from worker.runtime.clock import Clock
from worker.runtime.turns import in_turns
from worker.store.table import Tables

_STARTED = frozenset({State.TRIGGERING, State.POLLING, State.STOPPING, State.COMPLETED})


class MissingRules:
    """Evaluates the trigger of a run that does not exist, its upstreams and its rules."""

    def __init__(self, tables: Tables, upstreams: UpstreamReader, clock: Clock) -> None:
        self._upstreams, self._sensors, self._clock = upstreams, SensorReader(tables, clock), clock

    async def of(self, key: RunKey, run: Run | ForeignRun | None, version: Version | None) -> tuple[RuleReport, ...]:
        """Return what is missing; empty if the rules hold, or held when the job was started.

        Load the run first: then a job that starts meanwhile makes a commit on this result stale.
        """
        if isinstance(run, Run) and run.state in _STARTED:
            return ()
        schedule = version.pipeline.schedule(key.schedule) if version else None
        if version is None or schedule is None:
            return (unmet("the configuration that the run began under is gone"),)
        pipeline = version.pipeline
        if schedule.after and not (gate := await self._upstreams.gate(key, schedule)).is_passed:
            return (unmet(gate.reason or "an upstream run is not complete"),)
        read = await self._sensors.for_start(key, pipeline, schedule)
        trigger = self._trigger(schedule, read) if run is None else None
        return (*([trigger] if trigger else []), *await self._rules(pipeline, read))

    def _trigger(self, schedule: Schedule, read: Readings) -> RuleReport | None:
        trigger = schedule.trigger
        if trigger is None or not schedule.starts_by_trigger:
            return None
        if trigger.match is Match.PREFIX:
            return unmet(f"no sensor whose key begins with {trigger.rule.key} has started the run", trigger.rule.key)
        if absent := read.absences.get(trigger.rule.key):
            return unmet(absent, trigger.rule.key)
        reading = read.seen.get(trigger.rule.key)
        result = evaluate_rule(trigger.rule, reading.data if reading else None, self._clock.now())
        return None if result.passed else report_of(result)

    async def _rules(self, pipeline: Pipeline, read: Readings) -> tuple[RuleReport, ...]:
        data = {name: reading.data for name, reading in read.seen.items()}
        result = await in_turns(evaluate_in_turns(pipeline.rules, data, self._clock.now(), read.absences))
        if result.passed:
            return ()
        return tuple(missing_of(result)) or (unmet(result.reason),)
