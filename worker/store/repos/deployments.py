"""Since when a pipeline is deployed, as far as its cron is concerned.

A configuration that was in the tables before our first start belongs to whoever ran them, and cron never started
anything there: it has no row here, and does not fire, until a person accepts it (`accept`) or deploys it with us.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.core.model.pipeline import PipelineId
from worker.store.rows import instant, instant_text, optional_text, whole, without_none
from worker.store.table import Absent, Delete, Equals, Key, Put, Row, StaleWrite, TableName, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """`since`: when the pipeline came; `text_since`: when its present text did, which is named by its hash."""

    since: datetime
    text_since: datetime
    text_hash: str | None
    version: int = 0


class Deployments:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, pipelines: Collection[PipelineId]) -> dict[PipelineId, Deployed]:
        """Read any number consistently; those that wait for a person are left out. Raises `BadRow`."""
        named = {_key(pipeline): pipeline for pipeline in pipelines}
        rows = await self._tables.get_many(TableName.CONTROL, list(named))
        return {named[key]: _deployed(row) for key, row in rows.items()}

    async def accepted(self, pipeline: PipelineId) -> Deployed | None:
        """None: the pipeline is older than this installation, and nobody accepted it yet."""
        return (await self.load([pipeline])).get(pipeline)

    async def accept(self, pipeline: PipelineId, now: datetime) -> bool:
        """Let the cron of an older pipeline fire from now on; False if it does already."""
        accepted = Deployed(since=now, text_since=now, text_hash=None, version=1)
        try:
            await self._tables.commit(Put(TableName.CONTROL, _row(pipeline, accepted), Absent()))
        except StaleWrite:
            return False
        return True

    async def note(self, pipeline: PipelineId, text_hash: str, at: datetime, *, is_new: bool) -> None:
        """Remember since when a text is deployed. May be repeated. Raises `StaleWrite` if another noted one too.

        `is_new`: there was no such pipeline before, or it was deployed with us; otherwise one that we do not know is
        older than we are, whatever its text is now.
        """
        seen = await self.accepted(pipeline)
        if (seen is None and not is_new) or (seen is not None and seen.text_hash == text_hash):
            return
        since = seen.since if seen else at
        noted = Deployed(since=since, text_since=at, text_hash=text_hash, version=seen.version + 1 if seen else 1)
        condition = Equals("version", seen.version) if seen else Absent()
        await self._tables.commit(Put(TableName.CONTROL, _row(pipeline, noted), condition))

    async def forget(self, pipeline: PipelineId) -> None:
        """The pipeline was taken back: if it comes again, it is new."""
        await self._tables.commit(Delete(TableName.CONTROL, _key(pipeline)))


def _key(pipeline: PipelineId) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.deployed_mark_sk())


def _row(pipeline: PipelineId, deployed: Deployed) -> Row:
    key = _key(pipeline)
    return without_none(
        {
            "PK": key.pk,
            "SK": key.sk,
            "since": instant_text(deployed.since),
            "textSince": instant_text(deployed.text_since),
            "textHash": deployed.text_hash,
            "version": deployed.version,
        }
    )


def _deployed(row: Row) -> Deployed:
    return Deployed(
        since=instant(row, "since"),
        text_since=instant(row, "textSince"),
        text_hash=optional_text(row, "textHash"),
        version=whole(row, "version"),
    )
