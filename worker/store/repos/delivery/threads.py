"""Chat threads: one per run or incident, opened by one of all those who want to tell something.

The row also remembers what the first message shows and which events were told, so that any worker can go on: show the
latest again, and recognise a repeat. A row without a first message is only that memory: its events were told elsewhere,
or there was nothing to tell.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from worker.core.model import keys
from worker.core.time.skew import SET_BACK_MIN
from worker.store import retention
from worker.store.rows import expiry, instant_text, loose_text, optional_whole, texts
from worker.store.table import (
    TTL,
    Absent,
    Condition,
    Delete,
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
    Write,
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
    """What a thread is about: a run, or an incident of a pipeline (or of none)."""

    pipeline: str
    schedule: str = ""
    period: str = ""
    incident: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHeader:
    """What the first message shows: how things stood at `version`, after which event, and what it began with."""

    version: int = 0
    standing: str = ""
    first: str = ""
    latest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """The thread is there: answer in it. Without a `timestamp` it has no first message, and only remembers."""

    channel: str  # by the chat's own id
    timestamp: str  # the chat's own id of the first message
    routed_to: str = ""  # the channel as it was asked for
    face: ThreadHeader = field(default_factory=ThreadHeader)
    told: tuple[str, ...] = ()  # the last events told in it, oldest first
    revision: int = 0
    worst: str = ""  # the gravest severity that was told in it; "" if that is not known

    @property
    def is_open(self) -> bool:
        return bool(self.timestamp)


_NOTHING = Open(channel="", timestamp="")


@dataclass(frozen=True, slots=True)
class Claimed:
    """The thread is yours to open, for `CLAIM`: post the first message, then say `opened`. `before` is remembered."""

    before: Open = _NOTHING


@dataclass(frozen=True, slots=True)
class Busy:
    """Another is opening it: come back later."""


# Says whether an open thread is of the past, so that a new one is to be opened in its place.
IsPast: TypeAlias = Callable[[Open], bool]


def never_past(_thread: Open) -> bool:
    return False


class Threads:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def find(self, thread: ThreadKey) -> Open | None:
        """Give the thread if it has a first message."""
        seen = await self.look(thread)
        return seen if seen is not None and seen.is_open else None

    async def look(self, thread: ThreadKey) -> Open | None:
        """Give the thread, or what is remembered of one that has no first message."""
        row = await self._tables.get(TableName.EVENTS, _key(thread))
        return None if row is None else _open(row)

    async def claim(
        self, thread: ThreadKey, *, channel: str, claimant: str, now: datetime, is_past: IsPast = never_past
    ) -> Open | Claimed | Busy:
        """Find the thread, or become the one who opens it. Claiming again by the same token prolongs the claim."""
        before = await self.look(thread)
        if before is not None and before.is_open and not is_past(before):
            return before
        impossible: int | None = None
        for _ in range(2):
            try:
                await self._tables.commit(_claim_write(thread, before, channel, claimant, now, impossible=impossible))
            except StaleWrite as error:
                impossible = _impossible_claim(error.row, now)
                if impossible is None:
                    return _meanwhile(error.row, claimant, is_past)
            else:
                return _claimed(before)
        return Busy()

    async def opened(
        self,
        thread: ThreadKey,
        claimed: Claimed,
        *,
        claimant: str,
        channel: str,
        timestamp: str,
        face: ThreadHeader,
        told: str,
        worst: str = "",
    ) -> bool:
        """Save the first message; False if the claim had run out and another opened the thread."""
        saved = Update(
            table=TableName.EVENTS,
            key=_key(thread),
            set={
                "threadTs": timestamp,
                "channelId": channel,
                "told": [*_kept(claimed.before.told, told)],
                "revision": claimed.before.revision + 1,
                "worst": worst,
                **_face_values(face),
            },
            remove=frozenset({"opening", "claimant"}),
            condition=Equals("claimant", claimant),  # gone from the row once the thread is open
        )
        try:
            await self._tables.commit(saved)
        except StaleWrite as error:
            return error.row is not None and error.row.get("threadTs") == timestamp
        return True

    async def give_up(self, thread: ThreadKey, *, claimant: str) -> None:
        """Let go of a claim. May be repeated. Raises `RetryLater`."""
        with suppress(StaleWrite):  # it ran out, and is another's
            await self._tables.commit(Delete(TableName.EVENTS, _key(thread), Equals("claimant", claimant)))

    async def note(
        self,
        thread: ThreadKey,
        seen: Open,
        *,
        told: str,
        face: ThreadHeader,
        worst: str = "",
        also: Sequence[Write] = (),
    ) -> Open | None:
        """Remember that an event was told, and what the first message is to show; None if `seen` is outdated.

        The first message never goes back: a face of a lower version than the one shown is left out.
        """
        noted = _after(seen, told, face, worst or seen.worst)
        write = Update(
            table=TableName.EVENTS,
            key=_key(thread),
            set={"told": [*noted.told], "revision": noted.revision, "worst": noted.worst, **_face_values(noted.face)},
            condition=all_of(Exists("threadTs"), _is_unchanged(seen)),
        )
        try:
            await self._tables.commit(write, *also)
        except StaleWrite:
            return None
        return noted

    async def remember(
        self,
        thread: ThreadKey,
        seen: Open | None,
        *,
        told: str,
        face: ThreadHeader,
        worst: str,
        now: datetime,
        also: Sequence[Write] = (),
    ) -> bool:
        """Note an event without a message in its thread; False if `seen` is outdated, or another opens the thread.

        `also` is written in the same commit, and only if the event was not noted before.
        """
        if seen is not None and told in seen.told:
            return True
        if seen is not None and seen.is_open:
            return await self.note(thread, seen, told=told, face=face, worst=worst, also=also) is not None
        before = seen or _NOTHING
        noted = _after(before, told, face, worst)
        row = {
            **_row(thread, now),
            "told": [*noted.told],
            "revision": noted.revision,
            "worst": noted.worst,
            **_face_values(noted.face),
        }
        given_up: list[Condition] = [Less("opening", keys.millis(now))]
        for _ in range(2):
            nobody_opens = any_of(Absent("opening"), *given_up)
            is_free = any_of(Absent(), Expired(now), all_of(Absent("threadTs"), nobody_opens, _is_unchanged(before)))
            try:
                await self._tables.commit(Put(TableName.EVENTS, row, is_free), *also)
            except StaleWrite as error:
                impossible = _impossible_claim(error.row, now)
                if impossible is None:
                    return error.row is not None and told in _open(error.row).told
                given_up = [Equals("opening", impossible)]
            else:
                return True
        return False


def _after(seen: Open, told: str, face: ThreadHeader, worst: str) -> Open:
    shown = face if face.version >= seen.face.version else seen.face
    return replace(seen, face=shown, told=_kept(seen.told, told), revision=seen.revision + 1, worst=worst)


def _kept(before: tuple[str, ...], told: str) -> tuple[str, ...]:
    return (*before, told)[-TOLD_MAX:]


def _is_unchanged(seen: Open) -> Condition:
    is_same = Equals("revision", seen.revision)
    return is_same if seen.revision else any_of(Absent("revision"), is_same)


def _key(thread: ThreadKey) -> Key:
    sk = keys.incident_thread_sk(thread.incident) if thread.incident else keys.thread_sk(thread.schedule, thread.period)
    return Key(keys.pipeline_pk(thread.pipeline), sk)


def _row(thread: ThreadKey, now: datetime) -> dict[str, Value]:
    key = _key(thread)
    return {"PK": key.pk, "SK": key.sk, "createdAt": instant_text(now), TTL: expiry(now, retention.EVENTS)}


def _impossible_claim(row: Row | None, now: datetime) -> int | None:
    """Return until when a claim lasts that no right clock can have made: one that was ahead, or ours was set back."""
    until = optional_whole(row, "opening") if row else None
    return until if until is not None and until > keys.millis(now + CLAIM + SET_BACK_MIN) else None


def _claim_write(
    thread: ThreadKey, before: Open | None, channel: str, claimant: str, now: datetime, *, impossible: int | None
) -> Put:
    """Take the row, and keep what it remembers: a repeat of what was told before must not open a thread again."""
    row = {
        **_row(thread, now),
        "channelId": channel,
        "routedTo": channel,
        "claimant": claimant,
        "opening": keys.millis(now + CLAIM),
    }
    if before is not None:
        row |= {"told": [*before.told], "revision": before.revision, **_face_values(before.face)}
    if before is not None and before.is_open:
        return Put(TableName.EVENTS, row, all_of(Equals("threadTs", before.timestamp), _is_unchanged(before)))
    unopened = all_of(Absent("threadTs"), _is_unchanged(before)) if before is not None else Absent()
    # An open thread has no such attribute.
    is_free = any_of(Absent("opening"), Less("opening", keys.millis(now)), Equals("claimant", claimant))
    if impossible is not None:
        is_free = any_of(is_free, Equals("opening", impossible))
    return Put(TableName.EVENTS, row, any_of(Absent(), Expired(now), all_of(unopened, is_free)))


def _meanwhile(row: Row | None, claimant: str, is_past: IsPast) -> Open | Claimed | Busy:
    """What the row that refused our claim says."""
    seen = None if row is None else _open(row)
    if seen is not None and seen.is_open:
        return Busy() if is_past(seen) else seen
    if row is not None and seen is not None and row.get("claimant") == claimant:
        return _claimed(seen)
    return Busy()


def _claimed(before: Open | None) -> Claimed:
    """What was claimed before, by us or by whoever gave it up, has a channel and nothing to remember."""
    if before is None or before.is_open:
        return Claimed(before or _NOTHING)
    return Claimed(replace(before, channel="", routed_to=""))


def _face_values(face: ThreadHeader) -> Mapping[str, Value]:
    return {"shown": face.version, "standing": face.standing, "first": face.first, "latest": face.latest}


def _open(row: Row) -> Open:
    """Rows of the reference have a channel and a message, and nothing else."""
    channel = loose_text(row, "channelId")
    return Open(
        channel=channel,
        timestamp=loose_text(row, "threadTs"),
        routed_to=loose_text(row, "routedTo") or channel,
        face=ThreadHeader(
            version=optional_whole(row, "shown") or 0,
            standing=loose_text(row, "standing"),
            first=loose_text(row, "first"),
            latest=loose_text(row, "latest"),
        ),
        told=texts(row, "told") if "told" in row else (),
        revision=optional_whole(row, "revision") or 0,
        worst=loose_text(row, "worst"),
    )
