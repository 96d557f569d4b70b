"""Commands whose output nobody reads, or has no room: quiet as other tools, or one line and a code; never a traceback.

One process starts them all, each in a child of its own: to start a Python for each would take minutes.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.cli_runs import a_store
from tests.support.builders.command_line import interlock
from tests.support.worlds.live_worker import PATIENCE_S, environment

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(300)]

COMMANDS = (
    "validate p0.yaml",
    "validate p0.yaml --json",
    "plan p0.yaml",
    "plan p0.yaml --json",
    "schema",
    "status",
    "status --watch",
    "status orders",
    "explain orders 2027-03-22",
    "explain orders 2027-03-22 --json",
    "events",
    "schedule missed",
    "pipelines list",
    "pipelines list --json",
    "pipelines show orders",
    "sensor list orders",
    "sensor get orders ready --period 2027-03-22",
    "sensor put orders ready status=done --period 2027-03-22",
    "pause orders --reason why",
    "resume orders",
    "rerun orders 2027-03-22",
    "cancel orders 2027-03-22 --reason why",
    "dlq list",
    "leases",
    "watchdog run --dry-run",
    "store check",
    "store check --json",
    "store stats",
    "store init",
    "doctor",
    "--version",
)
CHILDREN = """
import importlib, json, os, pkgutil, sys, tempfile
import worker.cli.app, worker.operations, worker.store
from worker.cli.main import main

# Commands import what they need when they run: without this, each child would do so again.
for package in (worker.cli, worker.operations, worker.store):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

def child(words, stream, is_full):
    report = tempfile.TemporaryFile()
    if is_full:
        target = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, target = os.pipe()
        os.close(reader)
    number = os.fork()
    if not number:
        os.dup2(report.fileno(), 1)
        os.dup2(report.fileno(), 2)
        os.dup2(target, stream)
        sys.argv = ["interlock", *words.split()]
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 99
        for each in (sys.stdout, sys.stderr):
            try:
                each.flush()
            except OSError:
                code = 120  # what Python makes of it
        os._exit(code)
    os.close(target)
    _, status = os.waitpid(number, 0)
    report.seek(0)
    return {"code": os.waitstatus_to_exitcode(status), "said": report.read().decode()}

stream, is_full = int(sys.argv[1]), sys.argv[2] == "full"
print(json.dumps({words: child(words, stream, is_full) for words in sys.argv[3:]}))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    a_store(tmp_path)
    interlock("sensor", "put", "orders", "ready", "status=done", "--period", "2027-03-22")
    return tmp_path


def outcomes(here: Path, stream: int, kind: str, commands: Sequence[str] = COMMANDS) -> dict[str, dict[str, Any]]:
    run = subprocess.run(
        [sys.executable, "-c", CHILDREN, str(stream), kind, *commands],
        cwd=here,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
        check=True,
    )
    return json.loads(run.stdout)


def is_quiet(said: str) -> bool:
    return not any(word in said for word in ("Traceback", "Exception ignored", "unexpected", "Error", "Broken pipe"))


def test_a_command_whose_results_nobody_reads_ends_quietly_as_other_tools_do(here: Path) -> None:
    found = outcomes(here, 1, "gone")

    assert {words: it["said"] for words, it in found.items() if not is_quiet(it["said"])} == {}
    assert {words: it["code"] for words, it in found.items() if it["code"] != 141} == {}


def test_results_that_do_not_fit_on_the_disk_are_an_error_in_one_line(here: Path) -> None:
    found = outcomes(here, 1, "full")

    assert {words: it["said"] for words, it in found.items() if not is_quiet(it["said"])} == {}
    assert {words: it["code"] for words, it in found.items() if it["code"] != 2} == {}
    for words, it in found.items():
        assert "standard output cannot be written: No space left on device" in it["said"], words


@pytest.mark.parametrize("kind", ["gone", "full"])
def test_remarks_that_cannot_be_written_change_neither_results_nor_code(here: Path, kind: str) -> None:
    lasting = {"status --watch"}  # its results can be written, so it goes on
    found = outcomes(here, 2, kind, [words for words in COMMANDS if words not in lasting])

    assert {words: it["said"] for words, it in found.items() if not is_quiet(it["said"])} == {}
    assert {words: it["code"] for words, it in found.items() if it["code"] not in {0, 1, 2}} == {}
    assert found["status"]["said"].startswith("no runs")  # and a remark about no worker, which is lost
    assert found["status"]["code"] == 0
