"""Loads the snapshot for an explanation: consistent reads, by exact keys, only what is needed."""

from datetime import datetime

from worker.config.versions import PipelineVersions, Unusable, Version
from worker.core.errors import ConfigError
from worker.core.model.keys import RunKey, signal_mark_sk
from worker.core.model.pipeline import Pipeline, PipelineId, Schedule, ScheduleId
from worker.core.model.rules import evaluate_in_turns
from worker.core.probes.trait import describe
from worker.core.run.evaluation import required_sensors
from worker.core.run.state import Run
from worker.core.schedule.due import ScheduleKey
from worker.core.time.periods import Period
from worker.operations.explain.snapshot import AnyRun, ConsumedSensor, RunSnapshot, StoredVersion
from worker.operations.explain.timing import ScheduleTiming, timing_of
from worker.operations.explain.upstream_gates import UpstreamsSeen, UpstreamView
from worker.runtime.turns import in_turns
from worker.store.repos.dry_runs import DryRuns
from worker.store.repos.marks import Marks
from worker.store.repos.pauses import Pauses
from worker.store.repos.probes.traits import read_rule_inputs
from worker.store.repos.requests import Requests
from worker.store.repos.runs import Runs
from worker.store.repos.sla_watches import SlaWatches
from worker.store.table import Tables


class SnapshotLoader:
    """Reads the state of a run. Its methods raise `RetryLater` and `Rejected`."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self.configs, self._runs, self._dry_runs = PipelineVersions(tables), Runs(tables), DryRuns(tables)

    async def version(self, pipeline: PipelineId) -> Version | Unusable | None:
        """Return the version in force, `Unusable` if none could ever be used, or None without a pipeline."""
        return await self.configs.current(pipeline) or await self.configs.judged(pipeline)

    async def at(self, key: RunKey, version: Version, now: datetime) -> RunSnapshot:
        run = await self.run(key, version.pipeline)
        applied = await self._applied(version, run)
        schedule = schedule_of(applied.pipeline, key.schedule)
        names = required_sensors(applied.pipeline, schedule)
        inputs = await read_rule_inputs(self._tables, applied.pipeline, names, key.period, now)
        data = {name: sensor.data for name, sensor in inputs.sensors.items()}
        result = await in_turns(evaluate_in_turns(applied.pipeline.rules, data, now, inputs.absences))
        return RunSnapshot(
            key=key,
            now=now,
            pipeline=applied.pipeline,
            schedule=schedule,
            config=await self._config(applied, version),
            rules_result=result,
            pause=await Pauses(self._tables).load(key.pipeline),
            run=run,
            request=await Requests(self._tables).rerun_of(key),
            sensors=inputs.sensors,
            absences=inputs.absences,
            probes={name: describe(trait, now) for name, trait in inputs.traits.items()},
            consumed=await self._consumed(key, schedule),
            watch=await SlaWatches(self._tables).load(key),
            timing=await self._timing(key, schedule),
            upstreams=await UpstreamView(self._tables, self.configs).of(key, schedule, now)
            if schedule.after
            else UpstreamsSeen(),
        )

    async def run(self, key: RunKey, pipeline: Pipeline) -> AnyRun | None:
        """Return the run; for a pipeline in dry run its dry run, unless an earlier real run is active."""
        run = await self._runs.load(key)
        if pipeline.dry_run and not (isinstance(run, Run) and not run.is_ended):
            return await self._dry_runs.load(key) or run
        return run

    async def _applied(self, in_force: Version, run: AnyRun | None) -> Version:
        if isinstance(run, Run) and not run.is_ended and run.config_hash != in_force.config_hash:
            return await self.configs.get(run.key.pipeline, run.config_hash)
        return in_force

    async def _config(self, applied: Version, in_force: Version) -> StoredVersion:
        deployed = await self.configs.judged(in_force.pipeline.id)
        problems = deployed.problems if isinstance(deployed, Unusable) else ()
        return StoredVersion(applied=applied.config_hash, in_force=in_force.config_hash, problems=problems)

    async def _timing(self, key: RunKey, schedule: Schedule) -> ScheduleTiming | None:
        if not schedule.starts_by_cron:
            return None
        return await timing_of(self._tables, ScheduleKey(key.pipeline, key.schedule))

    async def _consumed(self, key: RunKey, schedule: Schedule) -> ConsumedSensor | None:
        if schedule.trigger is None:
            return None
        mark = await Marks(self._tables).get(key.pipeline, signal_mark_sk(schedule.trigger.rule.key))
        content, period = (mark.data.get("hash"), mark.data.get("period")) if mark else (None, None)
        if not isinstance(content, str):
            return None
        return ConsumedSensor(content, Period.parse(period) if isinstance(period, str) else None)


def schedule_of(pipeline: Pipeline, schedule: ScheduleId) -> Schedule:
    """Return a schedule of the pipeline. Raises `ConfigError` if the pipeline does not have it."""
    found = pipeline.schedule(schedule)
    if found is None:
        names = ", ".join(each.id for each in pipeline.schedules)
        raise ConfigError(f"pipeline {pipeline.id} has no schedule {schedule}; it has {names}")
    return found
