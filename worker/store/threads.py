"""Chat threads: one per pipeline, schedule and period, opened by one of all those who want to tell something.

The row also remembers what the first message shows and which events were told, so that any worker can go on: show the
latest again, and recognise a repeat.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from worker.core import keys
from worker.core.skew import SET_BACK_MIN
from worker.store import retention
from worker.store.attributes import expiry, instant_text, loose_text, optional_whole, texts
from worker.store.table import (
    TTL,
    Absent,
    Equals,
    Exists,
    Expired,
    Key,
    Less,
    Put,
    Row,
    StaleWrite,
    TableName,
    Tables,
    Update,
    Value,
    all_of,
    any_of,
)

CLAIM = timedelta(seconds=60)  # longer than a post may take, short enough to wait for
# Events a thread remembers. A repeat comes as late as a queue keeps it, which may be 14 days: in one thread that is 35
# a day, more than a person reads. An id has some 36 characters, so they take 20 KB of the 400 that a row may have; most
# threads are of one run and have a handful.
TOLD_MAX = 500


@dataclass(frozen=True, slots=True)
class ThreadKey:
    """What a thread is about; an event without schedule and period goes to its pipeline's common thread."""

    pipeline: str
    schedule: str = ""
    period: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Face:
    """What the first message shows: how things stood at `version`, after which event, and what it began with."""

    version: int = 0
    standing: str = ""
    first: str = ""
    latest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The thread is there: answer in it."""

    channel: str  # by the chat's own id
    timestamp: str  # the chat's own id of the first message
    routed_to: str = ""  # the channel as it was asked for
    face: Face = field(default_factory=Face)
    told: tuple[str, ...] = ()  # the last events told in it, oldest first
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """The thread is yours to open, for `CLAIM`: post the first message, then say `opened`."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Another is opening it: come back later."""


class Threads:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def find(self, thread: ThreadKey) -> Open | None:
        row = await self._tables.get(TableName.EVENTS, _key(thread))
        return None if row is None or "threadTs" not in row else _open(row)

    async def claim(self, thread: ThreadKey, *, channel: str, claimant: str, now: datetime) -> Open | Claimed | Busy:
        """Find the thread, or become the one who opens it. Claiming again by the same token prolongs the claim."""
        found = await self.find(thread)
        if found is not None:
            return found
        row, is_given_up = _claim_row(thread, channel, claimant, now), Less("opening", keys.millis(now))
        may_claim = any_of(Absent(), Expired(now), is_given_up, Equals("claimant", claimant))
        for _ in range(2):
            try:
                await self._tables.commit(Put(TableName.EVENTS, row, may_claim))
            except StaleWrite as error:
                until = optional_whole(error.row, "opening") if error.row else None
                if until is None or until <= keys.millis(now + CLAIM + SET_BACK_MIN):
                    return _meanwhile(error.row, claimant)
                # No claim lasts so long: it was made by a clock that was ahead of ours, or ours was set back since.
                may_claim = Equals("opening", until)
            else:
                return Claimed()
        return Busy()

    async def opened(
        self, thread: ThreadKey, *, claimant: str, channel: str, timestamp: str, face: Face, told: str
    ) -> bool:
        """Save the first message; False if the claim had run out and another opened the thread."""
        saved = Update(
            table=TableName.EVENTS,
            key=_key(thread),
            set={"threadTs": timestamp, "channelId": channel, "told": [told], "revision": 1, **_face_values(face)},
            remove=frozenset({"opening", "claimant"}),
            condition=Equals("claimant", claimant),  # gone from the row once the thread is open
        )
        try:
            await self._tables.commit(saved)
        except StaleWrite as error:
            return error.row is not None and error.row.get("threadTs") == timestamp
        return True

    async def note(self, thread: ThreadKey, seen: Open, *, told: str, face: Face) -> Open | None:
        """Remember that an event was told, and what the first message is to show; None if `seen` is outdated.

        The first message never goes back: a face of a lower version than the one shown is left out.
        """
        kept = (*seen.told, told)[-TOLD_MAX:]
        shown = face if face.version >= seen.face.version else seen.face
        is_unchanged = Equals("revision", seen.revision) if seen.revision else Absent("revision")
        noted = Update(
            table=TableName.EVENTS,
            key=_key(thread),
            set={"told": list(kept), "revision": seen.revision + 1, **_face_values(shown)},
            condition=all_of(Exists("threadTs"), is_unchanged),
        )
        try:
            await self._tables.commit(noted)
        except StaleWrite:
            return None
        return Open(
            channel=seen.channel,
            timestamp=seen.timestamp,
            routed_to=seen.routed_to,
            face=shown,
            told=kept,
            revision=seen.revision + 1,
        )


def _key(thread: ThreadKey) -> Key:
    return Key(keys.pipeline_pk(thread.pipeline), keys.thread_sk(thread.schedule, thread.period))


def _claim_row(thread: ThreadKey, channel: str, claimant: str, now: datetime) -> Row:
    key = _key(thread)
    return {
        "PK": key.pk,
        "SK": key.sk,
        "channelId": channel,
        "routedTo": channel,
        "claimant": claimant,
        "opening": keys.millis(now + CLAIM),
        "createdAt": instant_text(now),
        TTL: expiry(now, retention.EVENTS),
    }


def _meanwhile(row: Row | None, claimant: str) -> Open | Claimed | Busy:
    """What the row that refused our claim says."""
    if row is not None and "threadTs" in row:
        return _open(row)
    if row is not None and row.get("claimant") == claimant:
        return Claimed()
    return Busy()


def _face_values(face: Face) -> Mapping[str, Value]:
    return {"shown": face.version, "standing": face.standing, "first": face.first, "latest": face.latest}


def _open(row: Row) -> Open:
    """Rows of the reference have a channel and a message, and nothing else."""
    channel = loose_text(row, "channelId")
    return Open(
        channel=channel,
        timestamp=loose_text(row, "threadTs"),
        routed_to=loose_text(row, "routedTo") or channel,
        face=Face(
            version=optional_whole(row, "shown") or 0,
            standing=loose_text(row, "standing"),
            first=loose_text(row, "first"),
            latest=loose_text(row, "latest"),
        ),
        told=texts(row, "told") if "told" in row else (),
        revision=optional_whole(row, "revision") or 0,
    )
