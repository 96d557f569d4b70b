"""Takes the summary of a running job: how many records it saw, processed, skipped and failed on.

What a job puts is on its run's row and among its outputs in one commit, before the job ends. The end of the job then
finds a newer row, reads it, and reports the summary with it: no put can be lost between the two.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.core.model.job_data import JobOutputs
from worker.core.model.keys import RunKey
from worker.core.model.summaries import NAMES, NUMBER_MAX, SUMMARY_KEY, is_count
from worker.core.model.values import Json
from worker.core.run.state import Run
from worker.core.run.success import with_put_summary
from worker.runtime.backoff import Backoff, RetryLoop
from worker.runtime.clock import Clock
from worker.store.repos.run_data import RunData, outputs_write
from worker.store.repos.runs import Runs
from worker.store.table import StaleWrite, Tables

RACES: Final = Backoff(attempts_max=10, first_s=0.02, longest_s=0.5, budget_s=10.0)


def parse_counts(words: Iterable[str]) -> dict[str, int]:
    """Read `seen=120 errored=0`. Raises `ConfigError`, which names the wrong word."""
    counts: dict[str, int] = {}
    for word in words:
        name, is_given, number = word.partition("=")
        if name not in NAMES or not is_given:
            raise ConfigError(f"{word[:80]!r} is no count; use NAME=NUMBER with one of {', '.join(NAMES)}")
        if name in counts:
            raise ConfigError(f"{name} is given twice")
        digits = number.replace("_", "")
        if not digits.isascii() or not digits.isdecimal() or not is_count(int(digits[:20])):
            raise ConfigError(f"{name} must be a whole number between 0 and {NUMBER_MAX:,}, got {number[:40]!r}")
        counts[name] = int(digits)
    return counts


async def put_summary(
    tables: Tables, clock: Clock, key: RunKey, attempt: int | None, counts: Mapping[str, int]
) -> Mapping[str, int]:
    """Save counts of the job of an attempt, by default the current one; return its summary.

    A repeat changes nothing. Raises `Rejected` if no such job runs, and `RetryLater`.
    """
    runs, data, retries = Runs(tables), RunData(tables), RetryLoop(RACES, clock)
    while True:
        run = await runs.load(key)
        if not isinstance(run, Run):
            raise Rejected(f"there is no run {key}; `interlock runs list` shows those that there are")
        put = with_put_summary(run, attempt, counts)
        if put is run:
            return run.summary or {}
        try:
            await runs.put_summary(put, outputs_write(key, await _with_summary(data, put), clock.now()))
        except StaleWrite as lost:
            await retries.wait(RetryLater(f"{key} keeps changing: {lost}"))
        else:
            return put.summary or {}


async def _with_summary(data: RunData, run: Run) -> JobOutputs:
    """Return the outputs of the current attempt, which may exist since its start, with its summary."""
    found = (await data.outputs([run.key])).get(run.key)
    known: Mapping[str, Json] = found.outputs if found is not None and found.attempt == run.attempt else {}
    return JobOutputs(attempt=run.attempt, outputs={**known, SUMMARY_KEY: dict(run.summary or {})})
