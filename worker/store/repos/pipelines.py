"""Configurations: the row producers deploy, and the immutable versions runs are bound to.

The CONFIG row belongs to whoever deploys it. We write it as any other deployment would, alone and never inside a
transaction: a plain write that met our transaction would fail with a conflict its writer does not expect.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.store.rows import text
from worker.store.table import (
    LISTS,
    Absent,
    Delete,
    Exists,
    Key,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    all_of,
    query_all,
)


@dataclass(frozen=True, slots=True)
class StoredConfig:
    """A configuration as deployed, not yet understood. `text` None: the row holds none, so nothing can be."""

    pipeline: PipelineId
    text: str | None


class Pipelines:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def put(self, pipeline: PipelineId, config: str) -> None:
        """Deploy a configuration; the last deployment wins."""
        update = Update(table=TableName.CONTROL, key=_config_key(pipeline), set={"config": config, **_listed(pipeline)})
        await self._tables.commit(update)

    async def list_deployed(self, pipeline: PipelineId) -> bool:
        """Make a configuration that others deployed appear in lists; False if it does already, or is gone.

        Nothing is written the second time: otherwise the change this makes would be handled as a change for ever.
        """
        update = Update(
            table=TableName.CONTROL,
            key=_config_key(pipeline),
            set=_listed(pipeline),
            condition=all_of(Exists("config"), Absent(LISTS.partition)),
        )
        try:
            await self._tables.commit(update)
        except StaleWrite:
            return False
        return True

    async def get(self, pipeline: PipelineId) -> StoredConfig | None:
        row = await self._tables.get(TableName.CONTROL, _config_key(pipeline))
        return None if row is None else _config(pipeline, row)

    async def list(self) -> AsyncIterator[StoredConfig]:
        """All configurations in order of their id. A change may take a moment to show."""
        async for row in query_all(self._tables, TableName.CONTROL, keys.PIPELINES, index=LISTS):
            pipeline = keys.pipeline_of(str(row["PK"]))
            if pipeline is not None:
                yield _config(pipeline, row)

    async def remove(self, pipeline: PipelineId) -> None:
        """Take a configuration back. Its versions and runs stay: they are what happened."""
        await self._tables.commit(Delete(TableName.CONTROL, _config_key(pipeline)))

    async def keep_version(self, pipeline: PipelineId, config_hash: str, config: str) -> None:
        """Keep what runs are about to be bound to. A version that is there is the same one: the hash says so."""
        key = _version_key(pipeline, config_hash)
        try:
            await self._tables.commit(Put(TableName.CONTROL, {"PK": key.pk, "SK": key.sk, "config": config}, Absent()))
        except StaleWrite:
            return

    async def version(self, pipeline: PipelineId, config_hash: str) -> str | None:
        row = await self._tables.get(TableName.CONTROL, _version_key(pipeline, config_hash))
        return None if row is None else text(row, "config")


def _config_key(pipeline: PipelineId) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.CONFIG)


def _version_key(pipeline: PipelineId, config_hash: str) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.config_version_sk(config_hash))


def _listed(pipeline: PipelineId) -> dict[str, str]:
    return {LISTS.partition: keys.PIPELINES, LISTS.sort: pipeline}


def _config(pipeline: PipelineId, row: Row) -> StoredConfig:
    """One row that cannot be read must not hide the others, so this never fails."""
    config = row.get("config")
    return StoredConfig(pipeline, config if isinstance(config, str) else None)
