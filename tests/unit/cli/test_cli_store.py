"""`interlock store` on SQLite files: what it makes, finds, migrates and counts."""

import os
import pty
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.command_line import interlock, records
from tests.support.worlds.live_worker import environment
from worker.cli.terminal.console import Screen
from worker.cli.terminal.store_session import told
from worker.config.store_setting import STORE
from worker.core.errors import ConfigError, Rejected, RetryLater
from worker.store.sqlite.schema import VERSION
from worker.store.sqlite.statements import CHANGE_OLDEST, ENTRIES_COUNT, ROWS_COUNT, ROWS_EXPIRED_COUNT

DAMAGE_AT, DAMAGE = 4096 * 2 + 100, b"\xff" * 2000
PIPELINE = """\
pipeline: {id: orders}
schedule: {cron: "0 6 * * *"}
job: {type: command, config: {command: load}}
"""

LOOKS = ["store check", "store stats", "doctor", "migrate check orders", "status", "events", "leases", "dlq list"]


# What another program may leave in a row: no JSON, no object, tags with other content, no bytes at all; another key.
UNREADABLE = [
    b"\x00garbage",
    b"[1]",
    b'{"rows": {"$n": "many"}}',
    b'{"rows": {"$ss": 5}}',
    b'{"rows": {"$b": "?"}}',
    b'{"rows": {"$m": 5}}',
    b'{"a":' * 100_000,
    b'{"$n":' * 900 + b"1" + b"}" * 900,
    "text",
    5,
]
OF_ANOTHER_KEY = [b"{}", b'{"PK": "PIPELINE#orders", "SK": "SENSOR#other"}']


def change_row(folder: Path, change: str, value: object, *, sk: str, pk: str = "PIPELINE#orders") -> None:
    with closing(sqlite3.connect(folder / "interlock.db", isolation_level=None)) as connection:
        done = connection.execute(f"UPDATE row SET {change} WHERE pk = ? AND sk = ?", (value, pk, sk))
    assert done.rowcount == 1


def problems() -> list[dict[str, Any]]:
    return [each for each in records(interlock("store", "check", "--json").stdout) if not each["ok"]]


def remove_as_told(folder: Path, remedy: str) -> None:
    """Do what the remedy says, as the program `sqlite3` does it."""
    [command] = re.findall(r"&& sqlite3 (.*?)(?:, then check again)?$", remedy)
    bail, name, backup, statements = shlex.split(command)
    assert (bail, backup.split()[0]) == ("-bail", ".backup")
    with closing(sqlite3.connect(folder / name, isolation_level=None)) as connection:
        connection.executescript(statements)


def push(folder: Path, name: str) -> None:
    (folder / f"{name}.yaml").write_text(PIPELINE.replace("orders", name))
    result = interlock("pipelines", "push", f"{name}.yaml", "--yes")
    assert result.exit_code == 0, result.output


def listed() -> list[str]:
    return sorted(each["id"] for each in records(interlock("pipelines", "list", "--json").stdout))


def make_older(path: Path) -> None:
    """Take a new file back to the layout of version 1."""
    assert interlock("store", "init", "--store", f"sqlite:///{path}").exit_code == 0
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in (
            "DROP INDEX row_by_ttl",
            "ALTER TABLE row DROP COLUMN ttl",
            "DROP INDEX change_by_table",
            "DROP TABLE meta",
            "PRAGMA user_version = 1",
        ):
            connection.execute(statement)


# --- init -------------------------------------------------------------------------------------------------------------


def test_init_makes_the_default_file_once(here: Path) -> None:
    first, second = interlock("store", "init"), interlock("store", "init")

    assert (first.exit_code, first.stdout) == (0, "made interlock.db\n")
    assert (second.exit_code, second.stdout) == (0, "nothing to do: interlock.db is there and whole\n")
    assert (here / "interlock.db").exists()


def test_the_store_is_named_by_option_before_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORE, "sqlite:///from-environment.db")

    interlock("store", "init")
    interlock("store", "init", "--store", "sqlite:///from-option.db")

    assert sorted(path.name for path in here.glob("*.db")) == ["from-environment.db", "from-option.db"]


@pytest.mark.usefixtures("here")
def test_init_says_what_it_did_as_json() -> None:
    assert records(interlock("store", "init", "--json").stdout) == [
        {"type": "init", "place": "interlock.db", "made": True}
    ]


def test_init_leaves_a_file_of_another_program_alone(here: Path) -> None:
    with closing(sqlite3.connect(here / "interlock.db")) as other:
        other.execute("CREATE TABLE theirs (x)")

    result = interlock("store", "init")

    assert result.exit_code == 2
    assert "is a SQLite file of another program" in result.stderr


# --- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_check_looks_at_everything_and_finds_a_new_store_sound() -> None:
    interlock("store", "init")

    result = interlock("store", "check")

    assert result.exit_code == 0
    assert [line.split()[:2] for line in result.stdout.splitlines()[:-1]] == [
        ["ok", subject]
        for subject in ("file", "version", "layout", "durability", "integrity", "rows", "feed", "changes")
    ]
    assert result.stdout.endswith("no problems found\n")


@pytest.mark.parametrize("body", UNREADABLE + OF_ANOTHER_KEY)
def test_a_row_that_something_else_wrote_is_named_with_what_to_do(here: Path, body: object) -> None:
    interlock("store", "init")
    for number in range(3):
        interlock("sensor", "put", "orders", f"ready-{number}", "status=done")
    change_row(here, "body = ?", body, sk="SENSOR#ready-1")

    [verdict] = problems()

    assert verdict["finding"] == "damaged: control PIPELINE#orders SENSOR#ready-1"
    assert "remove these rows with their index entries" in verdict["remedy"]


@pytest.mark.parametrize("body", UNREADABLE)
def test_whoever_meets_a_damaged_row_is_told_how_to_find_it(here: Path, body: object) -> None:
    interlock("store", "init")
    interlock("sensor", "put", "orders", "ready", "status=done")
    change_row(here, "body = ?", body, sk="SENSOR#ready")

    result = interlock("sensor", "get", "orders", "ready")

    assert result.exit_code == 2
    assert "remove the row as `interlock store check` says" in result.stderr


@pytest.mark.parametrize("column", ["tbl", "pk", "sk"])
@pytest.mark.parametrize("text", [b"other", b"\xff\xfe"])
def test_a_row_under_a_key_that_nobody_writes_is_named(here: Path, column: str, text: bytes) -> None:
    interlock("store", "init")
    interlock("sensor", "put", "orders", "ready", "status=done")
    change_row(here, f"{column} = CAST(? AS TEXT)", text, sk="SENSOR#ready")

    [verdict] = problems()

    assert verdict["subject"] == "rows"
    assert text.decode(errors="backslashreplace") in verdict["finding"]


def test_large_rows_are_checked_a_few_at_a_time(here: Path) -> None:
    interlock("store", "init")
    for number in range(5):
        interlock("sensor", "put", "orders", f"ready-{number}", "--data", f'{{"text": "{"x" * 390_000}"}}')
    change_row(here, "body = ?", b"[1]", sk="SENSOR#ready-4")

    [verdict] = problems()

    assert verdict["finding"] == "damaged: control PIPELINE#orders SENSOR#ready-4"


def test_of_many_damaged_rows_the_first_are_named_and_the_removal_says_to_check_again(here: Path) -> None:
    interlock("store", "init")
    for number in range(11):
        interlock("sensor", "put", "orders", f"ready-{number:02}", "status=done")
    with closing(sqlite3.connect(here / "interlock.db", isolation_level=None)) as connection:
        connection.execute("UPDATE row SET body = x'00'")

    [first] = problems()
    remove_as_told(here, first["remedy"])
    [second] = problems()
    remove_as_told(here, second["remedy"])

    assert first["finding"].endswith("SENSOR#ready-09; and more")
    assert first["remedy"].endswith(", then check again")
    assert second["finding"] == "damaged: control PIPELINE#orders SENSOR#ready-10"
    assert problems() == []


def test_rows_that_were_removed_as_told_can_be_written_again(here: Path) -> None:
    interlock("store", "init")
    for name in ("orders", "returns"):
        push(here, name)
    change_row(here, "body = ?", b"[1]", sk="CONFIG", pk="PIPELINE#returns")

    [verdict] = problems()
    remove_as_told(here, verdict["remedy"])

    assert problems() == []
    assert listed() == ["orders"]
    push(here, "visits")
    assert listed() == ["orders", "visits"]
    push(here, "returns")
    assert listed() == ["orders", "returns", "visits"]


def test_a_row_that_was_deleted_without_its_index_entries_neither_hides_nor_shows_another(here: Path) -> None:
    interlock("store", "init")
    for name in ("orders", "returns"):
        push(here, name)
    with closing(sqlite3.connect(here / "interlock.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM row WHERE sk = 'CONFIG' AND pk = 'PIPELINE#returns'")
        # As if its row had the id of the deleted one: the entries left behind name it.
        reused = "UPDATE index_entry SET row = (SELECT id FROM row WHERE pk = ? AND sk = 'CONFIG') WHERE pk = ?"
        connection.execute(reused, ("PIPELINE#orders", "PIPELINE#returns"))

    assert listed() == ["orders"]
    push(here, "visits")
    push(here, "returns")

    assert listed() == ["orders", "returns", "visits"]


def test_check_of_no_store_says_how_to_make_one_and_makes_none(here: Path) -> None:
    result = interlock("store", "check")

    assert result.exit_code == 1
    assert "there is no store at interlock.db; make it with `interlock store init`" in result.stdout
    assert list(here.iterdir()) == []


def test_check_finds_an_older_file_and_does_not_migrate_it(here: Path) -> None:
    make_older(here / "interlock.db")

    first, second = interlock("store", "check", "--json"), interlock("store", "check", "--json")

    assert (first.exit_code, second.exit_code) == (1, 1)
    verdict, *others = records(second.stdout)
    assert verdict["ok"] is False
    assert [(each["subject"], each["ok"]) for each in others] == [("integrity", True), ("rows", True)]
    assert f"has version 1 and this program uses {VERSION}" in verdict["finding"]
    assert "interlock store migrate" in verdict["remedy"]


@pytest.mark.parametrize("command", LOOKS)
def test_whoever_only_looks_makes_no_store(command: str, here: Path) -> None:
    result = interlock(*command.split())

    assert result.exit_code in {1, 2}
    assert result.output.count("there is no store at interlock.db") == 1
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("command", LOOKS)
def test_whoever_only_looks_does_not_migrate_an_older_file(command: str, here: Path) -> None:
    make_older(here / "interlock.db")

    result = interlock(*command.split())

    assert "interlock store migrate" in result.output
    with closing(sqlite3.connect(here / "interlock.db")) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_check_finds_a_newer_file(here: Path) -> None:
    interlock("store", "init")
    with closing(sqlite3.connect(here / "interlock.db")) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION + 1}")

    result = interlock("store", "check")

    assert result.exit_code == 1
    assert "a newer Interlock has written it; install that release" in result.stdout


def test_check_finds_an_index_that_was_dropped_by_hand(here: Path) -> None:
    interlock("store", "init")
    with closing(sqlite3.connect(here / "interlock.db")) as connection:
        connection.execute("DROP INDEX row_by_ttl")

    result = interlock("store", "check")

    assert result.exit_code == 1
    assert "lacks index row_by_ttl" in result.stdout


@pytest.mark.parametrize("table", ["row", "change", "meta"])
def test_a_table_that_was_dropped_by_hand_gives_no_traceback(table: str, here: Path) -> None:
    interlock("store", "init")
    with closing(sqlite3.connect(here / "interlock.db")) as connection:
        connection.execute(f"DROP TABLE {table}")

    checked = interlock("store", "check")
    used = interlock("store", "stats")

    assert checked.exit_code == 1
    assert f"table {table}" in checked.stdout
    assert used.exit_code == 2
    assert f"something unexpected went wrong: OperationalError: no such table: {table} (" in used.stderr
    assert "run `interlock store check`" in used.stderr


def test_check_finds_damage_inside_the_file(here: Path) -> None:
    path = here / "interlock.db"
    interlock("store", "init")
    for number in range(50):
        interlock("sensor", "put", "orders", f"sensor-{number}", "--data", '{"text": "' + "x" * 1000 + '"}')
    with path.open("r+b") as file:
        file.seek(DAMAGE_AT)
        file.write(DAMAGE)

    result = interlock("store", "check")

    assert result.exit_code == 1
    assert "PROBLEM" in result.stdout
    assert "restore a backup" in result.stdout


def test_check_of_a_file_that_is_no_database_tells_no_traceback(here: Path) -> None:
    (here / "interlock.db").write_text("once upon a time " * 100)

    result = interlock("store", "check")

    assert result.exit_code == 1
    assert "is not a SQLite database" in result.stdout


# --- migrate ----------------------------------------------------------------------------------------------------------


def test_migrate_brings_an_older_file_up_and_keeps_a_copy(here: Path) -> None:
    make_older(here / "interlock.db")

    result = interlock("store", "migrate")

    assert result.exit_code == 0
    assert f"interlock.db was migrated from version 1 to {VERSION}\n" in result.stdout
    assert interlock("store", "check").exit_code == 0
    [copy] = here.glob("*.bak")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert copy.name in result.stdout


def test_a_migration_killed_while_it_copies_leaves_nothing_that_looks_like_a_copy(here: Path) -> None:
    make_older(here / "interlock.db")
    code = (
        "import os, signal, sqlite3\n"
        "class Dies(sqlite3.Connection):\n"
        "    def backup(self, target, **options):\n"
        "        target.execute('CREATE TABLE half (way)')\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "connect = sqlite3.connect\n"
        "sqlite3.connect = lambda *names, **options: connect(*names, **options, factory=Dies)\n"
        "from worker.cli.main import main\n"
        "main()\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, "store", "migrate"], cwd=here, env=environment(), check=False)
    assert killed.returncode == -signal.SIGKILL
    assert list(here.glob("*.bak")) == []
    [part] = here.glob("*.bak.part")
    os.utime(part, (0, 0))

    assert interlock("store", "migrate").exit_code == 0

    [copy] = here.glob("*.bak*")
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_damaged_row_of_an_older_file_is_named_and_removed_before_the_migration(here: Path) -> None:
    make_older(here / "interlock.db")
    with closing(sqlite3.connect(here / "interlock.db", isolation_level=None)) as connection:
        connection.execute("INSERT INTO row (tbl, pk, sk, body) VALUES ('control', 'p', 's', x'00')")

    refused = [interlock("store", "migrate") for _ in range(2)]

    assert [result.exit_code for result in refused] == [2, 2]
    assert "has damaged rows and was not changed: control p s" in refused[0].stderr
    assert list(here.glob("*.bak*")) == []
    [_, verdict] = problems()
    assert verdict["finding"] == "damaged: control p s"
    remove_as_told(here, verdict["remedy"])
    assert interlock("store", "migrate").exit_code == 0
    assert problems() == []


def test_a_migration_that_fails_leaves_no_copy(here: Path) -> None:
    make_older(here / "interlock.db")
    with closing(sqlite3.connect(here / "interlock.db", isolation_level=None)) as connection:
        connection.execute("CREATE TABLE meta (x)")  # the migration creates it

    result = interlock("store", "migrate")

    assert result.exit_code == 2
    assert list(here.glob("*.bak*")) == []


def test_migrate_keeps_no_copy_if_told_so(here: Path) -> None:
    make_older(here / "interlock.db")

    [record] = records(interlock("store", "migrate", "--no-backup", "--json").stdout)

    assert (record["before"], record["after"], record["backup"]) == (1, VERSION, None)
    assert list(here.glob("*.bak")) == []


def test_a_copy_that_is_there_is_never_overwritten(here: Path) -> None:
    for name in ("a.db", "b.db"):
        make_older(here / name)
    interlock("store", "migrate", "--store", "sqlite:///a.db")
    [copy] = here.glob("a.db.*.bak")
    (here / copy.name.replace("a.db", "b.db")).write_text("precious")

    result = interlock("store", "migrate", "--store", "sqlite:///b.db")

    assert result.exit_code == 2
    assert (here / copy.name.replace("a.db", "b.db")).read_text() == "precious"
    assert interlock("store", "check", "--store", "sqlite:///b.db").exit_code == 1, "it was migrated without a copy"


@pytest.mark.usefixtures("here")
def test_migrate_of_a_present_file_changes_nothing() -> None:
    interlock("store", "init")

    assert interlock("store", "migrate").stdout == f"interlock.db has version {VERSION} already\n"


def test_no_other_command_migrates_in_passing(here: Path) -> None:
    make_older(here / "interlock.db")

    for command in (["pipelines", "list"], ["sensor", "list", "orders"], ["store", "stats"], ["store", "init"]):
        result = interlock(*command)
        assert result.exit_code == 2
        assert "interlock store migrate" in result.stderr


# --- stats ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("here")
def test_stats_count_rows_kinds_sizes_and_the_feed() -> None:
    interlock("store", "init")
    interlock("sensor", "put", "orders", "export", "rows=1")
    interlock("sensor", "put", "orders", "export", "rows=2")

    figures = {record["name"]: record["value"] for record in records(interlock("store", "stats", "--json").stdout)}

    assert figures["schema version"] == VERSION
    assert (figures["control rows"], figures["events rows"]) == (1, 0)
    assert figures["changes kept"] == 2
    assert figures["oldest change"] == "2027-03-22T12:00:00Z"
    assert figures["file bytes"] > 0


@pytest.mark.parametrize("statement", [ROWS_COUNT, ROWS_EXPIRED_COUNT, ENTRIES_COUNT, CHANGE_OLDEST])
def test_stats_are_counted_along_an_index(statement: str, here: Path) -> None:
    interlock("store", "init")

    with closing(sqlite3.connect(here / "interlock.db")) as connection:
        parameters = ["x"] * statement.count("?")
        plan = [step[3] for step in connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)]

    assert plan
    assert all(step.startswith("SEARCH") for step in plan)


@pytest.mark.usefixtures("here")
def test_stats_are_a_table_for_people() -> None:
    interlock("store", "init")

    assert "schema version  2" in interlock("store", "stats").stdout


# --- trouble ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", [["store", "stats"], ["store", "migrate"], ["pipelines", "list"], ["sensor", "put", "a", "b", "c=1"]]
)
def test_only_init_makes_a_store(command: list[str], here: Path) -> None:
    """A mistyped path must not become an empty store into which sensors vanish."""
    result = interlock(*command)

    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        "error: there is no store at interlock.db",
        "    make it with `interlock store init`, or name another with --store",
    ]
    assert list(here.iterdir()) == []


@pytest.mark.usefixtures("here")
def test_a_wrong_url_exits_with_2_and_says_what_is_accepted() -> None:
    result = interlock("store", "check", "--store", "interlock.db")

    assert result.exit_code == 2
    assert "use sqlite:///interlock.db, dynamodb://PREFIX?region=REGION or redis://HOST:6379/0" in result.stderr


@pytest.mark.parametrize("path", ["x" * 300, "nul%00byte", "missing/interlock.db", "%2Fdev/null/interlock.db"])
@pytest.mark.parametrize("command", [["store", "init"], ["pipelines", "list"]])
@pytest.mark.usefixtures("here")
def test_a_path_where_no_file_can_be_exits_with_2_and_says_so(command: list[str], path: str) -> None:
    result = interlock(*command, "--store", f"sqlite:///{path}")

    assert result.exit_code == 2
    assert "unexpected" not in result.stderr


def test_a_current_directory_that_is_gone_is_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "gone").mkdir()
    monkeypatch.chdir(here / "gone")
    (here / "gone").rmdir()

    result = interlock("store", "init")

    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == "error: the current directory is gone"


def test_a_store_that_does_not_answer_exits_with_3(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test")):
        monkeypatch.setenv(name, value)

    # Port 9 of this machine: nobody listens there, and the manual clock makes the waits between the tries free.
    result = interlock("store", "check", "--store", "dynamodb://x?region=eu-west-1&endpoint=http://127.0.0.1:9")

    assert result.exit_code == 3
    assert "given up after" in result.stderr


def test_a_reader_that_has_read_enough_is_no_mistake_of_ours() -> None:
    async def show() -> int:
        raise BrokenPipeError  # what `interlock events | head` brings

    with pytest.raises(BrokenPipeError):  # Typer knows it, and ends without a word
        told(Screen(), show)


@pytest.mark.parametrize(
    ("errors", "code", "shown"),
    [
        ([RetryLater("no answer; wait")], 3, ["no answer", "    wait"]),
        ([RetryLater("no answer; wait"), ConfigError("wrong key; correct it")], 2, ["no answer", "wrong key"]),
        ([Rejected("never; drop it"), RetryLater("no answer; wait")], 1, ["never", "no answer"]),
        ([KeyError("x"), RetryLater("no answer; wait")], 2, ["no answer", "something unexpected went wrong: KeyError"]),
        ([ValueError("a"), ValueError("a"), ValueError("b")], 2, ["wrong: ValueError: a", "wrong: ValueError: b"]),
    ],
)
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_of_groups_of_errors_the_causes_are_shown(
    errors: list[Exception], code: int, shown: list[str], depth: int, capsys: pytest.CaptureFixture[str]
) -> None:
    raised: Exception = ExceptionGroup("unhandled errors in a TaskGroup", errors)
    for _ in range(depth):
        raised = ExceptionGroup("unhandled errors in a TaskGroup", [raised])

    async def fail() -> int:
        raise raised

    assert told(Screen(), fail) == code
    said = capsys.readouterr().err
    assert "TaskGroup" not in said
    assert [text for text in shown if text not in said] == []
    assert said.count("ValueError: a") <= 1


def test_the_installed_command_asks_on_a_terminal(here: Path) -> None:
    interlock("store", "init")
    (here / "orders.yaml").write_text(PIPELINE)
    command = [str(Path(sys.executable).with_name("interlock")), "pipelines", "push", "orders.yaml"]
    ours, theirs = pty.openpty()
    os.write(ours, b"y\n")

    done = subprocess.run(command, cwd=here, stdin=theirs, capture_output=True, text=True, timeout=30, check=False)

    os.close(ours)
    os.close(theirs)
    assert done.stderr == "Write 1 pipeline? [y/N]\n"
    assert done.stdout.endswith("1 written\n")


def test_the_installed_command_tells_trouble_in_two_lines(here: Path) -> None:
    command = [str(Path(sys.executable).with_name("interlock")), "pipelines", "list"]

    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: there is no store at interlock.db",
        "    make it with `interlock store init`, or name another with --store",
    ]
