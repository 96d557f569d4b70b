"""Commands that run without Typer read the same command lines as Typer, and pass it all others."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.command_line import TODAY, interlock, loaded_commands
from tests.support.clock.manual import ManualClock
from worker.cli.quick_commands import QUICK_COMMANDS, QuickCommand, read_arguments, run_quickly
from worker.cli.terminal.shell_variables import COMPLETION_VARIABLE

PUT, STATUS = QUICK_COMMANDS


def typers_parameters(quick: QuickCommand) -> list[Any]:
    name, *below = quick.words
    found = loaded_commands()[name]
    for word in below:
        found = found.commands[word]
    return [each for each in found.params if "--help" not in each.opts]


@pytest.mark.parametrize("quick", QUICK_COMMANDS, ids=lambda quick: " ".join(quick.words))
def test_a_quick_command_has_the_options_and_arguments_that_typer_knows(quick: QuickCommand) -> None:
    parameters = typers_parameters(quick)
    options = [each for each in parameters if each.param_type_name == "option"]
    arguments = [each for each in parameters if each.param_type_name == "argument"]

    names = {next(name for name in each.opts if name.startswith("--")): each for each in options}
    assert set(names) == quick.texts | quick.flags | set(quick.numbers)
    assert {name for name, each in names.items() if each.is_flag} == quick.flags
    shorts = {short: name for name, each in names.items() for short in each.opts if not short.startswith("--")}
    assert shorts == quick.short
    assert sum(each.required for each in arguments) == quick.least
    assert (None if any(each.nargs == -1 for each in arguments) else len(arguments)) == quick.most


@pytest.mark.parametrize(("option", "allowed"), STATUS.numbers.items())
def test_a_quick_number_has_the_range_that_typer_checks(here: Path, option: str, allowed: range) -> None:
    interlock("store", "init")

    codes = [interlock("status", option, number).exit_code for number in (allowed.start, allowed.stop - 1)]
    beyond = [interlock("status", option, number).exit_code for number in (allowed.start - 1, allowed.stop)]

    assert (codes, beyond) == ([0, 0], [2, 2])


@pytest.mark.parametrize(
    ("words", "given", "options"),
    [
        (["orders", "landing", "rows=1"], ["orders", "landing", "rows=1"], {}),
        (["--json", "orders", "landing", "a=-1", "b="], ["orders", "landing", "a=-1", "b="], {"--json": True}),
        (["orders", "--period", "2026-03-03", "landing"], ["orders", "landing"], {"--period": "2026-03-03"}),
        (["orders", "landing", '--data={"a": 1}'], ["orders", "landing"], {"--data": '{"a": 1}'}),
    ],
)
def test_a_plain_command_line_is_read(words: Sequence[str], given: Sequence[str], options: dict[str, object]) -> None:
    assert read_arguments(PUT, words) == (given, options)


@pytest.mark.parametrize(
    "words",
    [
        ["orders"],
        ["orders", "landing", "--help"],
        ["orders", "landing", "-h"],
        ["orders", "landing", "--perod", "2026-03-03"],
        ["orders", "landing", "--period"],
        ["orders", "landing", "--period", "--json"],
        ["orders", "landing", "--json=1"],
        ["orders", "landing", "--json", "--json"],
        ["orders", "--", "-landing"],
        ["orders", "-landing", "rows=1"],
        ["orders", "landing", "rows=\udcff"],
        ["orders", "landing", "--data", "\udcff"],
    ],
)
def test_any_other_command_line_is_left_to_typer(words: Sequence[str]) -> None:
    assert read_arguments(PUT, words) is None


@pytest.mark.parametrize(
    "words", [["a", "b"], ["--days", "x"], ["--days", "0"], ["--days", "31"], ["--days", "²"], ["--days", "9" * 5000]]
)
def test_wrong_numbers_of_status_are_left_to_typer(words: Sequence[str]) -> None:
    assert read_arguments(STATUS, words) is None


def test_completion_and_other_commands_are_left_to_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_quickly(["sensor", "get", "a", "b"], ManualClock(TODAY)) is None
    assert run_quickly(["sensor"], ManualClock(TODAY)) is None

    monkeypatch.setitem(os.environ, COMPLETION_VARIABLE, "complete_bash")

    assert run_quickly(["status"], ManualClock(TODAY)) is None


@pytest.mark.parametrize(
    "words",
    [
        ["sensor", "put", "orders", "landing", "rows=1"],
        ["sensor", "put", "orders", "landing", "--period", "2027-03-21", "--data", '{"rows": 2}', "status=done"],
        ["sensor", "put", "orders", "landing", "rows"],
        ["sensor", "put", "orders", "landing"],
        ["sensor", "put", "orders", "", "rows=1"],
        ["sensor", "put", "orders", "landing", "rows=1", "--store", "sqlite:///absent.db"],
        ["sensor", "put", "orders", "landing", "rows=1", "--store", "postgres://x"],
        ["status"],
        ["status", ""],
        ["status", "--json", "--days", "3"],
        ["status", "ordres"],
    ],
    ids=" ".join,
)
def test_both_ways_print_the_same_and_exit_with_the_same_code(
    here: Path, capsys: pytest.CaptureFixture[str], words: Sequence[str]
) -> None:
    interlock("store", "init")
    capsys.readouterr()

    quick = run_quickly(words, ManualClock(TODAY))
    printed = capsys.readouterr()
    by_typer = interlock(*words)

    assert (quick, printed.out, printed.err) == (by_typer.exit_code, by_typer.stdout, by_typer.stderr)
