"""Collections: the objects of one period as one set, and when that set is complete.

A collection is folded from arrivals one by one, so a period of 10,000 parts costs the same per part as one of ten. The
digest is a sum over all parts: it depends neither on their order nor on how often each was reported.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from worker.core.model.values import Json
from worker.core.time.durations import format_duration
from worker.core.time.skew import was_set_back
from worker.core.time.timestamps import format_rfc3339

PARTS_MAX: Final = 100_000  # of one period, listed ones included; a part beyond them is refused
SETTLE: Final = timedelta(seconds=5)  # S3 orders no notifications: those of the last parts may follow the marker's

_DIGEST_BITS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Until:
    """States when a collection is complete: as soon as any of these holds. `latest` gives up waiting."""

    count: int | None = None
    has_marker: bool = False
    has_manifest: bool = False
    quiet: timedelta | None = None
    settle: timedelta = SETTLE
    latest: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectedPart:
    """Holds what is known of one object.

    `etag` "" means that it is not there: deleted, or only listed so far. `version` is the version of the collection in
    which the part last changed.
    """

    key: str
    etag: str = ""
    size: int = 0
    sequencer: str = ""
    is_listed: bool = False
    is_archived: bool = False
    version: int = 0

    @property
    def is_missing(self) -> bool:
        return self.is_listed and not self.etag

    def is_later_than(self, other: "CollectedPart") -> bool:
        """Return whether this state is later; if either has no sequencer, this one counts as later."""
        return not self.sequencer or not other.sequencer or self.sequencer > other.sequencer


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Holds the set of one period as sums over its parts. Version 0 means that nothing arrived yet."""

    version: int = 0
    count: int = 0
    bytes: int = 0
    digest: str = ""
    listed: int = 0  # parts that the manifest lists
    missing: int = 0  # those of them that are not there
    manifest: str = ""  # the etag of the manifest that is loaded
    first_at: datetime | None = None
    last_at: datetime | None = None
    marker_at: datetime | None = None
    completed_at: datetime | None = None
    expired_at: datetime | None = None
    reason: str = ""
    archived: int = 0  # the version up to which all parts are archived
    archive_problem: str = ""

    @property
    def is_complete(self) -> bool:
        return self.completed_at is not None


@dataclass(frozen=True, slots=True)
class Folded:
    """Folded is a collection after some arrivals, and the parts that changed."""

    collection: Collection
    parts: Mapping[str, CollectedPart] = field(default_factory=dict[str, CollectedPart])


def next_version(collection: Collection, now: datetime) -> int:
    """Return a version that is later than any the collection ever had, even if its row expired meanwhile."""
    return max(collection.version + 1, int(now.timestamp() * 1000))


def add_parts(
    collection: Collection, known: Mapping[str, CollectedPart], arrived: Iterable[CollectedPart], now: datetime
) -> Folded:
    """Fold arrivals into a collection. A repeat, and one that is older than what is known, change nothing."""
    parts = dict(known)
    version = next_version(collection, now)
    folded, moved = collection, set[str]()
    for each in arrived:
        before = parts.get(each.key, CollectedPart(key=each.key))
        if not each.is_later_than(before):
            continue
        is_change = each.etag != before.etag
        if is_change or each.sequencer > before.sequencer:
            # The sequencer of unchanged content moves too, or an older notification could still replace the content.
            after = replace(
                each,
                is_listed=before.is_listed,
                is_archived=before.is_archived and not is_change,
                version=version if is_change else before.version,
            )
            folded, parts[each.key] = _replaced(folded, before, after), after
            moved.add(each.key)
    if (folded.digest, folded.count) != (collection.digest, collection.count):
        folded = replace(folded, version=version, first_at=folded.first_at or now, last_at=now)
    return Folded(folded, {key: parts[key] for key in moved})


def list_parts(
    collection: Collection,
    known: Mapping[str, CollectedPart],
    keys: Iterable[str],
    now: datetime,
    *,
    listed: bool = True,
) -> Folded:
    """Record that the manifest lists these keys; with `listed` False, that it no longer does."""
    changed: dict[str, CollectedPart] = {}
    for key in keys:
        before = known.get(key, CollectedPart(key=key))
        if before.is_listed != listed:
            changed[key] = replace(before, is_listed=listed)
            collection = _replaced(collection, before, changed[key])
    # A listed part keeps its version, because its content did not change.
    return Folded(_noted(collection, now) if changed else collection, changed)


def see_marker(collection: Collection, now: datetime) -> Collection:
    """Record that the marker object is there. A repeat changes nothing."""
    if collection.marker_at is not None:
        return collection
    return replace(_noted(collection, now), marker_at=now)


def see_manifest(collection: Collection, etag: str, now: datetime) -> Collection:
    """Record that all parts of a manifest are listed. A repeat changes nothing."""
    if collection.manifest == etag:
        return collection
    return replace(_noted(collection, now), manifest=etag)


def judge(collection: Collection, until: Until, now: datetime) -> Collection:
    """Return the collection as complete or expired if it is so now. A complete one stays complete."""
    if collection.is_complete or collection.first_at is None:
        return collection
    collection = _not_in_future(collection, now)
    reason = _why_complete(collection, until, now)
    if reason:
        return replace(collection, version=next_version(collection, now), completed_at=now, reason=reason)
    if (
        until.latest is not None
        and collection.expired_at is None
        and now >= (collection.first_at or now) + until.latest
    ):
        reason = f"incomplete {format_duration(until.latest)} after the first object: {_waits_for(collection, until)}"
        return replace(collection, version=next_version(collection, now), expired_at=now, reason=reason)
    return collection


def next_check(collection: Collection, until: Until) -> datetime | None:
    """Return when time alone may change the collection; None if it cannot."""
    if collection.is_complete or collection.first_at is None:
        return None
    times: list[datetime] = []
    if until.quiet is not None and collection.last_at is not None:
        times.append(collection.last_at + until.quiet)
    if until.has_marker and collection.marker_at is not None:
        times.append(_settled_at(collection, until))
    if until.latest is not None and collection.expired_at is None:
        times.append(collection.first_at + until.latest)
    return min(times, default=None)


def sensor_data(collection: Collection, until: Until) -> dict[str, Json]:
    """Return the data of the sensor of a collection."""
    data: dict[str, Json] = {
        "complete": collection.is_complete,
        "count": collection.count,
        "bytes": collection.bytes,
        "digest": collection.digest or "0" * (_DIGEST_BITS // 4),
        "version": collection.version,
        "reason": collection.reason or f"waits for {_waits_for(collection, until)}",
    }
    for name, at in (("firstAt", collection.first_at), ("lastAt", collection.last_at)):
        if at is not None:
            data[name] = format_rfc3339(at)
    missing = _missing(collection, until)
    return data if missing is None else {**data, "missing": missing}


def _noted(collection: Collection, now: datetime) -> Collection:
    """Return a collection of which something else than its parts changed.

    Once it is complete, that is no change of the sensor: no data is late because a marker was written again.
    """
    version = collection.version if collection.is_complete else next_version(collection, now)
    return replace(collection, version=version, first_at=collection.first_at or now)


def _replaced(collection: Collection, before: CollectedPart, after: CollectedPart) -> Collection:
    return replace(
        collection,
        count=collection.count + bool(after.etag) - bool(before.etag),
        bytes=collection.bytes + _counted(after) - _counted(before),
        digest=_sum(collection.digest, after, before),
        listed=collection.listed + after.is_listed - before.is_listed,
        missing=collection.missing + after.is_missing - before.is_missing,
    )


def _counted(part: CollectedPart) -> int:
    return part.size if part.etag else 0


def _sum(digest: str, added: CollectedPart, removed: CollectedPart) -> str:
    total = int(digest or "0", 16) + _share(added) - _share(removed)
    return f"{total % 2**_DIGEST_BITS:0{_DIGEST_BITS // 4}x}"


def _share(part: CollectedPart) -> int:
    """Return what a part adds to the digest; nothing if it is not there."""
    if not part.etag:
        return 0
    hashed = hashlib.sha256(f"{part.key}\0{part.etag}".encode()).digest()
    return int.from_bytes(hashed[: _DIGEST_BITS // 8])


def _not_in_future(collection: Collection, now: datetime) -> Collection:
    """Return a collection whose waits begin now if the clock was set back to before they began."""
    seen = {name: getattr(collection, name) for name in ("first_at", "last_at", "marker_at")}
    later = {name: now for name, at in seen.items() if at is not None and was_set_back(at, now)}
    return replace(collection, **later) if later else collection


def _settled_at(collection: Collection, until: Until) -> datetime:
    seen = [at for at in (collection.marker_at, collection.last_at) if at is not None]
    return max(seen) + until.settle


def _why_complete(collection: Collection, until: Until, now: datetime) -> str:
    if until.count is not None and collection.count >= until.count:
        return f"all {until.count} parts arrived"
    if until.has_manifest and collection.manifest and not collection.missing:
        return f"all {collection.listed} parts of the manifest arrived"
    if until.has_marker and collection.marker_at is not None and now >= _settled_at(collection, until):
        return "the marker object arrived"
    if until.quiet is not None and collection.last_at is not None and now >= collection.last_at + until.quiet:
        return f"no part arrived for {format_duration(until.quiet)}"
    return ""


def _missing(collection: Collection, until: Until) -> int | None:
    if until.has_manifest and collection.manifest:
        return collection.missing
    return None if until.count is None else max(0, until.count - collection.count)


def _waits_for(collection: Collection, until: Until) -> str:
    wanted: list[str] = []
    if until.count is not None:
        wanted.append(f"{until.count - collection.count} of {until.count} parts")
    if until.has_manifest:
        listed = f"{collection.missing} of the {collection.listed} parts of the manifest"
        wanted.append(listed if collection.manifest else "the manifest")
    if until.has_marker and collection.marker_at is None:
        wanted.append("the marker object")
    elif until.has_marker:
        wanted.append(f"{format_duration(until.settle)} without a part after the marker object")
    if until.quiet is not None:
        wanted.append(f"{format_duration(until.quiet)} without a part")
    return " or ".join(wanted)
