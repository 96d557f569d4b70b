"""Configurations: the CONFIG row that is deployed, and the immutable versions that runs are bound to.

The CONFIG row belongs to the program that deploys it. Interlock writes it like any other deployment, in its own commit
and never inside a transaction: a plain write that met the transaction would fail with a conflict that its writer does
not expect.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.core.time.timestamps import parse_rfc3339
from worker.store.rows import first_rows, instant_text, loose_text, text
from worker.store.table import (
    LISTS,
    Absent,
    Delete,
    Exists,
    Key,
    Prefix,
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
    """Holds a configuration as deployed, not yet parsed. `text` None: the row holds no text."""

    pipeline: PipelineId
    text: str | None
    is_listed: bool = True  # False: another program deployed it, and it is not in the list yet


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """Names a kept version. `kept_at` is None for one that an older release stored."""

    config_hash: str
    kept_at: datetime | None


class Pipelines:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def put(self, pipeline: PipelineId, config: str) -> None:
        """Deploy a configuration; the last deployment wins."""
        update = Update(table=TableName.CONTROL, key=config_key(pipeline), set={"config": config, **_listed(pipeline)})
        await self._tables.commit(update)

    async def list_deployed(self, pipeline: PipelineId) -> bool:
        """Add a configuration that another program deployed to the list; return False if listed or gone.

        A second call writes nothing: otherwise each write would be a change that causes another write, for ever.
        """
        update = Update(
            table=TableName.CONTROL,
            key=config_key(pipeline),
            set=_listed(pipeline),
            condition=all_of(Exists("config"), Absent(LISTS.partition)),
        )
        try:
            await self._tables.commit(update)
        except StaleWrite:
            return False
        return True

    async def get(self, pipeline: PipelineId) -> StoredConfig | None:
        row = await self._tables.get(TableName.CONTROL, config_key(pipeline))
        return None if row is None else config_from_row(pipeline, row)

    async def get_many(self, pipelines: Sequence[PipelineId]) -> dict[PipelineId, StoredConfig]:
        """Return any number of configurations, read consistently, without those that do not exist."""
        named = {config_key(pipeline): pipeline for pipeline in pipelines}
        rows = await self._tables.get_many(TableName.CONTROL, list(named))
        return {named[key]: config_from_row(named[key], row) for key, row in rows.items()}

    async def list(self) -> AsyncIterator[StoredConfig]:
        """Yield all configurations in order of their id. A change may take a moment to appear."""
        async for row in query_all(self._tables, TableName.CONTROL, keys.PIPELINES, index=LISTS):
            pipeline = keys.pipeline_of(str(row["PK"]))
            if pipeline is not None:
                yield config_from_row(pipeline, row)

    async def remove(self, pipeline: PipelineId) -> None:
        """Remove a configuration. Its versions and runs stay, as a record of what happened."""
        await self._tables.commit(Delete(TableName.CONTROL, config_key(pipeline)))

    async def keep_version(
        self, pipeline: PipelineId, config_hash: str, config: str, at: datetime | None = None
    ) -> None:
        """Store a version before runs are bound to it; an existing one is the same, because its hash is."""
        try:
            await self._tables.commit(version_write(pipeline, config_hash, config, at))
        except StaleWrite:
            return

    async def versions(self, pipeline: PipelineId, limit: int) -> Sequence[KeptVersion]:
        """Return the kept versions in order of their hash; one more than `limit` if there are more."""
        begin = keys.config_version_sk("")
        rows = await first_rows(
            self._tables, TableName.CONTROL, keys.pipeline_pk(pipeline), sk=Prefix(begin), limit=limit + 1
        )
        return [kept_version(row) for row in rows]

    async def version(self, pipeline: PipelineId, config_hash: str) -> str | None:
        row = await self._tables.get(TableName.CONTROL, _version_key(pipeline, config_hash))
        return None if row is None else text(row, "config")


def version_write(pipeline: PipelineId, config_hash: str, config: str, at: datetime | None = None) -> Put:
    """Build the write of a version; refused if the version exists."""
    key = _version_key(pipeline, config_hash)
    row: Row = {"PK": key.pk, "SK": key.sk, "config": config}
    if at is not None:
        row = {**row, "keptAt": instant_text(at)}
    return Put(TableName.CONTROL, row, Absent())


def kept_version(row: Row) -> KeptVersion:
    """Read the name and time of a version. It never fails: the time is for people only."""
    config_hash = str(row["SK"]).removeprefix(keys.config_version_sk(""))
    return KeptVersion(config_hash, parse_rfc3339(loose_text(row, "keptAt")))


def config_key(pipeline: PipelineId) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.CONFIG)


def _version_key(pipeline: PipelineId, config_hash: str) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.config_version_sk(config_hash))


def _listed(pipeline: PipelineId) -> dict[str, str]:
    return {LISTS.partition: keys.PIPELINES, LISTS.sort: pipeline}


def config_from_row(pipeline: PipelineId, row: Row) -> StoredConfig:
    """Parse a configuration. It never fails, because one unreadable row must not hide the others."""
    config = row.get("config")
    return StoredConfig(pipeline, config if isinstance(config, str) else None, LISTS.partition in row)
