"""Checks the workers of a store: whether any is alive, and whether they run the same version."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from worker.core.membership.liveness import DEFAULT_TIMING, Timing, name_of_pace
from worker.core.model.keys import SessionId
from worker.operations.doctor.report import Diagnosis, doubtful, fine, wrong
from worker.runtime.clock import Clock
from worker.store.repos.sessions import Session

LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class WorkerGroup:
    """Holds the registered sessions, and those without a heartbeat during the check."""

    registered: Sequence[Session]
    silent: frozenset[SessionId] = frozenset()


async def watch_workers(look: Callable[[], Awaitable[list[Session]]], clock: Clock, patience_s: float) -> WorkerGroup:
    """Wait for a heartbeat of each session, up to `patience_s`.

    A killed worker leaves its session row as alive, and there may be no other worker to end it.
    """
    registered = [session for session in await look() if session.is_alive]
    first = {session.id: session.beat for session in registered}
    silent, until = frozenset(first), clock.monotonic() + patience_s
    while silent and clock.monotonic() < until:
        await clock.sleep(LOOK_EVERY_S)
        registered = [session for session in await look() if session.is_alive]
        silent &= {session.id for session in registered if session.beat == first.get(session.id)}
    return WorkerGroup(registered, silent)


def look_at_workers(staff: WorkerGroup, program: str, timing: Timing = DEFAULT_TIMING) -> Iterator[Diagnosis]:
    count = len(staff.registered)
    number = "1 worker is registered" if count == 1 else f"{count} workers are registered"
    if not count:
        yield doubtful("workers", "sessions", "no worker is registered", "start one: `interlock run`")
        return
    if len(staff.silent) == count:
        finding = f"{number}, without a heartbeat" if count == 1 else f"{number}, none with a heartbeat"
        yield doubtful("workers", "sessions", finding, "see why no worker is left, and start one: `interlock run`")
    elif staff.silent:
        finding = f"{number}, and {len(staff.silent)} of them without a heartbeat"
        yield doubtful("workers", "sessions", finding, "the others take over from them; see why they ended")
    else:
        yield fine("workers", "sessions", f"{number} and alive")
    versions = sorted({session.program for session in staff.registered})
    if versions == [program]:
        yield fine("workers", "versions", f"all run {program}, as this command does")
    else:
        finding = f"they run {', '.join(versions)}, and this command is {program}"
        yield doubtful("workers", "versions", finding, "fine during a deployment; otherwise bring them to one version")
    others = sorted({session.pace for session in staff.registered} - {"", timing.pace})
    if others:
        names = ", ".join(name_of_pace(pace) for pace in others)
        finding = f"they have {names}, and a worker with these settings would have {name_of_pace(timing.pace)}"
        remedy = "set the same everywhere; to change it, stop all workers first"
        yield wrong("workers", "INTERLOCK_TIMING", f"{finding}: it would refuse to start", remedy)
