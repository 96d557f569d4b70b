"""The pages tell the truth: commands run, output is real, fields are those of the schema. Links: test_docs_site.py."""

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders.command_line import TODAY, interlock
from tests.support.pages.field_tables import PAGE, sections, table_names, with_fresh_tables
from worker.config.load import load_text

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GROUPS = ("store", "pipelines", "sensor")
# Sections whose table is told in a sentence instead.
TOLD_IN_PROSE = {"AnyGroup", "AllGroup", "AtLeast", "CalendarDate", "CalendarBody", "ArchetypeSection"}


def sessions(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the console blocks, with the output shown below it."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        for command, output in re.findall(r"^\$ ([^\n]+)\n((?:(?!\$ )[^\n]*\n)*)", block, re.MULTILINE):
            yield command.partition(" # ")[0].strip(), output


SESSIONS = list(sessions(README))
# Pages of these folders are executed as a reader would, in tests/docs.
WALKED = ("get-started", "how-to")
SESSION_PAGES = [
    page for page in PAGES if page.parent.name not in WALKED and any(sessions(page.read_text(encoding="utf-8")))
]


@pytest.mark.parametrize("page", SESSION_PAGES, ids=lambda page: page.name)
def test_the_commands_of_a_page_print_what_it_shows_one_after_the_other(page: Path, here: Path) -> None:
    shutil.copytree(ROOT / "examples", here / "examples")

    for command, output in sessions(page.read_text(encoding="utf-8")):
        if command.startswith("interlock"):
            result = interlock(*shlex.split(command)[1:])
            assert (result.exit_code, result.stdout) == (0, output), command


def test_the_readme_shows_each_command_a_newcomer_needs() -> None:
    shown = {" ".join(command.split()[:2]) for command, _ in SESSIONS}

    assert shown == {"make demo", "interlock validate", *(f"interlock {group}" for group in GROUPS)}


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert {command.split()[1] for command, _ in SESSIONS if command.startswith("make")} <= targets


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "store.md"], ids=lambda page: page.name)
def test_commands_in_the_running_text_name_real_commands_and_options(page: Path) -> None:
    for command in re.findall(r"`(interlock [a-z]+[^`]*)`", page.read_text(encoding="utf-8")):
        words = command.split()[1:]
        name = words[: 2 if words[0] in GROUPS else 1]
        help_page = interlock(*name, "--help")
        assert help_page.exit_code == 0, command
        assert all(option in help_page.stdout for option in re.findall(r" (--?[a-z-]+)", command)), command


def test_the_pipeline_file_of_the_readme_loads() -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)

    assert load_text(text, today=TODAY.date()).problems == ()


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "jobs").glob("*.md")), ids=lambda page: page.name)
def test_the_examples_of_a_target_can_be_pasted(page: Path) -> None:
    examples = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    head = "pipeline: {id: p}\nschedule: {trigger: {key: a, check: exists}}\n"

    assert examples
    for example in examples:
        assert load_text(head + example, today=TODAY.date()).problems == ()


def test_the_tables_of_the_file_reference_are_those_of_the_schema() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == with_fresh_tables(page), "run `python -m tests.support.pages.field_tables`"


def test_the_file_reference_describes_every_section() -> None:
    assert set(sections()) - TOLD_IN_PROSE == set(table_names(PAGE.read_text(encoding="utf-8")))
