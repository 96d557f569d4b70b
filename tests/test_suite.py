"""The tools that run the tests do what is asked of them; where they do not, nothing fails, and it only takes longer."""

import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from pathlib import Path

from tests.conftest import pytest_runtest_teardown
from tests.schedule import LONG, PIECE, WAITING, group_of, pieces, rank
from tests.support.aws.emulators import DYNAMODB_BACKENDS
from tests.support.clock.manual import ManualClock
from tests.support.worlds.live_worker import interlock, live_worker
from tests.time_limit import TimeLimit
from worker.runtime.logs import configure_logs

ROOT = Path(__file__).parents[1]
GROUPS = ("emulator", "demo")
SOURCE = """
import os
import pytest

@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("group", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in {groups}])
def test_one(group, number):
    with open("ran", "a") as ran:
        print(group, os.getpid(), file=ran)

@pytest.mark.parametrize("number", range(40))
def test_other(number):
    with open("ran", "a") as ran:
        print("none", os.getpid(), file=ran)
"""
HANGING = """
import threading
import pytest

@pytest.mark.timeout(60)
def test_that_ends():
    open("ran", "w").close()

@pytest.mark.timeout(1)
def test_that_hangs():
    threading.Event().wait()
"""
CONFTEST = """
from tests.conftest import pytest_collection_modifyitems, pytest_xdist_make_scheduler
"""
DYING = """
import os
import time
import pytest

@pytest.mark.parametrize("number", range(60))
def test_one(number):
    if number in (0, 20):  # in the first pieces of both processes
        time.sleep(1)
        os._exit(1)
    with open("ran", "a") as ran:
        print(number, file=ran)
"""
SLOW_COLLECTION = """
import os
import time

if os.environ.get("PYTEST_XDIST_WORKER") == "gw3":
    time.sleep(2)
"""


def test_tests_of_one_group_run_in_one_process_and_the_others_in_both(tmp_path: Path) -> None:
    (tmp_path / "test_groups.py").write_text(SOURCE.format(groups=GROUPS))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]

    subprocess.run(
        [*command, "test_groups.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        timeout=60,
    )

    ran = [line.split() for line in (tmp_path / "ran").read_text().splitlines()]
    processes: dict[str, set[str]] = defaultdict(set)
    for group, process in ran:
        processes[group].add(process)
    assert len(ran) == 6 * len(GROUPS) + 40
    assert {group: len(processes[group]) for group in GROUPS} == dict.fromkeys(GROUPS, 1)
    assert len({process for _, process in ran}) == 2


def test_processes_that_end_in_a_test_are_replaced_and_every_other_test_runs(tmp_path: Path) -> None:
    (tmp_path / "test_dying.py").write_text(DYING)
    (tmp_path / "conftest.py").write_text(CONFTEST + SLOW_COLLECTION)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--rootdir", str(tmp_path)]

    ended = subprocess.run(
        [*command, "test_dying.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert "2 failed, 58 passed" in ended.stdout, ended.stdout
    assert sorted(map(int, (tmp_path / "ran").read_text().split())) == [n for n in range(60) if n not in (0, 20)]


def test_what_waits_begins_first_then_what_takes_long_and_short_tests_come_in_pieces() -> None:
    short = [f"tests/unit/test_a.py::test_one[{number}]" for number in range(PIECE + 1)]
    waiting = ["tests/aws/test_b.py::test_two@aws", "tests/scenario/test_c.py::test_three[x]@processes"]
    long = ["tests/simulation/test_d.py::test_four[1]", "tests/simulation/test_d.py::test_four[2]"]

    ordered = sorted([*short, *waiting, *long], key=rank)

    assert ordered == [*reversed(waiting), *long, *short]
    found = pieces(ordered)
    assert [found[nodeid] for nodeid in waiting] == ["aws", "processes"]
    assert [found[nodeid] for nodeid in long] == long
    assert len({found[nodeid] for nodeid in short[:PIECE]}) == 1
    assert found[short[PIECE]] != found[short[0]]


def test_a_name_with_an_at_sign_is_no_group() -> None:
    assert group_of("tests/unit/test_a.py::test_one[a@b]") is None
    assert group_of("tests/unit/test_a.py::test_one[a@b]@aws") == "aws"


def test_every_group_has_its_place_in_the_order_and_the_long_tests_exist() -> None:
    marked = re.compile(r"xdist_group\(\"([\w-]+)\"\)")
    used = {name for path in (ROOT / "tests").rglob("test_*.py") for name in marked.findall(path.read_text())}

    assert used | set(DYNAMODB_BACKENDS) == set(WAITING), "name a new group in tests/schedule.py"
    assert [path for path in LONG if not (ROOT / path).exists()] == []


def test_a_test_that_hangs_ends_its_process_and_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGING)
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_timeout_cancel_timer, pytest_timeout_set_timer\n"
    )

    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir", str(tmp_path), "test_hangs.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert ended.returncode == 1
    assert "Timeout" in ended.stdout
    assert "in test_that_hangs" in ended.stdout
    assert (tmp_path / "ran").exists()


def test_what_ends_in_time_is_not_ended() -> None:
    limit, ended = TimeLimit(look_every_s=0.01), threading.Event()

    limit.begin(0.0, ended.set)
    assert ended.wait(30)
    ended.clear()
    limit.begin(3600.0, ended.set)
    assert not ended.wait(0.1)
    limit.begin(0.05, ended.set)
    limit.cancel()
    assert not ended.wait(0.3)


def test_no_page_has_the_marks_of_a_merge() -> None:
    """In code they would be errors; in a page nobody would notice."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    marks = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)

    assert [str(page) for page in pages if marks.search(page.read_text(encoding="utf-8"))] == []


def test_all_that_needs_an_emulator_is_in_a_group() -> None:
    """Or each test process would start emulators of its own."""
    files = (ROOT / "tests/aws").glob("test_*.py")

    assert [path.name for path in files if "pytest.mark.xdist_group(" not in path.read_text()] == []


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
