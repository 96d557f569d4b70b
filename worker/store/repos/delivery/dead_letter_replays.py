"""Requests to replay a dead letter: a person asks, and a worker does it where it handles everything else."""

from dataclasses import dataclass
from datetime import datetime

from worker.core.model import keys
from worker.store import retention
from worker.store.repos.delivery.dead_letters import DeadLetter
from worker.store.rows import expiry, instant, instant_text, text
from worker.store.table import TTL, Delete, Key, Prefix, Put, Row, TableName, Tables, query_all


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Names a letter. If its lane is parked, the letters of that lane go first that are older."""

    source: str
    at: datetime
    id: str


class Replays:
    """The requests to one group of workers."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)

    async def ask(self, letter: DeadLetter, now: datetime) -> None:
        """Ask for a replay; asking twice is asking once. One that nobody serves is forgotten after a day."""
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
        """What is asked for, letters of one source in their order."""
        rows = query_all(self._tables, TableName.CONTROL, self._pk, sk=Prefix(keys.REPLAY))
        return [_request(row) async for row in rows]

    async def settle(self, request: ReplayRequest) -> None:
        """It was served, one way or the other: the letter, or its absence, says which."""
        sk = keys.replay_sk(request.source, request.at, request.id)
        await self._tables.commit(Delete(TableName.CONTROL, Key(self._pk, sk)))


def _request(row: Row) -> ReplayRequest:
    return ReplayRequest(source=text(row, "source"), at=instant(row, "at"), id=text(row, "id"))
