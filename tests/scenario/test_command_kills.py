"""Commands of operators, killed with -9 just before and just after one of their commits, and then repeated.

The store then holds what one undisturbed command leaves. One process starts all commands, each in a child of its own:
to start a Python for each would take minutes. CHAOS_ROUNDS asks for every commit of each command, not just for three,
and for the moment before it as well.
"""

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import ORDERS, a_stored_run, key_of, version_hash
from tests.support.builders.command_line import interlock
from tests.support.worlds.live_worker import PATIENCE_S, environment
from worker.core.model import keys
from worker.core.run.state import State
from worker.runtime.clock import SystemClock
from worker.store.backends.open import open_tables
from worker.store.repos.runs import Runs
from worker.store.row_codec import decode_row
from worker.store.table import Put, TableName

pytestmark = [pytest.mark.xdist_group("processes"), pytest.mark.timeout(600)]

CHAOS_ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "0"))
POINTS_MAX = 10_000 if CHAOS_ROUNDS else 2
HISTORY = 120  # rows, deleted in several commits
PIPELINES = 30  # pushed in two groups
NOW = SystemClock().now()
DAY = f"{NOW - timedelta(days=5):%Y-%m-%d}"
COPY = "copy.db"
COMMANDS = {
    "push": ("pipelines push many --yes", "interlock.db"),
    "delete": (f"runs delete orders {DAY} --reason test --with-history --yes", "interlock.db"),
    "forget": (f"runs delete orders {DAY} --reason test --with-history --forget --yes", "interlock.db"),
    "copy": (f"store copy sqlite:///interlock.db sqlite:///{COPY}", COPY),
    "remove": ("pipelines remove orders --yes", "interlock.db"),
}
# Workers read the log of configurations. An entry may be there twice, and a worker adds one that is missing when it
# finds the pipeline in the feed.
LEFT_OUT = "CONFIGLOG"

CHILDREN = """
import importlib, json, os, pkgutil, shutil, signal, sys
import worker.cli.app, worker.operations, worker.store
from worker.cli.main import main
from worker.store.sqlite.tables import SqliteTables

for package in (worker.cli, worker.operations, worker.store):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)

points_max, commands = int(sys.argv[1]), json.loads(sys.argv[2])
commit_to_store = SqliteTables.commit

def child(words, at, point=None, is_applied=False):
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    os.chdir(at)
    said = os.open("said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    commits = 0

    async def commit(self, *writes):
        nonlocal commits
        commits += 1
        is_point = commits - 1 == point
        if is_point and not is_applied:
            os.kill(os.getpid(), signal.SIGKILL)
        await commit_to_store(self, *writes)
        if is_point:
            os.kill(os.getpid(), signal.SIGKILL)

    SqliteTables.commit = commit
    sys.argv = ["interlock", *words.split()]
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback
        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    with open("commits", "w") as file:
        file.write(str(commits))
    os._exit(code)

def codes(name, words):
    shutil.copytree("before", f"{name}-undisturbed")
    found = {f"{name}-undisturbed": [child(words, f"{name}-undisturbed")]}
    commits = int(open(f"{name}-undisturbed/commits").read())
    for point in sorted({commits * part // points_max for part in range(points_max)} | {commits - 1}):
        for is_applied in (False, True) if points_max >= commits else (True,):
            place = f"{name}-killed-{point}-{is_applied}"
            shutil.copytree("before", place)
            found[place] = [child(words, place, point, is_applied), child(words, place)]
    return found

print(json.dumps({name: codes(name, words) for name, words in commands.items()}))
"""


async def fill(path: Path) -> None:
    tables = open_tables(f"sqlite:///{path}", SystemClock())
    await tables.start()
    config = await version_hash(tables)
    for days in range(1, 20):
        state = State.FAILED_FINAL if days % 2 else State.COMPLETED
        ended = NOW - timedelta(days=days, minutes=5)
        await Runs(tables).save(a_stored_run(state, config, key=key_of(f"{ended:%Y-%m-%d}"), since=ended))
    pk, prefix = keys.pipeline_pk(key_of(DAY).pipeline), keys.job_prefix(key_of(DAY))
    rows = [Put(TableName.JOBLOG, {"PK": pk, "SK": f"{prefix}{number:05}"}) for number in range(HISTORY)]
    for begin in range(0, HISTORY, 40):
        await tables.commit(*rows[begin : begin + 40])
    await tables.stop()


def make_store(at: Path) -> None:
    """Make a store with runs, one of which has a long history, and files of pipelines that are not in it yet."""
    (at / "many").mkdir(parents=True)
    (at / "orders.yaml").write_text(ORDERS)
    for number in range(PIPELINES):
        (at / "many" / f"p{number}.yaml").write_text(ORDERS.replace("id: orders", f"id: p{number}"))
    store, clock = f"sqlite:///{at / 'interlock.db'}", SystemClock()
    for words in (["store", "init"], ["pipelines", "push", at / "orders.yaml", "--yes"]):
        assert interlock(*words, "--store", store, clock=clock).exit_code == 0
    asyncio.run(fill(at / "interlock.db"))


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, list[int]]]]:
    """Where all commands ran, each in a folder of its own, and their exit codes by command and folder."""
    at = tmp_path_factory.mktemp("killed")
    make_store(at / "before")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            CHILDREN,
            str(POINTS_MAX),
            json.dumps({name: each[0] for name, each in COMMANDS.items()}),
        ],
        cwd=at,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
        check=True,
    )
    return at, json.loads(done.stdout)


def contents(path: Path) -> Counter[tuple[str, ...]]:
    """The rows of a store without what differs between two commands that do the same: ids and times.

    An action counts once: who finishes what another began is recorded, too.
    """
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT tbl, pk, sk, body FROM row").fetchall()
    found = Counter(
        tuple(_without_ids(text) for text in (table, pk, sk, json.dumps(decode_row(body), sort_keys=True, default=str)))
        for table, pk, sk, body in rows
        if pk != LEFT_OUT
    )
    return Counter({row: 1 if "#OPERATOR_ACTION#" in row[2] else count for row, count in found.items()})


def _without_ids(text: str) -> str:
    return re.sub(r"[0-9a-f]{16,}|\d{4}-\d\d-\d\dT[\d:.]+Z?|\d{10,}", "*", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_killed_at_any_commit_and_repeated_leaves_what_one_command_leaves(
    killed: tuple[Path, dict[str, dict[str, list[int]]]], name: str
) -> None:
    at, results = killed
    undisturbed, codes, store = f"{name}-undisturbed", dict(results[name]), COMMANDS[name][1]

    assert codes.pop(undisturbed) == [0], (at / undisturbed / "said").read_text()
    expected = contents(at / undisturbed / store)
    for place, [first, second] in codes.items():
        said = (at / place / "said").read_text()
        assert first == -signal.SIGKILL, f"{place}: {said}"
        assert second in {0, 1, 2}, f"{place}: {said}"  # 1 and 2: the last commit was made, and there is nothing left
        assert contents(at / place / store) == expected, f"{place}: {said}"
