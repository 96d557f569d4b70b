"""Runs that another system ended, with what its job log and rerun record say of them."""

from dataclasses import replace
from datetime import datetime

from worker.core.model.keys import RunKey
from worker.core.model.pipeline import Pipeline
from worker.core.run.context import limits
from worker.core.run.facts import Birth
from worker.core.run.foreign import as_run
from worker.core.run.reruns import spent_by
from worker.core.run.runstate import ForeignRun, Run, Spent
from worker.store.repos.job_log import JobLog
from worker.store.repos.reruns import Reruns
from worker.store.table import Tables


class ForeignRuns:
    def __init__(self, tables: Tables) -> None:
        self._log, self._reruns = JobLog(tables), Reruns(tables)

    async def stand_in(self, foreign: ForeignRun, birth: Birth, pipeline: Pipeline, now: datetime) -> Run:
        """The run that an ended row stands for; a retry in its place has the whole patience before it."""
        ended_at, spent = await self.succeeded_at(foreign.key), await self._spent(foreign.key)
        run = as_run(foreign, birth, now, ended_at=ended_at, spent=spent)
        return replace(run, timeout_at=now + limits(pipeline).run_timeout)

    async def succeeded_at(self, key: RunKey) -> datetime | None:
        """When it last succeeded; None if its log does not say."""
        successes = [record.at async for record in self._log.list(key) if record.event == "success"]
        return successes[-1] if successes else None

    async def _spent(self, key: RunKey) -> Spent:
        return spent_by(record.reason for record in await self._reruns.list(key))
