"""The workers of a store: whether any is at work, and whether they run the same version."""

from collections.abc import Iterator, Sequence

from worker.diagnosis.diagnosis import Diagnosis, doubtful, fine
from worker.store.sessions import Session


def look_at_workers(sessions: Sequence[Session], program: str) -> Iterator[Diagnosis]:
    """By their session rows, which say nothing about a worker that ended this very moment."""
    alive = [session for session in sessions if session.is_alive]
    if not alive:
        yield doubtful("workers", "sessions", "no worker is registered", "start one: `interlock run`")
        return
    number = "1 worker is" if len(alive) == 1 else f"{len(alive)} workers are"
    yield fine("workers", "sessions", f"{number} registered")
    versions = sorted({session.program for session in alive})
    if versions == [program]:
        yield fine("workers", "versions", f"all run {program}, as this command does")
    else:
        finding = f"they run {', '.join(versions)}, and this command is {program}"
        yield doubtful("workers", "versions", finding, "fine during a deployment; otherwise bring them to one version")
