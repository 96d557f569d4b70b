"""Chat threads: one per run or incident, opened by exactly one of the workers that have an event.

The row also stores what the first message shows and which events were posted. So any worker can continue: update the
first message, and recognise a repeat. A row without a first message only remembers: its events were posted elsewhere,
or there was nothing to post.
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
# The number of events a thread remembers. A repeat arrives at most as late as a queue keeps it, up to 14 days: for one
# thread that is 35 a day, more than a person reads. An id has some 36 characters, so they take 20 KB of a row's 400 KB.
# Most threads are about one run and have a handful.
TOLD_MAX = 500


@dataclass(frozen=True, slots=True)
class ThreadKey:
    """Identifies what a thread is about: a run, or an incident of a pipeline (or of none)."""

    pipeline: str
    schedule: str = ""
    period: str = ""
    incident: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadHeader:
    """Holds what the first message shows: the status at `version`, the first and the latest event."""

    version: int = 0
    standing: str = ""
    first: str = ""
    latest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """Open: the thread exists; reply in it. Without `timestamp` it has no first message, only memory."""

    channel: str  # the chat's own id of the channel
    timestamp: str  # the chat's own id of the first message
    routed_to: str = ""  # the channel as the route names it
    face: ThreadHeader = field(default_factory=ThreadHeader)
    told: tuple[str, ...] = ()  # the last events posted in it, oldest first
    revision: int = 0
    worst: str = ""  # the highest severity posted in it; "" if unknown

    @property
    def is_open(self) -> bool:
        return bool(self.timestamp)


_NOTHING = Open(channel="", timestamp="")


@dataclass(frozen=True, slots=True)
class Claimed:
    """Claimed: the caller may open the thread for `CLAIM`. Post the first message, then call `opened`.

    `before` is what the row remembers.
    """

    before: Open = _NOTHING


@dataclass(frozen=True, slots=True)
class Busy:
    """Busy: another worker is opening the thread; retry later."""


# Returns whether an open thread is outdated, so that a new one must replace it.
IsPast: TypeAlias = Callable[[Open], bool]


def never_past(_thread: Open) -> bool:
    return False


class Threads:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def find(self, thread: ThreadKey) -> Open | None:
        """Return the thread if it has a first message."""
        seen = await self.look(thread)
        return seen if seen is not None and seen.is_open else None

    async def look(self, thread: ThreadKey) -> Open | None:
        """Return the thread, or what is remembered of one without a first message."""
        row = await self._tables.get(TableName.EVENTS, _key(thread))
        return None if row is None else _open(row)

    async def look_many(self, threads: Sequence[ThreadKey]) -> dict[ThreadKey, Open]:
        """Return those of several threads that are known."""
        rows = await self._tables.get_many(TableName.EVENTS, [_key(thread) for thread in threads])
        return {thread: _open(rows[key]) for thread in threads if (key := _key(thread)) in rows}

    async def claim(
        self, thread: ThreadKey, *, channel: str, claimant: str, now: datetime, is_past: IsPast = never_past
    ) -> Open | Claimed | Busy:
        """Return the thread, or claim the right to open it. A repeat by the same claimant extends the claim."""
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
        """Store the first message; return False if the claim had expired and another opened the thread."""
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
            condition=Equals("claimant", claimant),  # absent once the thread is open
        )
        try:
            await self._tables.commit(saved)
        except StaleWrite as error:
            return error.row is not None and error.row.get("threadTs") == timestamp
        return True

    async def give_up(self, thread: ThreadKey, *, claimant: str) -> None:
        """Release a claim. Idempotent. Raises `RetryLater`."""
        with suppress(StaleWrite):  # it expired, and another worker has it
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
        """Record that an event was posted, and what the first message shows; None if `seen` is outdated.

        The first message never goes back: a header with a lower version than the one shown is ignored.
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
        """Record an event without a message in its thread; return False if `seen` is outdated.

        Also return False if another worker is opening the thread. `also` is written in the same commit, and only if the
        event was not recorded before.
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
    """Return the end of a claim that no correct clock can have made; None if the claim is plausible.

    Either the claimant's clock was ahead, or this worker's clock was set back.
    """
    until = optional_whole(row, "opening") if row else None
    return until if until is not None and until > keys.millis(now + CLAIM + SET_BACK_MIN) else None


def _claim_write(
    thread: ThreadKey, before: Open | None, channel: str, claimant: str, now: datetime, *, impossible: int | None
) -> Put:
    """Build the claim and keep what the row remembers, so that a repeated event opens no second thread."""
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
    """Return the result that follows from the row that refused the claim."""
    seen = None if row is None else _open(row)
    if seen is not None and seen.is_open:
        return Busy() if is_past(seen) else seen
    if row is not None and seen is not None and row.get("claimant") == claimant:
        return _claimed(seen)
    return Busy()


def _claimed(before: Open | None) -> Claimed:
    """Return the claim with what the row remembers; the channel of an earlier claim is dropped."""
    if before is None or before.is_open:
        return Claimed(before or _NOTHING)
    return Claimed(replace(before, channel="", routed_to=""))


def _face_values(face: ThreadHeader) -> Mapping[str, Value]:
    return {"shown": face.version, "standing": face.standing, "first": face.first, "latest": face.latest}


def _open(row: Row) -> Open:
    """Parse a thread. Rows of the Lambda edition have a channel and a message, and nothing else."""
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
