"""Read from the store how far expected runs are, and the runs that they wait for."""

from collections.abc import Sequence
from datetime import datetime

from worker.cli.plan.waits import RunStanding
from worker.config.versions import PipelineVersions
from worker.core.dependencies.gate import UpstreamRun
from worker.core.model.keys import RunKey
from worker.core.run.state import Run
from worker.core.schedule.agenda import PlanEntry
from worker.operations.explain.upstream_gates import UpstreamView
from worker.store.repos.runs import Runs
from worker.store.table import Tables


async def read_states(
    tables: Tables, entries: Sequence[PlanEntry], now: datetime
) -> dict[tuple[str, str], RunStanding]:
    """Return the standing of each run, by schedule and period. Raises `RetryLater`.

    `after` is that of the files; the schedules of its upstreams are those in force.
    """
    view, runs = UpstreamView(tables, PipelineVersions(tables)), Runs(tables)
    keys = {_key(entry): entry for entry in entries}
    found = await runs.load_many([*keys])
    states: dict[tuple[str, str], RunStanding] = {}
    for key, entry in keys.items():
        run = found.get(key)
        seen = await view.of(key, entry.schedule, now)
        states[entry.name, str(key.period)] = RunStanding(
            status=UpstreamRun(key=key, run=run).word,
            has_begun=run is not None and not (isinstance(run, Run) and run.is_at_gate),
            items=tuple(item.described(seen.usual) for item in seen.gate.items),
            root_cause=str(seen.cause_above or ""),
        )
    return states


def _key(entry: PlanEntry) -> RunKey:
    return RunKey(entry.pipeline, entry.schedule.id, entry.run.period)
