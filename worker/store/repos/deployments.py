"""Deployments: since when a pipeline is deployed, as far as its cron is concerned.

A configuration that was in the tables before Interlock first started belongs to the system that ran them, where cron
never started anything. It has no row here, so its cron does not fire until a person accepts it (`accept`) or deploys it
with Interlock.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.store.rows import instant, instant_text, optional_text, whole, without_none
from worker.store.table import Absent, Delete, Equals, Key, Put, Row, StaleWrite, TableName, Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployed:
    """Holds when the pipeline was first deployed, and when its current text was, with the text's hash."""

    since: datetime
    text_since: datetime
    text_hash: str | None
    version: int = 0


class Deployments:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, pipelines: Collection[PipelineId]) -> dict[PipelineId, Deployed]:
        """Return any number of deployments, read consistently, without those not accepted. Raises `BadRow`."""
        named = {_key(pipeline): pipeline for pipeline in pipelines}
        rows = await self._tables.get_many(TableName.CONTROL, list(named))
        return {named[key]: _deployed(row) for key, row in rows.items()}

    async def accepted(self, pipeline: PipelineId) -> Deployed | None:
        """Return the deployment; None if the pipeline predates this installation and is not accepted."""
        return (await self.load([pipeline])).get(pipeline)

    async def accept(self, pipeline: PipelineId, now: datetime) -> bool:
        """Let the cron of an older pipeline fire from now on; return False if it already does."""
        accepted = Deployed(since=now, text_since=now, text_hash=None, version=1)
        try:
            await self._tables.commit(Put(TableName.CONTROL, _row(pipeline, accepted), Absent()))
        except StaleWrite:
            return False
        return True

    async def note(self, pipeline: PipelineId, text_hash: str, at: datetime, *, is_new: bool) -> None:
        """Record since when a text is deployed. Idempotent. Raises `StaleWrite` if another recorded one too.

        `is_new`: the pipeline did not exist before, or was deployed with Interlock. Otherwise a pipeline without a row
        predates this installation, even if its text is new.
        """
        seen = await self.accepted(pipeline)
        write = None if seen is None and not is_new else noted_write(pipeline, seen, text_hash, at)
        if write is not None:
            await self._tables.commit(write)

    async def forget(self, pipeline: PipelineId) -> None:
        """Delete the deployment of a removed pipeline: if it is deployed again, it is new."""
        await self._tables.commit(Delete(TableName.CONTROL, _key(pipeline)))


def noted_write(pipeline: PipelineId, seen: Deployed | None, text_hash: str, at: datetime) -> Put | None:
    """Build the write that records since when a text is deployed; None if that is recorded already."""
    if seen is not None and seen.text_hash == text_hash:
        return None
    since = seen.since if seen else at
    noted = Deployed(since=since, text_since=at, text_hash=text_hash, version=seen.version + 1 if seen else 1)
    return Put(TableName.CONTROL, _row(pipeline, noted), Equals("version", seen.version) if seen else Absent())


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
