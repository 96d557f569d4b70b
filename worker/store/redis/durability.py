"""Judges what a Redis server's settings promise: what a crash, a power loss or a failover may lose."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from worker.core.errors import ConfigError
from worker.store.admin import StoreFinding

NOEVICTION: Final = "noeviction"
SET_BY: Final = "with CONFIG SET and CONFIG REWRITE, or in the server's file"


@dataclass(frozen=True, slots=True)
class Replica:
    address: str
    is_online: bool
    behind_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Durability:
    """Holds what a server says about itself; `settings` is None if this user may not read them."""

    settings: Mapping[str, str] | None
    is_appending: bool
    is_primary: bool
    replicas: Sequence[Replica]
    asked_replicas: int
    write_trouble: str = ""

    @property
    def syncs_always(self) -> bool | None:
        """Return whether a commit is on disk before it is answered; None if that cannot be read."""
        if self.settings is None:
            return None if self.is_appending else False
        return self.is_appending and self.settings.get("appendfsync") == "always"


def require_no_eviction(found: Durability, where: str) -> None:
    """Raise `ConfigError` if the server is known to delete rows when it is full."""
    policy = (found.settings or {}).get("maxmemory-policy", NOEVICTION)
    if policy != NOEVICTION:
        raise ConfigError(
            f"{where} has maxmemory-policy {policy}: a full server would delete rows, also locks, without notice; "
            f"set it to noeviction, {SET_BY}"
        )


def durability_findings(found: Durability) -> list[StoreFinding]:
    return [*_eviction(found), *_disk(found), *_replication(found), _promise(found)]


def _eviction(found: Durability) -> Iterator[StoreFinding]:
    if found.settings is None:
        yield StoreFinding(
            "maxmemory-policy",
            "cannot be read by this user",
            "allow it CONFIG GET, or see yourself that it is noeviction",
        )
        return
    policy = found.settings.get("maxmemory-policy", "")
    if policy == NOEVICTION:
        yield StoreFinding("maxmemory-policy", "noeviction: a full server refuses commits and deletes nothing")
    else:
        yield StoreFinding(
            "maxmemory-policy",
            f"is {policy}: a full server deletes rows, locks among them, without notice",
            f"set it to noeviction, {SET_BY}",
        )


def _disk(found: Durability) -> Iterator[StoreFinding]:
    if found.write_trouble:
        yield StoreFinding("disk", f"{found.write_trouble} is not ok", "see the server's log and its disk")
    if not found.is_appending:
        yield StoreFinding(
            "appendonly",
            "is off: a restart loses every commit since the last snapshot",
            f"set appendonly yes and appendfsync always, {SET_BY}",
        )
        return
    yield StoreFinding("appendonly", "is on")
    match found.syncs_always:
        case True:
            yield StoreFinding("appendfsync", "always: a commit is on disk before it is answered")
        case None:
            yield StoreFinding("appendfsync", "cannot be read by this user", "allow it CONFIG GET, and check again")
        case False:
            policy = (found.settings or {}).get("appendfsync", "unknown")
            lost = "about a second of commits" if policy == "everysec" else "half a minute of commits or more"
            yield StoreFinding(
                "appendfsync",
                f"is {policy}: a power loss of the server loses {lost}, and jobs may start again",
                f"set it to always, {SET_BY}",
            )


def _replication(found: Durability) -> Iterator[StoreFinding]:
    if not found.is_primary:
        yield StoreFinding("replication", "this server is a replica", "name the primary, or the Sentinels, in the URL")
        return
    online = [replica for replica in found.replicas if replica.is_online]
    if len(online) < found.asked_replicas:
        yield StoreFinding(
            "replication",
            f"{len(online)} of {found.asked_replicas} replicas that the URL's wait needs are online; no commit passes",
            "start the replicas, or lower wait",
        )
        return
    named = ", ".join(f"{replica.address} ({replica.behind_s} s behind)" for replica in online) or "no replica"
    yield StoreFinding("replication", f"primary with {named}")


def _promise(found: Durability) -> StoreFinding:
    """Say whether `no decision is lost` holds: it needs the disk, and for a failover the replicas, too."""
    subject = "promise 2: no decision is lost"
    if found.syncs_always is not True:
        return StoreFinding(subject, "does not hold on this server", "see appendonly and appendfsync above")
    if not found.replicas:
        return StoreFinding(subject, "holds across crashes and power loss; there is no failover")
    if found.asked_replicas:
        count = f"{found.asked_replicas} of {len(found.replicas)} replicas"
        return StoreFinding(
            subject, f"holds across crashes, and across a failover to a replica that confirmed ({count})"
        )
    return StoreFinding(
        subject,
        f"holds across crashes, but a failover to one of {len(found.replicas)} replicas may lose the last commits",
        "add wait=1 to the URL, so that a replica confirms each commit",
    )
