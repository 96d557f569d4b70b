"""A real worker whose store is locked by another process: the log, the health page and other shells say why."""

import json
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders import command_line
from tests.support.worlds import live_worker as liveworker
from tests.support.worlds.live_worker import LiveWorker, live_worker, until
from worker.runtime.clock import SystemClock

# Real processes share the machine with everything else.
# In one process: they mostly wait for others, and would do so on all cores at once.
pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]


def events_of(worker: LiveWorker, name: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in worker.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def page_of(worker: LiveWorker, path: str) -> dict[str, Any]:
    [served] = events_of(worker, "health.served")
    try:
        with urllib.request.urlopen(f"http://{served['host']}:{served['port']}{path}", timeout=30) as answer:
            return {"status": answer.status, **json.load(answer)}
    except urllib.error.HTTPError as refused:
        return {"status": refused.code, **json.load(refused)}


def test_a_locked_store_is_reported_once_with_its_reason_and_everywhere_until_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "interlock.db"
    made = command_line.interlock("store", "init", "--store", f"sqlite:///{path}", clock=SystemClock())
    assert made.exit_code == 0
    with live_worker(tmp_path, INTERLOCK_HEALTH="127.0.0.1:0") as worker:
        assert page_of(worker, "/healthz") == {"status": 200, "ok": True, "why": []}
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            # A busy machine may answer late before it answers why.
            until(lambda: any("locked by" in down["reason"] for down in events_of(worker, "store.down")), worker)

            assert "locked by another process" in page_of(worker, "/healthz")["store"]
            assert page_of(worker, "/healthz")["status"] == 200  # another process would find the same
            assert page_of(worker, "/readyz")["status"] == 503
            asked = liveworker.interlock("status", at=tmp_path)
            assert asked.returncode == 3
            assert "no runs" in asked.stdout
            assert "the store interlock.db is locked by another process" in asked.stderr
            checked = liveworker.interlock("store", "check", at=tmp_path)
            assert checked.returncode == 1
            assert "locked by another process" in checked.stdout
            other.execute("ROLLBACK")

        until(lambda: bool(events_of(worker, "store.back")), worker)
        until(lambda: page_of(worker, "/readyz")["status"] == 200, worker)
        assert worker.stop() == 0

    [*late, down], [back] = events_of(worker, "store.down"), events_of(worker, "store.back")
    assert [line["reason"] for line in late] in ([], ["no answer to a heartbeat within 1 s"])
    assert down["level"] == "error"
    assert "the store interlock.db is locked by another process (database is locked); " in down["reason"]
    assert back["after_s"] >= 2
