"""Check for jobs that still run although their run has ended: they may still do harm."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final, TypeAlias

from scheduler.watchdog.alerts import Alert, Alerts
from scheduler.watchdog.check import Finding
from scheduler.watchdog.due import SOURCE
from scheduler.watchdog.recent_ends import RecentEnds
from worker.config.versions import PipelineVersions
from worker.core.model.effects import EmitEvent
from worker.core.model.events import EventType
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline
from worker.core.model.values import Json
from worker.core.run.facts import Fact, JobFailed, JobRunning, JobStopped, JobSucceeded
from worker.core.run.state import Outcome, Run, Status
from worker.store.repos.runs import Runs
from worker.store.table import Tables

LOOKED_FOR: Final = timedelta(hours=24)
ASK_EVERY: Final = timedelta(minutes=10)
ASKED_MAX: Final = 50  # per pass; the next pass polls the rest

# Polls a job at its target and records nothing.
Poll: TypeAlias = Callable[[Run, Pipeline], Awaitable[Fact]]


class OrphanCheck:
    def __init__(self, tables: Tables, configs: PipelineVersions, alerts: Alerts, poll: Poll) -> None:
        self._configs, self._alerts, self._poll, self._runs = configs, alerts, poll, Runs(tables)
        self._endings = RecentEnds(self._runs, Status.FAILED_FINAL)
        self._orphans: dict[RunKey, datetime] = {}  # when to poll each
        self.left = 0  # how many the last pass left to the next

    async def orphaned_jobs(self, now: datetime) -> Sequence[Finding]:
        async for run in self._endings.news(now, LOOKED_FOR):
            if run.outcome is Outcome.ORPHANED and run.job is not None:
                self._orphans.setdefault(run.key, run.since + ASK_EVERY)
        due = [key for key, at in self._orphans.items() if at <= now]
        self.left = max(0, len(due) - ASKED_MAX)
        return [
            Finding(about=str(key), sentence=f"the job of {key} may still be running", act=partial(self._ask, key, now))
            for key in due[:ASKED_MAX]
        ]

    async def _ask(self, key: RunKey, now: datetime) -> None:
        self._orphans[key] = now + ASK_EVERY
        run = await self._runs.load(key)
        if not isinstance(run, Run) or run.outcome is not Outcome.ORPHANED or now - run.since > LOOKED_FOR:
            del self._orphans[key]  # it has run again, or its time limit is over
            return
        version = await self._configs.find(key.pipeline, run.config_hash)
        if version is None:
            return
        match await self._poll(run, version.pipeline):
            case JobRunning():
                await self._alerts.tell([_still_running(run, now)])
            case JobSucceeded() | JobFailed() | JobStopped():
                await self._alerts.tell([_ended(run)])
                del self._orphans[key]
            case _:
                return  # its target did not answer: poll again later


def _still_running(run: Run, now: datetime) -> Alert:
    minutes = (now - run.since) // timedelta(minutes=1)
    message = f"{run.key}: the job of attempt {run.attempt} still runs, {minutes} minutes after its run ended"
    return _alert(run, EventType.JOB_ORPHANED, message, "stop it at its target; no new attempt starts while it runs")


def _ended(run: Run) -> Alert:
    message = f"{run.key}: the job of attempt {run.attempt}, which could not be stopped, has ended by itself"
    return _alert(run, EventType.JOB_ORPHAN_ENDED, message, "check what it did; rerun if you need its result")


def _alert(run: Run, event_type: EventType, message: str, hint: str) -> Alert:
    detail: dict[str, Json] = {
        "source": SOURCE,
        "job": run.job,
        "token": run.token,
        "attempt": run.attempt,
        "actionHint": hint,
    }
    # Each attempt has a job of its own: an alert about one says nothing about the next.
    tell = EmitEvent(type=event_type, message=message, detail=detail, about=f"attempt-{run.attempt}")
    return Alert(key=run.key, due_at=run.since, tell=tell)
