"""The store that the demo leaves behind, at a fixed time: the console's screenshots and browser tests use it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from worker.cli.demo.folder import SCRIPT
from worker.cli.demo.history import write_history
from worker.config.store_setting import GROUP
from worker.config.versions import PipelineVersions
from worker.core.model.keys import SessionId
from worker.core.model.pipeline import PipelineId
from worker.store.repos.pipelines import Pipelines
from worker.store.repos.sessions import Sessions
from worker.store.table import Tables

NOW: Final = datetime(2027, 3, 23, 12, 10, tzinfo=UTC)
YESTERDAY: Final = "2027-03-22"


async def fill_demo_store(tables: Tables, now: datetime = NOW) -> None:
    for file in sorted((SCRIPT / "pipelines").glob("*.yaml")):
        name = PipelineId(Path(file).stem)
        await Pipelines(tables).put(name, file.read_text())
        version = await PipelineVersions(tables).current(name)
        assert version is not None
        await PipelineVersions(tables).persist(version)
    await write_history(tables, now)
    await Sessions(tables, GROUP).register(SessionId("worker-1"), "0.1.0", at=now)
