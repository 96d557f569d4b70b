"""Requests that their senders may repeat: what was answered, by the key that the sender chose."""

from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.core.model.ids import PipelineId
from worker.store import retention
from worker.store.rows import expiry, loose_text
from worker.store.table import TTL, Key, Put, TableName, Tables


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """AnsweredRequest holds the hash of a request's content, and the response to it."""

    content_hash: str
    response: str


class AnsweredRequests:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def get(self, pipeline: PipelineId, key: str) -> AnsweredRequest | None:
        row = await self._tables.get(TableName.CONTROL, _key(pipeline, key))
        return None if row is None else AnsweredRequest(loose_text(row, "hash"), loose_text(row, "response"))

    async def put(self, pipeline: PipelineId, key: str, answered: AnsweredRequest, now: datetime) -> None:
        """Remember a response. Two senders that use one key at once wrote the same: the last one counts."""
        at = _key(pipeline, key)
        row = {
            "PK": at.pk,
            "SK": at.sk,
            "hash": answered.content_hash,
            "response": answered.response,
            TTL: expiry(now, retention.IDEMPOTENCY),
        }
        await self._tables.commit(Put(TableName.CONTROL, row))


def _key(pipeline: PipelineId, key: str) -> Key:
    return Key(keys.pipeline_pk(pipeline), keys.idempotency_sk(key))
