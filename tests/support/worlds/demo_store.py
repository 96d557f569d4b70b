"""The store that the demo leaves behind, at a fixed time: the console's screenshots and browser tests use it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from worker.cli.demo.folder import SCRIPT
from worker.cli.demo.history import write_history
from worker.cli.demo.stage import run_of
from worker.config.store_setting import GROUP
from worker.config.versions import PipelineVersions
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import PipelineId
from worker.core.run.state import Outcome, Run, State
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.runs import Runs
from worker.store.repos.sessions import Sessions
from worker.store.table import Tables

NOW: Final = datetime(2027, 3, 23, 12, 10, tzinfo=UTC)
YESTERDAY: Final = "2027-03-22"
DAYS: Final = 12
# Reports that run after the demo's pipelines, for the page of a lineage.
AFTER: Final = """\
pipeline: {{id: {name}, owner: analytics}}
schedule:
  grain: day
  after: [{after}]
job: {{type: command, config: {{command: "true"}}}}
"""
REPORTS: Final = {
    "customer-report": ("customer-snapshot", "payments-import"),
    "risk-report": ("fraud-scores", "payments-import"),
    "stock-report": ("stock-levels",),
    "board-report": ("customer-report", "risk-report", "stock-report", "ledger-close"),
}


async def fill_demo_store(tables: Tables, now: datetime = NOW) -> None:
    for file in sorted((SCRIPT / "pipelines").glob("*.yaml")):
        name = PipelineId(Path(file).stem)
        await Pipelines(tables).put(name, file.read_text())
        version = await PipelineVersions(tables).current(name)
        assert version is not None
        await PipelineVersions(tables).persist(version)
    await write_history(tables, now)
    for name, upstreams in REPORTS.items():
        await _fill_report(tables, name, upstreams, now)
    await Sessions(tables, GROUP).register(SessionId("worker-1"), "0.1.0", at=now)


async def _fill_report(tables: Tables, name: str, upstreams: tuple[str, ...], now: datetime) -> None:
    """Write a report that ran every day until its upstreams were late: the one of yesterday waits for them."""
    after, pipeline = ", ".join(f"{{pipeline: {each}}}" for each in upstreams), PipelineId(name)
    await Pipelines(tables).put(pipeline, AFTER.format(name=name, after=after))
    version = await PipelineVersions(tables).current(pipeline)
    assert version is not None
    await PipelineVersions(tables).persist(version)
    for days in range(1 if name == "stock-report" else 2, DAYS):
        ended = now - timedelta(days=days - 1, hours=3, minutes=7 * len(upstreams) - days)
        run = Run(
            key=run_of(name, str((now - timedelta(days=days)).date())),
            run_id=f"{name}-{days}",
            state=State.COMPLETED,
            outcome=Outcome.SUCCEEDED,
            config_hash=version.config_hash,
            created_at=ended - timedelta(minutes=9),
            started_at=ended - timedelta(minutes=8),
            since=ended,
            timeout_at=ended + timedelta(hours=4),
        )
        await Runs(tables).save(run)
