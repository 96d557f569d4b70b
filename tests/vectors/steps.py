"""How the steps of an execution are put to the engine: each stands for a fact about a run in the state it assumes.

What two steps of the reference do one after the other (log the end, then complete the row) is one commit here; a step
is compared with its own part of it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from tests.support.clock.virtual_time import VirtualClock, run
from tests.support.fakes.runner import FakeRunner
from tests.support.worlds.engine import FakeStanding
from tests.vectors.scenarios import ME, Case, put_given, rows_of, seen_since, wanted
from worker.app.components import build_engine
from worker.config.load import load_text
from worker.config.render import config_hash
from worker.core.model.keys import RowKind, RunKey
from worker.core.model.pipeline import JobType, Pipeline, PipelineId, ScheduleId
from worker.core.run.facts import (
    Fact,
    JobFailed,
    JobRefused,
    JobRunning,
    JobStarted,
    JobSucceeded,
    RulesNotHeld,
)
from worker.core.run.state import FailureCategory, Run, Spent, StartStep, State
from worker.core.sla.state import SlaWatch
from worker.core.time.periods import Period
from worker.engine.engine import Engine
from worker.jobs.runner import Running
from worker.store.repos.runs import Runs, run_key
from worker.store.repos.sla_watches import SlaWatches
from worker.store.sqlite.tables import SqliteTables
from worker.store.table import Delete, TableName

MODES = {
    "cancel",
    "check-job",
    "complete-trigger",
    "evaluate",
    "fire-alert",
    "job-poll-exhausted",
    "trigger",
    "trigger-exhausted",
    "validation-exhausted",
}
# What is told there by the record of the job log that a step leaves, and by the one that failed for the last time.
_TOLD_WITH_THE_LOG = {"JOB_COMPLETED", "JOB_FAILED"}
_TOLD_WITH_THE_END = {*_TOLD_WITH_THE_LOG, "RETRY_EXHAUSTED"}


def play_step(case: Case) -> object:
    """What the program did; or that it has nothing which a step of that name could be put to."""
    mode = case["when"]["invoke"]["input"]["mode"]
    return run(_play(case)) if mode in MODES else {"noSuchStep": mode}


def wanted_of_step(case: Case) -> object:
    output = case["then"]["output"]
    answered = {name: output.get(name) for name in ("runId", "event")} if case["source"] == "execution step" else {}
    # Where a step raises there, its caller tries again; here the fact is recorded, and so is when to try again.
    return {**wanted(case), "failed": False, **answered}


async def _play(case: Case) -> object:
    now = datetime.fromisoformat(case["given"]["now"])
    clock = VirtualClock(now)
    tables = SqliteTables.in_memory(clock)
    await tables.start()
    await put_given(tables, case["given"], now)
    async with asyncio.TaskGroup() as tasks:
        runner = FakeRunner(hangs=None, jobs={"given": Running()})
        runners, standing = dict.fromkeys(JobType, runner), FakeStanding(ME, {ME: True})
        parts = build_engine(tables, runners, standing, clock, tasks, began_at=now)
        step = _Step(case, tables, parts.engine, now)
        await step.prepare()
        before, position = await rows_of(tables), await tables.last_position()
        await step.take()
        seen = step.own_part(await seen_since(case, tables, before, position))
        answered = await step.answered()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
    return {**seen, "failed": False, **answered}


class _Step:
    def __init__(self, case: Case, tables: SqliteTables, engine: Engine, now: datetime) -> None:
        invoked = case["when"]["invoke"]
        self._input: Mapping[str, Any] = invoked["input"]
        self._stub: Mapping[str, Any] = invoked.get("stub", {})
        self._mode: str = self._input["mode"]
        self._tables, self._engine, self._now, self._case = tables, engine, now, case
        period = Period.parse(self._input["date"])
        assert period is not None
        self._key = RunKey(PipelineId(self._input["pipelineId"]), ScheduleId(self._input["scheduleId"]), period)

    async def prepare(self) -> None:
        """Put the run, or the watch, that the step assumes."""
        pipeline = load_text(self._case["given"]["configYaml"], lenient=True).pipeline
        assert pipeline is not None
        if self._mode == "fire-alert":
            watch = SlaWatch(
                key=self._key,
                config_hash=config_hash(pipeline),
                since=self._now - timedelta(hours=2),
                breach_at=self._now,
            )
            await SlaWatches(self._tables).save(watch)
        elif self._mode != "cancel":
            await self._tables.commit(Delete(TableName.CONTROL, run_key(self._key)))
            await Runs(self._tables).save(self._assumed(pipeline))

    def _assumed(self, pipeline: Pipeline) -> Run:
        started = self._now - timedelta(hours=1)
        base = Run(
            key=self._key,
            run_id="given",
            config_hash=config_hash(pipeline),
            created_at=started,
            since=started,
            window_ends_at=self._now + timedelta(hours=1),
            timeout_at=self._now + timedelta(hours=3),
        )
        polling = replace(base, state=State.POLLING, job={"id": "given"})
        triggering = replace(
            base, state=State.TRIGGERING, start_step=StartStep.SENT, starter=ME, owner=ME, window_ends_at=None
        )
        job = pipeline.job
        match self._mode:
            case "trigger":
                return triggering
            case "trigger-exhausted":
                return replace(triggering, start_failures=3)
            case "check-job":
                return polling
            case "job-poll-exhausted":
                return replace(polling, window_ends_at=self._now)
            case "complete-trigger":
                # The retry is another record's business there: here the step is the end only if none is left.
                return replace(polling, spent=Spent(transient=job.max_retries if job else 0))
            case "validation-exhausted":
                return replace(base, window_ends_at=self._now)
            case _:
                return base

    async def take(self) -> None:
        if self._mode == "evaluate":
            self._engine.request_evaluation(RowKind.TRIGGER, self._key)
            await asyncio.sleep(0)  # the pass itself; the start that it orders comes after it
        elif self._mode == "fire-alert":
            await self._engine.judge_deadline(self._key)
        for fact in self._facts():
            await self._engine.handle(self._key, fact)

    def _facts(self) -> list[Fact]:
        match self._mode:
            case "trigger" if "executeError" in self._stub:
                return [JobRefused(1, 0, FailureCategory.TRANSIENT, self._stub["executeError"])]
            case "trigger" if self._stub["metadata"] is None:
                return [JobStarted(1, {"runId": "sync"}), JobSucceeded(attempt=1)]
            case "trigger":
                return [JobStarted(1, self._stub["metadata"])]
            case "check-job":
                is_done = self._stub["status"]["state"] == "succeeded"
                return [JobSucceeded(attempt=1) if is_done else JobRunning(1)]
            case "complete-trigger" if self._input["event"] == "success":
                return [JobSucceeded(attempt=1)]
            case "complete-trigger":
                return [JobFailed(1, FailureCategory.TRANSIENT, "failed")]
            case "validation-exhausted":
                return [RulesNotHeld(attempt=1, saw={}, reason="not ready")]
            case "job-poll-exhausted":
                return [JobRunning(1)]
            case "trigger-exhausted":
                return [JobRefused(1, 3, FailureCategory.TRANSIENT, self._input["errorInfo"]["Cause"])]
            case _:
                return []

    async def answered(self) -> dict[str, Any]:
        """What the step would hand to the next: the job's id, and how it ended; here both are on the run's row."""
        if self._case["source"] != "execution step":
            return {}
        run = await Runs(self._tables).load(self._key)
        assert isinstance(run, Run)
        asked = self._case["then"]["output"].get("runId")
        is_known = run.job is not None and asked in run.job.values()
        is_done = self._mode == "check-job" and run.state is State.COMPLETED
        return {"runId": asked if is_known else None, "event": "success" if is_done else None}

    def own_part(self, seen: dict[str, Any]) -> dict[str, Any]:
        told_by_others = _TOLD_WITH_THE_END if self._mode == "complete-trigger" else _TOLD_WITH_THE_LOG
        seen["events"] = [each for each in seen["events"] if each not in told_by_others]
        seen["details"] = [each for each in seen["details"] if each["type"] not in told_by_others]
        seen["rows"] = [row for row in seen["rows"] if not self._is_of_another_step(row["key"])]
        return seen

    def _is_of_another_step(self, key: str) -> bool:
        if key.startswith("JOB#"):
            return self._mode == "complete-trigger"  # the step before has logged it
        # What the row becomes is the business of the last step.
        return key.startswith("TRIGGER#") and self._mode in {"trigger", "check-job"}
