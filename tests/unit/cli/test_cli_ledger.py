"""`interlock ledger`: changed lines come back as they are, and what is processed is saved by the run that holds it."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest.mock import patch

import pytest
from typer.testing import Result

from tests.support.builders.command_line import interlock, records

LINES = [f'{{"id": "r{number}", "hash": "h{number}",   "kept": "as is"}}' for number in range(250)]
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def store(here: Path) -> None:
    assert interlock("store", "init").exit_code == 0
    assert here.exists()


def run(*words: str, lines: list[str], **environment: str) -> Result:
    with patch.dict(os.environ, environment):
        return interlock("ledger", *words, typed="\n".join(lines))


def test_new_and_changed_lines_come_back_unmodified_until_they_are_saved() -> None:
    first = run("diff", "bills", "--run", "a", lines=LINES)
    again = run("diff", "bills", "--run", "a", lines=LINES)  # as after a crash before anything was saved
    run("commit", "bills", "--run", "a", lines=LINES[:100])
    rest = run("diff", "bills", "--run", "a", lines=LINES)

    assert first.stdout.splitlines() == again.stdout.splitlines() == LINES
    assert first.stderr == "250 seen: 250 new, 0 changed, 0 unchanged\n"
    assert rest.stdout.splitlines() == LINES[100:]
    run("commit", "bills", "--run", "a", lines=LINES)
    changed = LINES[7].replace("h7", "other")
    assert run("diff", "bills", "--run", "b", lines=[changed, *LINES]).stdout.splitlines() == [changed, LINES[7]]


def test_inside_a_command_job_the_run_and_its_attempt_are_known_and_an_older_attempt_is_refused() -> None:
    job = {"INTERLOCK_PIPELINE": "p", "INTERLOCK_SCHEDULE": "s", "INTERLOCK_PERIOD": "2026-03-03"}
    assert run("diff", "bills", lines=[], **job, INTERLOCK_ATTEMPT="2").exit_code == 0

    old = run("commit", "bills", lines=LINES, **job, INTERLOCK_ATTEMPT="1")
    new = run("commit", "bills", lines=LINES, **job, INTERLOCK_ATTEMPT="2")

    assert old.exit_code == 1
    assert "attempt 2 has taken it over" in old.stderr
    assert new.stderr == "250 records saved in bills, 0 known already\n"
    [stats] = records(interlock("ledger", "stats", "bills", "--json").stdout)
    assert (stats["records"], stats["heldBy"]) == (250, {"run": "p/s/2026-03-03", "attempt": 2})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1 is not JSON"),
        ("[]", "line 1 is no JSON object"),
        ('{"id": "a"}', "line 1: `hash` must be text"),
        ('{"hash": "a"}', "line 1: `id` must be text"),
        (f'{{"id": "{"x" * 513}", "hash": "a"}}', "line 1: `id` must be text of 1 to 512 bytes"),
    ],
)
def test_a_line_that_is_no_record_is_named_and_nothing_is_saved(line: str, problem: str) -> None:
    result = run("commit", "bills", "--run", "a", lines=[line, *LINES])

    assert result.exit_code == 1
    assert problem in result.stderr
    assert records(interlock("ledger", "stats", "bills", "--json").stdout)[0]["records"] == 0


def test_records_are_listed_shown_seeded_and_cleared() -> None:
    assert "name it with --run" in run("commit", "bills", lines=LINES).stderr
    assert run("seed", "bills", lines=LINES).stderr == "250 records saved in bills, 0 known already\n"

    whole = interlock("ledger", "show", "bills", "--limit", "1000", "--json")
    cut = interlock("ledger", "show", "bills", "--limit", "3")
    one = interlock("ledger", "show", "bills", "r7")

    assert {each["id"] for each in records(whole.stdout)} == {f"r{number}" for number in range(250)}
    said = "records: 3 of at least 250 shown; raise --limit"
    assert (len(cut.stdout.splitlines()), said in cut.stderr) == (3, True)
    *_, cut_off = records(interlock("ledger", "show", "bills", "--limit", "3", "--json").stdout)
    assert (cut_off["type"], cut_off["shown"], cut_off["total"], cut_off["isExact"]) == ("truncated", 3, 250, False)
    assert one.stdout == "r7  h7\n"
    assert interlock("ledger", "show", "bills", "none").exit_code == 1
    assert interlock("ledger", "clear", "bills", "--reason", "x").exit_code == 2, "there is no terminal to ask on"
    assert "250 records of bills deleted" in interlock("ledger", "clear", "bills", "--reason", "x", "--yes").stdout
    assert "ledger clear of bills: x" in interlock("events", "--json").stdout


JOB = """\
import os, subprocess, sys
ask = [sys.executable, "-c", "from worker.cli.main import main; main()", "ledger"]
lines = open("lines.ndjson").read()
changed = subprocess.run([*ask, "diff", "bills"], input=lines, capture_output=True, text=True, check=True).stdout
with open("processed", "a") as processed:
    for number, line in enumerate(changed.splitlines()):
        processed.write(line + "\\n")
        processed.flush()
        if number == int(sys.argv[1]):
            os.kill(os.getpid(), 9)  # processed, and not saved
        subprocess.run([*ask, "commit", "bills"], input=line, text=True, check=True, capture_output=True)
"""


def test_a_job_that_is_killed_between_processing_and_saving_repeats_a_record_and_loses_none(here: Path) -> None:
    (here / "lines.ndjson").write_text("\n".join(LINES[:4]))
    (here / "job.py").write_text(textwrap.dedent(JOB))
    names = {"INTERLOCK_PIPELINE": "p", "INTERLOCK_SCHEDULE": "s", "INTERLOCK_PERIOD": "2026-03-03"}

    def attempt(number: int, dies_at: int) -> int:
        environment = {**os.environ, **names, "INTERLOCK_ATTEMPT": str(number), "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "job.py", str(dies_at)]
        return subprocess.run(words, check=False, env=environment, timeout=50).returncode

    assert [attempt(1, dies_at=1), attempt(2, dies_at=99)] == [-signal.SIGKILL, 0]

    processed = [json.loads(line)["id"] for line in (here / "processed").read_text().splitlines()]
    assert processed == ["r0", "r1", "r1", "r2", "r3"]
