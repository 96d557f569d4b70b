"""Sessions: which worker processes are alive. One heartbeat row each; whatever they hold points at it.

No clocks are compared here: the time of a beat is for people. A session is ended by one conditional write on its row,
and a heartbeat that comes after it is refused, so the two can never both be right.
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

CLOCKS_DIFFER_MAX: Final = timedelta(minutes=1)  # far more than a session is silent before others end it


class SessionState(StrEnum):
    LIVE = "LIVE"
    DRAINING = "DRAINING"  # leaving: holds what it has, takes nothing
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session as its row says. A row that is not there is a session that will never return: ids are not reused."""

    id: SessionId
    beat: int
    state: SessionState
    changes: int = 0  # rises whenever it took, asked for or released a lease: others need not look until it does
    load: int = 0
    duties: frozenset[str] = frozenset()  # what it is there for; empty: everything
    program: str = ""  # the version it runs; for people, nothing is decided by it
    pace: str = ""  # its timing, in which all must agree; empty: of a version that did not say so
    kept_until: int = 0  # of one that is DEAD, in seconds since 1970
    heard_at: datetime | None = None  # its last beat, by its own clock; for people, nothing is decided by it

    def does(self, duty: str) -> bool:
        return not duty or not self.duties or duty in self.duties

    @property
    def is_alive(self) -> bool:
        return self.state is not SessionState.DEAD

    def silent_for(self, now: datetime) -> timedelta:
        """How long it seems to have been silent, to whoever's clock says `now`; nothing within what clocks differ."""
        silence = timedelta(0) if self.heard_at is None else now - self.heard_at
        return silence if silence > CLOCKS_DIFFER_MAX else timedelta(0)


# Any state but DEAD: a draining worker still holds its leases.
_ALIVE = any_of(Equals("state", SessionState.LIVE.value), Equals("state", SessionState.DRAINING.value))


class Sessions:
    """The sessions of one group of workers."""

    def __init__(self, tables: Tables, group: str) -> None:
        self._tables, self._pk = tables, keys.group_pk(group)
        self._memory = RowMemory(_session)  # every look of every worker lists them, and most are as they were

    async def register(
        self,
        session: SessionId,
        program: str,
        duties: frozenset[str] = frozenset(),
        *,
        pace: str = "",
        at: datetime | None = None,
    ) -> None:
        """Begin a session. Raises `StaleWrite` if the id was used before: make a new one."""
        row = {
            "PK": self._pk,
            "SK": keys.session_sk(session),
            "hb": 0,
            "state": SessionState.LIVE.value,
            "chg": 0,
            "load": 0,
            "ver": program,
            "duties": sorted(duties),
            **({"pace": pace} if pace else {}),
            **_heard(at),
        }
        await self._tables.commit(Put(TableName.CONTROL, row, Absent()))

    async def beat(
        self, session: SessionId, number: int, *, changes: int = 0, load: int = 0, at: datetime | None = None
    ) -> bool:
        """Say that the session lives; False if it was ended: stop acting at once. A repeated number is harmless."""
        not_later = any_of(Less("hb", number), Equals("hb", number))
        said = {"hb": number, "chg": changes, "load": load, **_heard(at)}
        beat = self._update(session, said, all_of(not_later, _ALIVE))
        try:
            await self._tables.commit(beat)
        except StaleWrite as error:
            # Refused for its number only: a later beat of ours was faster.
            return error.row is not None and _is_alive(error.row)
        return True

    async def drain(self, session: SessionId) -> bool:
        """Say that the session is leaving; False if it was ended."""
        try:
            await self._tables.commit(self._update(session, {"state": SessionState.DRAINING.value}, _ALIVE))
        except StaleWrite:
            return False
        return True

    async def kill(self, seen: Session, now: datetime) -> bool:
        """End a session whose beat we saw stand still; False if it has beaten since. True also if it is dead already.

        `now` only says when its row may be cleared away.
        """
        ended = {"state": SessionState.DEAD.value, TTL: expiry(now, retention.DEAD_SESSIONS)}
        try:
            await self._tables.commit(self._update(seen.id, ended, all_of(Equals("hb", seen.beat), _ALIVE)))
        except StaleWrite as error:
            return error.row is None or not _is_alive(error.row)
        return True

    async def leave(self, session: SessionId) -> None:
        """End our own session, its leases released. If another ended it first, that row stays as evidence."""
        try:
            await self._tables.commit(Delete(TableName.CONTROL, self._key(session), _ALIVE))
        except StaleWrite:
            return

    async def forget(self, session: SessionId) -> None:
        """Clear away the row of a dead session: it is only evidence, since one that is missing counts as dead."""
        is_dead = Equals("state", SessionState.DEAD.value)
        try:
            await self._tables.commit(Delete(TableName.CONTROL, self._key(session), is_dead))
        except StaleWrite:
            return

    async def list(self) -> list[Session]:
        """All sessions, read consistently."""
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
        duties=frozenset(texts(row, "duties")),
        program=loose_text(row, "ver"),
        pace=loose_text(row, "pace"),
        kept_until=whole(row, TTL) if TTL in row else 0,
        heard_at=parse_rfc3339(loose_text(row, "heardAt")),
    )
