"""Why runs wait: a sentence for each of a few runs, read once in half a minute for all viewers."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from worker.core.errors import RetryLater
from worker.core.model.keys import RunKey
from worker.core.model.pipeline import PipelineId, ScheduleId
from worker.core.run.state import Run, State
from worker.core.time.periods import Period
from worker.operations.runs.rule_waits import RuleWaits
from worker.operations.runs.run_search import read_run
from worker.runtime.clock import Clock
from worker.store.repos.runs import run_key
from worker.store.table import TableName, Tables
from worker.web.live.facts import NamedRun

KEPT_S: Final = 30.0
KEPT_MAX: Final = 1_000


class WaitSentences:
    """Reads what waiting runs wait for. The caller bounds how many it asks for."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._tables, self._clock, self._waits = tables, clock, RuleWaits(tables)
        self._known: dict[str, tuple[float, str]] = {}
        self._turn = asyncio.Lock()

    async def of(self, runs: Sequence[NamedRun]) -> dict[str, str]:
        """Return a sentence for each run that still waits; those known before, if the store does not answer."""
        async with self._turn:
            now_s = self._clock.monotonic()
            wanted = [run for run in runs if now_s - self._known.get(run.key, (-KEPT_S, ""))[0] >= KEPT_S]
            if len(self._known) > KEPT_MAX:
                self._known.clear()
            with suppress(RetryLater):
                await self._read(wanted, now_s)
            return {run.key: self._known[run.key][1] for run in runs if run.key in self._known}

    async def _read(self, runs: Sequence[NamedRun], now_s: float) -> None:
        keys = {run.key: key for run in runs if (key := _run_key(run))}
        rows = await self._tables.get_many(TableName.CONTROL, [run_key(key) for key in keys.values()]) if keys else {}
        for name, key in keys.items():
            row = rows.get(run_key(key))
            run = None if row is None else read_run(row)
            sentence = ""
            if isinstance(run, Run) and run.state is State.EVALUATING:
                sentence = await self._waits.of(key, run.config_hash, self._clock.now())
            self._known[name] = now_s, sentence


def _run_key(name: NamedRun) -> RunKey | None:
    period = Period.parse(name.period)
    return None if period is None else RunKey(PipelineId(name.pipeline), ScheduleId(name.schedule), period)
