"""The two streams of `interlock run`: on one terminal, lines come in the order in which they were written."""

import os
import pty
from pathlib import Path

from tests.docs.terminal import displayed
from worker.cli.terminal.run_streams import run_streams

LINES = 200


def test_on_one_terminal_results_and_remarks_come_in_order() -> None:
    master, terminal = pty.openpty()
    with os.fdopen(os.dup(terminal), "w") as out, os.fdopen(terminal, "w") as err, run_streams(out, err) as streams:
        for number in range(LINES):
            streams.screen.line(f"line {2 * number}")
            streams.screen.remark(f"line {2 * number + 1}")
        printed = ""
        while printed.count("\n") < 2 * LINES:
            printed += os.read(master, 65_536).decode()
    os.close(master)

    assert displayed(printed).splitlines() == [f"line {number}" for number in range(2 * LINES)]


def test_streams_that_differ_stay_apart(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err, run_streams(out, err) as streams:
        streams.screen.line("a result")
        streams.screen.remark("a remark")

    assert (tmp_path / "out").read_text() == "a result\n"
    assert (tmp_path / "err").read_text() == "a remark\n"
