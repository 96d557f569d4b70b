"""Pipeline files that are pushed into a store in the current directory, and a look behind the command's back."""

from pathlib import Path

from tests.support.builders.cli_runs import in_store
from tests.support.builders.command_line import TODAY, interlock, records
from worker.core.model.pipeline import PipelineId
from worker.store.repos.config_log import ConfigChange, ConfigLog
from worker.store.repos.pipelines import Pipelines
from worker.store.table import Tables
from worker.store.tail import Tail

URL = "sqlite:///interlock.db"
SOUND = """\
pipeline: {id: NAME, owner: data-team}
schedule: {cron: "0 6 * * *"}
job: {type: command, config: {command: load}}
"""


def write(name: str, text: str = SOUND) -> Path:
    path = Path("files") / f"{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.replace("NAME", name))
    return path


def config_log() -> list[tuple[str, ConfigChange, str | None]]:
    async def read(tables: Tables) -> list[tuple[str, ConfigChange, str | None]]:
        entries, _ = await ConfigLog(tables).read(Tail.starting(TODAY), TODAY)
        return [(entry.pipeline, entry.change, entry.config_hash) for entry in entries]

    return in_store(read)


def stored_text(name: str) -> str | None:
    async def read(tables: Tables) -> str | None:
        stored = await Pipelines(tables).get(PipelineId(name))
        return stored.text if stored else None

    return in_store(read)


def last_position() -> int:
    """The newest change of the feed: two equal readings prove that nothing was written."""
    figures = {record["name"]: record["value"] for record in records(interlock("store", "stats", "--json").stdout)}
    return int(figures["changes kept"])
