"""What `--help` teaches."""

import json
import re
import shutil
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from tests.support.builders.cli_runs import a_store, a_stored_run, in_store, key_of
from tests.support.builders.command_line import interlock, loaded_commands
from worker.cli.catalogue import PAGE
from worker.cli.main import main
from worker.cli.terminal.command_list import CommandEntry
from worker.cli.terminal.store_session import Exit
from worker.core.run.state import State
from worker.store.repos.runs import Runs
from worker.store.table import Tables

EXAMPLES = Path(__file__).parents[3] / "examples"
COMMANDS = ["validate", "schema", "plan"]
GROUPS = {
    "runs": ["list", "show", "stats", "inputs", "rerun", "cancel", "delete"],
    "store": ["init", "check", "migrate", "stats", "copy"],
    "pipelines": ["push", "list", "show", "remove"],
    "sensor": ["put", "get", "list", "remove"],
}
PROGRAM = [sys.executable, "-c", "from worker.cli.main import main; main()"]
LINE_MAX = 90
VERBS = {
    "Archive", "Cancel", "Check", "Compare", "Copy", "Create", "Delete", "Drop", "Explain", "Find", "List", "Mark",
    "Migrate", "Pause", "Print", "Process", "Push", "Remove", "Report", "Request", "Resume", "Run", "Save", "Send",
    "Serve", "Show", "Start", "Take", "Test", "Turn", "Watch", "Write",
}  # fmt: skip
# They change runs that failed or are active; a page of the docs shows them at work, and a test runs it.
CHANGING_RUNS = {"runs rerun", "runs cancel", "runs delete"}
IN_GROUPS = [f"{group} {command}" for group, commands in GROUPS.items() for command in commands]


def words(text: str) -> str:
    """Text without the frames and line breaks of a help page."""
    return re.sub(r"[\s│╭╮╰╯─]+", " ", text)


def test_a_character_that_the_stream_lacks_is_escaped_and_no_error(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as in the locale C, or on a terminal of another encoding."""
    a_store(here)
    written = BytesIO()
    note = "na\N{LATIN SMALL LETTER I WITH DIAERESIS}ve \N{RIGHTWARDS ARROW} \N{GRINNING FACE}"
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["interlock", "sensor", "put", "orders", "ready", f"note={note}", "--json"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert not ended.value.code
    assert json.loads(written.getvalue())["data"] == {"note": note}


def test_every_command_is_listed() -> None:
    assert all(command in words(interlock("--help").stdout) for command in [*COMMANDS, *GROUPS])


def test_commands_stand_by_what_they_are_for() -> None:
    page = interlock("--help").stdout.partition("─ Options ")[2]
    panels = dict.fromkeys(re.findall(r"^╭─ (.+?) ─", page, re.MULTILINE))
    shown = {
        panel: tuple(re.findall(r"^│ ([\w-]+)", page.partition(f"─ {panel} ")[2].partition("╰")[0], re.MULTILINE))
        for panel in panels
    }

    assert shown == {panel.title: tuple(entry.name for entry in panel.commands) for panel in PAGE.panels}
    assert list(shown) == ["Get started", "Configure", "Inspect", "Control", "Operate"]


@pytest.mark.parametrize("entry", PAGE.entries.values(), ids=lambda entry: entry.name)
def test_what_is_listed_of_a_command_is_what_its_own_page_says(entry: CommandEntry) -> None:
    command = loaded_commands()[entry.name]

    assert command.name == entry.name
    assert command.help.split("\n\n")[0].replace("\n", " ") == entry.summary


def test_a_program_without_a_command_line_library_shows_the_same_page() -> None:
    page = subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, timeout=30, check=True).stdout

    assert page.split() == interlock("--help").stdout.split()


def test_a_line_of_help_begins_with_a_verb_and_fits_a_line() -> None:
    lines = {**first_lines(), **{entry.name: entry.summary for entry in PAGE.entries.values()}}

    assert {line.split()[0].rstrip(":,") for line in lines.values()} <= VERBS
    assert {line for line in lines.values() if len(line) > LINE_MAX or not line.endswith(".")} == set()


def test_every_group_lists_its_commands() -> None:
    listed = {group: re.findall(r"^│ (\w+)", interlock(group, "--help").stdout, re.MULTILINE) for group in GROUPS}

    assert listed == GROUPS


@pytest.mark.parametrize("command", [*COMMANDS, *IN_GROUPS])
def test_each_help_page_says_how_the_command_exits(command: str) -> None:
    page = words(interlock(*command.split(), "--help").stdout)

    assert "Exit codes: 0 " in page


@pytest.mark.parametrize("command", ["validate", "schema", "plan"])
def test_each_help_page_gives_examples_that_work(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for directory in ("pipelines", "deployed"):
        shutil.copytree(EXAMPLES, tmp_path / directory)
    interlock("store", "init")  # for a plan with states

    page = interlock(command, "--help").stdout.partition("Examples:")[2]

    examples = re.findall(rf"interlock {command} ([^|>\n]*)", page)
    assert len(examples) >= 3
    assert [interlock(command, *example.split()).exit_code for example in examples] == [0] * len(examples)


async def a_run_to_show(tables: Tables) -> None:
    for schedule in ("cron", "stream"):
        key = key_of("2026-03-03", "orders-daily", schedule)
        await Runs(tables).save(a_stored_run(State.COMPLETED, "", key=key))


@pytest.mark.parametrize("command", [command for command in IN_GROUPS if command not in CHANGING_RUNS])
def test_each_help_page_about_the_store_gives_examples_that_work(command: str, here: Path) -> None:
    shutil.copytree(EXAMPLES, here / "pipelines")
    (here / "sensor.json").write_text('{"rows": 1200}')
    interlock("store", "init")
    interlock("pipelines", "push", "pipelines", "--yes")
    for key in ("orders-export", "orders-export#2026-03-03", "orders-exprot", "maintenance"):
        interlock("sensor", "put", "orders-daily", key, "rows=1")
    in_store(a_run_to_show)

    page = interlock(*command.split(), "--help").stdout.partition("Examples:")[2]

    examples = re.findall(rf"interlock {command} ?([^|\n]*)", page)
    assert len(examples) >= 3
    assert [interlock(*command.split(), *example.split()).exit_code for example in examples] == [0] * len(examples)


def all_commands() -> list[str]:
    """Every command, with the group that it is in."""
    groups = {name: getattr(command, "commands", {}) for name, command in loaded_commands().items()}
    return [f"{name} {member}".strip() for name, members in groups.items() for member in members or [""]]


@pytest.mark.parametrize("command", ["", *all_commands()])
def test_a_help_page_fits_a_terminal_and_shows_values_only_where_there_are_some(command: str) -> None:
    page = interlock(*command.split(), "--help").stdout

    assert not re.search(r"<(bool|str|list)", page)
    assert "[[" not in page
    assert "…" not in page, "something is cut off"
    for block in re.findall(r"^ (?:Examples|Exit codes|Settings[^\n]*):\s*\n((?: +\S[^\n]*\n)+)", page, re.MULTILINE):
        assert all(line.startswith("   ") for line in block.splitlines()), f"a line is too long:\n{block}"


def first_lines() -> dict[str, str]:
    members = {name: getattr(command, "commands", {"": command}) for name, command in loaded_commands().items()}
    return {
        f"{name} {member}".strip(): command.help.partition("\n\n")[0].replace("\n", " ")
        for name, commands in members.items()
        for member, command in commands.items()
    }


def test_the_first_page_lists_every_exit_code() -> None:
    page = interlock("--help").stdout

    assert re.findall(r"^   (\d)  ", page.partition("Exit codes:")[2], re.MULTILINE) == [
        str(code.value) for code in Exit
    ]


def test_the_exit_codes_are_documented_in_one_place() -> None:
    documented = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()

    assert re.findall(r"^\| (\d) \|", documented, re.MULTILINE) == [str(code.value) for code in Exit]
    assert all(f"`{entry.name}`" in documented for entry in PAGE.entries.values())


@pytest.mark.parametrize(
    ("line", "what", "remedy"),
    [
        ("statsu", "no such command 'statsu'", "did you mean 'status'?"),
        ("push", "no such command 'push'", "did you mean `interlock pipelines push`?"),
        ("reruns orders", "no such command 'orders'", "`interlock reruns` has: list"),
        ("schedule now", "no such command 'now'", "`interlock schedule` has: next, missed"),
        ("store init --jsn", "no such option: --jsn", "did you mean --json?"),
        ("sensor put", "missing argument 'PIPELINE'", "see `interlock sensor put --help`"),
        ("plan . --from soon", "invalid value for --from: 'soon' is not a date", "write YYYY-MM-DD"),
        ("completion tcsh", "invalid value for 'SHELL': 'tcsh' is not one of 'bash', 'zsh', 'fish'", "see `interlock"),
    ],
)
def test_a_command_that_is_not_understood_is_an_error_like_any_other(line: str, what: str, remedy: str) -> None:
    result = interlock(*line.split())

    assert result.exit_code == Exit.WRONG
    assert result.stdout == ""
    said, below = result.stderr.splitlines()
    assert said == f"error: {what}"
    assert below.startswith(f"    {remedy}")


def test_without_a_command_the_help_is_shown() -> None:
    assert "Usage: interlock" in words(interlock().output)


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"interlock \d+\.\d+\.\d+\n", interlock("--version").stdout)
