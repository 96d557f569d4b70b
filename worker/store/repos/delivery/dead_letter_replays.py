"""Requests to replay a dead letter: a person writes one, and a worker replays it like other records."""

from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.store import retention
from worker.store.repos.delivery.dead_letters import DeadLetter
from worker.store.rows import expiry, instant, instant_text, text
from worker.store.table import TTL, Delete, Key, Prefix, Put, Row, TableName, Tables, query_all


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Names a dead letter. If its lane is parked, the older dead letters of that lane go first."""

    source: str
    at: datetime
    id: str


class Replays:
    """Stores the replay requests to one group of workers."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)

    async def ask(self, letter: DeadLetter, now: datetime) -> None:
        """Request a replay; a repeat has no effect. A request that no worker serves expires after a day."""
        row = {
            "PK": self._pk,
            "SK": keys.replay_sk(letter.source, letter.at, letter.id),
            "source": letter.source,
            "at": instant_text(letter.at),
            "id": letter.id,
            TTL: expiry(now, retention.REPLAY_REQUESTS),
        }
        await self._tables.commit(Put(TableName.CONTROL, row))

    async def list(self) -> list[ReplayRequest]:
        """Return the requests, with the dead letters of one source in order."""
        rows = query_all(self._tables, TableName.CONTROL, self._pk, sk=Prefix(keys.REPLAY))
        return [_request(row) async for row in rows]

    async def settle(self, request: ReplayRequest) -> None:
        """Delete a served request; whether the dead letter still exists shows the result."""
        sk = keys.replay_sk(request.source, request.at, request.id)
        await self._tables.commit(Delete(TableName.CONTROL, Key(self._pk, sk)))


def _request(row: Row) -> ReplayRequest:
    return ReplayRequest(source=text(row, "source"), at=instant(row, "at"), id=text(row, "id"))
