"""`interlock archive` killed with -9 at random times and run again, and a worker that archives while it runs."""

import asyncio
import gzip
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import a_store, a_stored_run, key_of, version_hash
from tests.support.worlds.live_worker import live_worker
from worker.core.model.events import Event
from worker.core.run.state import State
from worker.runtime.clock import SystemClock
from worker.store.backends.open import open_tables
from worker.store.repos.delivery.archive_progress import ArchiveProgress, ArchiveProgresses
from worker.store.repos.events import event_write
from worker.store.repos.runs import Runs

EVENTS, RUNS = 2_000, 20
CHAOS_ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "0"))
ROUNDS = CHAOS_ROUNDS or 4
STORE = "sqlite:///interlock.db"


async def fill(archive: Path) -> None:
    """Put events of the last hours, and begin the archive two days ago: empty days before that prove nothing."""
    clock = SystemClock()
    tables, now = open_tables(STORE, clock), clock.now()
    await tables.start()
    for begin in range(0, EVENTS, 100):
        numbers = range(begin, begin + 100)
        at = now - timedelta(minutes=20) - timedelta(hours=40) * begin / EVENTS
        events = [Event(id=f"e{number}", type="JOB_COMPLETED", at=at, pipeline="orders") for number in numbers]
        await tables.commit(*map(event_write, events))
    config = await version_hash(tables)
    for number in range(RUNS):
        ended = now - timedelta(minutes=20) - timedelta(hours=number)
        key = key_of(f"{now - timedelta(hours=number):%Y-%m-%dT%H}")
        await Runs(tables).save(a_stored_run(State.COMPLETED, config, key=key, since=ended))
    begin = (now - timedelta(days=2)).replace(hour=0, minute=0, second=0, microsecond=0)
    await ArchiveProgresses(tables, f"file:{archive}").save(ArchiveProgress(up_to=begin, began_at=now, moved_at=now))
    await tables.stop()


def archived(archive: Path, kind: str) -> Counter[str]:
    return Counter(
        json.loads(line)["id"]
        for path in archive.glob(f"{kind}/*/*.ndjson.gz")
        for line in gzip.decompress(path.read_bytes()).splitlines()
    )


def archive_for(seconds: float, archive: Path) -> int | None:
    """The exit code of the command; None if it was killed before its end."""
    process = subprocess.Popen(
        [sys.executable, "-c", "from worker.cli.main import main; main()", "archive", "--to", f"file:{archive}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


@pytest.mark.timeout(3_600 if CHAOS_ROUNDS else 60)
def test_an_archive_killed_and_written_on_has_every_event_and_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a_store(tmp_path)
    archive = tmp_path / "archive"
    asyncio.run(fill(archive))
    draw, kills, code = random.Random(7), 0, None
    while code is None:
        code = archive_for(draw.uniform(0.5, 2.0) if kills < ROUNDS else 40, archive)
        kills += code is None

    assert (code, kills > 0) == (0, True)
    assert set(archived(archive, "events")) == {f"e{number}" for number in range(EVENTS)}
    # A repeat has the names of the first writing, unless more time passed meanwhile than a window's length.
    assert archived(archive, "events").total() <= EVENTS + EVENTS // 10
    assert len(archived(archive, "runs")) == RUNS


def test_a_worker_archives_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    a_store(tmp_path)
    archive = tmp_path / "archive"
    asyncio.run(fill(archive))
    with live_worker(tmp_path, INTERLOCK_STORE=STORE, INTERLOCK_ARCHIVE=f"file:{archive}"):
        deadline = time.monotonic() + 40
        while len(archived(archive, "events")) < EVENTS and time.monotonic() < deadline:
            time.sleep(0.5)

    assert len(archived(archive, "events")) >= EVENTS
