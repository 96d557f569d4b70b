"""Check for sensors that did not arrive after a job."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from scheduler.watchdog.alerts import APART_MAX, Alert, Alerts
from scheduler.watchdog.check import Finding, few, unreadable
from scheduler.watchdog.due import SOURCE
from scheduler.watchdog.expectations import Expectations
from scheduler.watchdog.recent_ends import RecentEnds
from worker.core.errors import Rejected
from worker.core.model import keys
from worker.core.model.content_hash import content_hash
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline, PipelineId, PostRun
from worker.core.model.values import Json
from worker.core.run.drift import changed_at
from worker.core.run.evaluation import post_run_sensors
from worker.core.run.sensor_match import LOOK_BACK, is_named
from worker.core.run.state import Run, Status
from worker.core.time.durations import format_duration
from worker.store.repos.marks import Marks
from worker.store.repos.runs import Runs, still_at
from worker.store.repos.sensors import Sensor, Sensors
from worker.store.table import Tables

REACH_MAX: Final = timedelta(days=31)  # limit of how far a new holder of the scheduler lease reads back
_OLD_MARK: Final = "postrun-check"  # the mark by which the Lambda edition records its alerts


class PostRunCheck:
    """Gives each rule's sensor `sensorTimeout` after the run's end, independently of the others."""

    def __init__(self, tables: Tables, ledger: Expectations, alerts: Alerts) -> None:
        self._ledger, self._alerts = ledger, alerts
        self._runs, self._sensors, self._marks = Runs(tables), Sensors(tables), Marks(tables)
        self._endings = RecentEnds(self._runs, Status.COMPLETED)
        self._waiting: dict[RunKey, datetime] = {}  # until when each run's sensors may arrive

    async def missing_sensors(self, now: datetime) -> Sequence[Finding]:
        await self._collect(now)
        alerts: dict[PipelineId, list[Alert]] = defaultdict(list)
        findings: list[Finding] = []
        for key in [key for key, at in self._waiting.items() if at <= now]:
            try:
                alert = await self._alert_of(key, now)
            except Rejected as problem:
                findings.append(self._unreadable(key, problem, now))
                continue
            if alert is not None:
                alerts[key.pipeline].append(alert)
        return [*findings, *(self._finding(pipeline, group) for pipeline, group in alerts.items())]

    async def _collect(self, now: datetime) -> None:
        """Add the runs that succeeded since the last pass, if their pipelines have post-run rules."""
        reach = self._reach(now)
        if reach is None:
            return
        async for run in self._endings.news(now, reach):
            post_run = self._post_run(run.key)
            if post_run is not None:
                self._waiting[run.key] = run.since + post_run.sensor_timeout

    def _reach(self, now: datetime) -> timedelta | None:
        """Return how far back to read ended runs; None if no pipeline has post-run rules.

        A timeout that passed while no watchdog was running is still due.
        """
        waits = [
            each.pipeline.post_run.sensor_timeout for each in self._ledger.versions.values() if each.pipeline.post_run
        ]
        absent = now - (self._ledger.resumed_at or now)
        return min(absent + max(waits) + timedelta(hours=1), REACH_MAX) if waits else None

    def _post_run(self, key: RunKey) -> PostRun | None:
        version = self._ledger.versions.get(key.pipeline)
        return version.pipeline.post_run if version else None

    def _unreadable(self, key: RunKey, problem: Rejected, now: datetime) -> Finding:
        if now - self._waiting[key] > LOOK_BACK:
            del self._waiting[key]
        return unreadable(str(key), problem)

    def _finding(self, pipeline: PipelineId, alerts: list[Alert]) -> Finding:
        alerts.sort(key=lambda alert: alert.due_at)
        sentence = few([alert.tell.message for alert in alerts], APART_MAX)
        return Finding(about=str(pipeline), sentence=sentence, act=partial(self._tell, alerts))

    async def _alert_of(self, key: RunKey, now: datetime) -> Alert | None:
        """Return the alert about a run; if nothing is missing, stop waiting for the run and return None."""
        version, post_run = self._ledger.versions.get(key.pipeline), self._post_run(key)
        run = await self._runs.load(key)
        if version is None or post_run is None or not isinstance(run, Run) or run.status is not Status.COMPLETED:
            del self._waiting[key]
            return None
        due_at = run.since + post_run.sensor_timeout
        if now < due_at:
            self._waiting[key] = due_at  # the run was repeated meanwhile, or its sensors got more time
            return None
        missing = await self._missing(run, version.pipeline, post_run)
        if not missing:
            del self._waiting[key]
            return None
        return _alert(run, post_run, missing)

    async def _tell(self, alerts: Sequence[Alert]) -> None:
        await self._alerts.tell(alerts)
        for alert in alerts:
            self._waiting.pop(alert.key, None)

    async def _missing(self, run: Run, pipeline: Pipeline, post_run: PostRun) -> list[str]:
        # Nobody writes the result of a probe, so nobody is late with it.
        names = [name for name in post_run_sensors(pipeline) if pipeline.probe(name) is None]
        sensors = await self._sensors.read(run.key.pipeline, names, run.key.period)
        mark = await self._marks.get(run.key.pipeline, keys.baseline_mark_sk(run.key))
        return [
            name for name in names if not _has_come(name, sensors.get(name), run, post_run, mark.data if mark else None)
        ]


def _has_come(
    name: str, sensor: Sensor | None, run: Run, post_run: PostRun, baseline: Mapping[str, Json] | None
) -> bool:
    """Return whether a sensor arrived after the run.

    It did if it was evaluated since, else if its content differs from the baseline, else if its producer's time is
    after the end.
    """
    if any(is_named(key, name, post_run.match) for key in run.post_run_seen):
        return True
    if sensor is None:
        return False
    if baseline is not None and _differs(sensor, baseline.get(name)):
        return True
    written_at = changed_at(sensor.data)
    return written_at is not None and written_at > run.since


def _differs(sensor: Sensor, before: Json) -> bool:
    return not isinstance(before, Mapping) or content_hash(before) != sensor.content_hash


def _alert(run: Run, post_run: PostRun, missing: Sequence[str]) -> Alert:
    timeout = format_duration(post_run.sensor_timeout)
    detail: dict[str, Json] = {
        "source": SOURCE,
        "sensorTimeout": timeout,
        "ruleKeys": ", ".join(missing),
        "actionHint": "check whether the job wrote its result, and whether the producer of the sensor works",
    }
    message = f"{run.key}: {', '.join(missing)} was not written within {timeout} of its success"
    return Alert(
        key=run.key,
        due_at=run.since + post_run.sensor_timeout,
        tell=EmitEvent(type=EventType.POST_RUN_SENSOR_MISSING, message=message, detail=detail),
        holds=(still_at(run),),
        old_mark=_OLD_MARK,
    )
