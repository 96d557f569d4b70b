"""Sessions: which worker processes are alive. Each has one heartbeat row, which its leases refer to.

No clocks are compared here: the time of a heartbeat is for people. One conditional write on its row ends a session, and
a later heartbeat is refused, so the two can never both succeed.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from worker.core.model import keys
from worker.core.model.keys import SessionId
from worker.core.time.timestamps import parse_rfc3339
from worker.store import retention
from worker.store.row_memory import RowMemory
from worker.store.rows import choice, expiry, instant_text, loose_text, texts, whole
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Delete,
    Equals,
    Key,
    Less,
    Prefix,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    all_of,
    any_of,
    query_all,
)

CLOCKS_DIFFER_MAX: Final = timedelta(minutes=1)  # far longer than a session can be silent before others end it


class SessionState(StrEnum):
    LIVE = "LIVE"
    DRAINING = "DRAINING"  # leaving: keeps its leases, takes none
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Holds a session as its row states it. A session without a row has ended: ids are never reused."""

    id: SessionId
    beat: int
    state: SessionState
    changes: int = 0  # rises when it took, asked for or released a lease; others read the leases only then
    load: int = 0
    roles: frozenset[str] = frozenset()  # its roles; empty: all
    program: str = ""  # its version, for people; no decision depends on it
    pace: str = ""  # its timing, which all workers must share; empty: an older version without it
    kept_until: int = 0  # of a DEAD session, in seconds since 1970
    process: str = ""  # its process, if workers of its store can prove that it has ended; empty: they cannot
    heard_at: datetime | None = None  # its last heartbeat, by its own clock; for people, no decision depends on it

    def does(self, role: str) -> bool:
        return not role or not self.roles or role in self.roles

    @property
    def is_alive(self) -> bool:
        return self.state is not SessionState.DEAD

    def silent_for(self, now: datetime) -> timedelta:
        """Return how long the session was silent, by the caller's clock; zero within clock differences."""
        silence = timedelta(0) if self.heard_at is None else now - self.heard_at
        return silence if silence > CLOCKS_DIFFER_MAX else timedelta(0)


# Any state but DEAD: a draining worker still holds its leases.
_ALIVE = any_of(Equals("state", SessionState.LIVE.value), Equals("state", SessionState.DRAINING.value))


class Sessions:
    """Stores the sessions of one group of workers."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)
        self._memory = RowMemory(_session)  # every check of every worker lists them, and most are unchanged

    async def register(
        self,
        session: SessionId,
        program: str,
        roles: frozenset[str] = frozenset(),
        *,
        pace: str = "",
        at: datetime | None = None,
        process: str = "",
    ) -> None:
        """Begin a session. Raises `StaleWrite` if the id was used before: create a new one."""
        row = {
            "PK": self._pk,
            "SK": keys.session_sk(session),
            "hb": 0,
            "state": SessionState.LIVE.value,
            "chg": 0,
            "load": 0,
            "ver": program,
            "duties": sorted(roles),
            **({"pace": pace} if pace else {}),
            **({"process": process} if process else {}),
            **_heard(at),
        }
        await self._tables.commit(Put(TableName.CONTROL, row, Absent()))

    async def beat(
        self, session: SessionId, number: int, *, changes: int = 0, load: int = 0, at: datetime | None = None
    ) -> bool:
        """Send a heartbeat; return False if the session was ended: stop at once. A repeat is harmless."""
        not_later = any_of(Less("hb", number), Equals("hb", number))
        said = {"hb": number, "chg": changes, "load": load, **_heard(at)}
        beat = self._update(session, said, all_of(not_later, _ALIVE))
        try:
            await self._tables.commit(beat)
        except StaleWrite as error:
            # Refused only for its number: a later heartbeat of ours was faster.
            return error.row is not None and _is_alive(error.row)
        return True

    async def drain(self, session: SessionId) -> bool:
        """Mark the session as leaving; return False if it was ended."""
        try:
            await self._tables.commit(self._update(session, {"state": SessionState.DRAINING.value}, _ALIVE))
        except StaleWrite:
            return False
        return True

    async def kill(self, seen: Session, now: datetime) -> bool:
        """End a session whose heartbeat has stopped; return False if it sent another. True if already dead.

        `now` only determines when its row may be deleted.
        """
        ended = {"state": SessionState.DEAD.value, TTL: expiry(now, retention.DEAD_SESSIONS)}
        try:
            await self._tables.commit(self._update(seen.id, ended, all_of(Equals("hb", seen.beat), _ALIVE)))
        except StaleWrite as error:
            return error.row is None or not _is_alive(error.row)
        return True

    async def leave(self, session: SessionId) -> None:
        """End our own session, its leases released. If another worker ended it first, that row stays.

        That row is evidence for people.
        """
        try:
            await self._tables.commit(Delete(TableName.CONTROL, self._key(session), _ALIVE))
        except StaleWrite:
            return

    async def forget(self, session: SessionId) -> None:
        """Delete the row of a dead session: it is only evidence, since a missing session counts as dead."""
        is_dead = Equals("state", SessionState.DEAD.value)
        try:
            await self._tables.commit(Delete(TableName.CONTROL, self._key(session), is_dead))
        except StaleWrite:
            return

    async def list(self) -> list[Session]:
        """Return all sessions, read consistently."""
        rows = query_all(self._tables, TableName.CONTROL, self._pk, sk=Prefix(keys.SESSION))
        return self._memory.read([row async for row in rows])

    def _key(self, session: SessionId) -> Key:
        return Key(self._pk, keys.session_sk(session))

    def _update(self, session: SessionId, attributes: Row, condition: Condition) -> Update:
        return Update(table=TableName.CONTROL, key=self._key(session), set=attributes, condition=condition)


def _is_alive(row: Row) -> bool:
    return choice(row, "state", SessionState) is not SessionState.DEAD


def _heard(at: datetime | None) -> dict[str, str]:
    return {} if at is None else {"heardAt": instant_text(at)}


def _session(row: Row) -> Session:
    return Session(
        id=SessionId(str(row["SK"]).removeprefix(keys.SESSION)),
        beat=whole(row, "hb"),
        state=choice(row, "state", SessionState),
        changes=whole(row, "chg"),
        load=whole(row, "load"),
        roles=frozenset(texts(row, "duties")),
        program=loose_text(row, "ver"),
        pace=loose_text(row, "pace"),
        process=loose_text(row, "process"),
        kept_until=whole(row, TTL) if TTL in row else 0,
        heard_at=parse_rfc3339(loose_text(row, "heardAt")),
    )
