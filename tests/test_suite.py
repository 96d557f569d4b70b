"""The tools that run the tests do what is asked of them; where they do not, nothing fails, and it only takes longer."""

import io
import logging
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from tests.conftest import pytest_runtest_teardown
from tests.support.clock.manual import ManualClock
from tests.support.worlds.live_worker import interlock, live_worker
from worker.runtime.logs import configure_logs

GROUPS = ("emulator", "demo")
SOURCE = """
import os
import pytest

@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("group", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in {groups}])
def test_one(group, number):
    with open("ran", "a") as ran:
        print(group, os.getpid(), file=ran)
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_groups.py").write_text(SOURCE.format(groups=GROUPS))
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]

    subprocess.run([*command, "test_groups.py"], cwd=tmp_path, check=True, capture_output=True, timeout=60)

    processes: dict[str, set[str]] = defaultdict(set)
    for line in (tmp_path / "ran").read_text().splitlines():
        group, process = line.split()
        processes[group].add(process)
    assert {group: len(processes[group]) for group in GROUPS} == dict.fromkeys(GROUPS, 1)


def test_what_libraries_log_goes_where_it_went_before_once_a_test_has_ended() -> None:
    """A command that runs in this process sends it on to structlog, which renders each exception for seconds."""
    before = logging.root.handlers[:]
    said = io.StringIO()
    configure_logs(said, ManualClock())
    logging.getLogger("library").warning("heard")

    pytest_runtest_teardown()
    logging.getLogger("library").warning("not heard")

    assert said.getvalue().count("heard") == 1
    assert not [handler for handler in logging.root.handlers if handler not in before]


def test_a_forked_command_is_a_process_of_its_own(tmp_path: Path) -> None:
    made = interlock("store", "init", at=tmp_path, INTERLOCK_STORE="sqlite:///own.db")
    wrong = interlock("sensor", "get", "p", "nothing", at=tmp_path, INTERLOCK_STORE="sqlite:///own.db")
    with live_worker(tmp_path, INTERLOCK_STORE="sqlite:///own.db") as worker:
        pid = worker.process.pid
        worker.kill()

    assert (made.returncode, made.stderr, wrong.returncode, wrong.stdout) == (0, "", 2, "")
    assert "own.db" in made.stdout
    assert (tmp_path / "own.db").exists()
    assert "there is no sensor nothing" in wrong.stderr
    assert pid != os.getpid()
    assert worker.process.wait() == -signal.SIGKILL
